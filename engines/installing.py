"""How to install an optional part: one sentence for every message that needs it.

earwitness is installed from its checkout and is on no package index: its name alone would install
nothing, or somebody else's package.
"""

from __future__ import annotations

__all__ = ["install_command"]


def install_command(extra: str) -> str:
    """What to type, and where, for one of the extras of `pyproject.toml`."""
    return f"pip install -e '.[{extra}]' in the folder of earwitness"
