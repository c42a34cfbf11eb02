"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# An example may take as long as a busy machine makes it: tests state facts, never times.
settings.register_profile("any-machine", parent=settings(), deadline=None)
settings.load_profile("any-machine")
