"""Say what to install, before any work is done, where an optional part is absent."""

from __future__ import annotations

from importlib.util import find_spec

from engines.installing import install_command
from harness.errors import MissingExtraError

__all__ = ["require_reference"]


def require_reference(command: str) -> None:
    """What runs the reference engine's model.

    Raises:
        MissingExtraError: its libraries are not installed; names them and the command to type.
    """
    missing = [name for name in ("torch", "safetensors", "tokenizers") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{command}: {', '.join(missing)} not installed; run {install_command('reference')}"
        )
