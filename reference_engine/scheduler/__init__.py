"""Who runs next: ready sets, policies, chunking, reserves. Integers and time only; no torch."""
