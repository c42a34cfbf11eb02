"""The official qwen-tts package as a yardstick: never imported here, run by its own interpreter.

Its pinned libraries clash with ours, so it lives in `.venv-oracle` and is driven as a process.
"""
