"""What a recorded run means. Reads run folders, writes only their derived/ part and reports."""
