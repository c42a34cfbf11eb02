"""A serving engine for Qwen3-TTS. Imports none of the other packages; reached over a socket."""
