"""Statistics that the judgements rest on; each file is one question."""
