"""What must work without the heavy libraries."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

__all__ = ["without_torch"]

_FIRST_PARTY = ("reference_engine.", "analysis.", "harness.")


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every use of torch fail in this test, also by our modules that were imported before.

    It still counts as installed.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(_FIRST_PARTY) and "torch" in vars(module):
            monkeypatch.delitem(sys.modules, name)
    empty = ModuleType("torch")
    empty.__spec__ = find_spec("torch")
    monkeypatch.setitem(sys.modules, "torch", empty)
