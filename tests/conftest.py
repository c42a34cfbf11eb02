"""Shared by all tests: which of them run in the same worker when the suite runs in parallel."""

from __future__ import annotations

from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parent
# Folders whose tests share something that takes long to start: one worker takes them all.
_TOGETHER = ("oracle", "engines/embedded", "reference_engine/server")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file together, and some folders: their fixtures are started once."""
    for item in items:
        path = item.path.relative_to(_TESTS).as_posix()
        folder = next((name for name in _TOGETHER if path.startswith(f"{name}/")), None)
        item.add_marker(pytest.mark.xdist_group(folder or path))
