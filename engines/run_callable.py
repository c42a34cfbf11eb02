"""Let a Python callable stand at the end of a pipe: `python -m engines.run_callable package:name`.

The callable takes the text and returns or yields audio as bytes. It runs in a process of its own,
started for one request by the `local` engine, so that what it imports and how long it holds the
interpreter never touch the measuring one. Its text is standard input up to the end.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from engines.errors import ContractError

__all__ = ["load_callable", "main", "speak"]


def load_callable(place: str) -> Callable[[str], Any]:
    """The object at `package.module:name`.

    Raises:
        ContractError: there is none, or it cannot be called.
    """
    module, colon, attribute = place.partition(":")
    if not colon or not module or not attribute:
        raise ContractError(f"callable: {place!r} is not of the form package.module:name")
    try:
        found: Any = importlib.import_module(module)
        for step in attribute.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError) as fault:
        raise ContractError(f"callable: {place!r} cannot be loaded: {fault}") from fault
    if not callable(found):
        raise ContractError(f"callable: {place!r} is no function")
    speaker: Callable[[str], Any] = found
    return speaker


def speak(speaker: Callable[[str], Any], text: str, out: BinaryIO) -> None:
    """Write what the callable gives for `text`, each piece at once.

    Raises:
        ContractError: it gave something other than bytes.
    """
    given = speaker(text)
    whole = isinstance(given, (bytes, bytearray, memoryview))
    if not whole and not isinstance(given, Iterable):
        raise ContractError(f"callable: gave {type(given).__name__}, not bytes")
    for piece in [given] if whole else given:
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise ContractError(f"callable: gave {type(piece).__name__}, not bytes")
        out.write(piece)
        out.flush()


def main() -> int:
    """Read the text, speak, and say on one line what went wrong, if anything did."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m engines.run_callable package.module:name\n")
        return 2
    try:
        speaker = load_callable(sys.argv[1])
        speak(speaker, sys.stdin.buffer.read().decode().removesuffix("\n"), sys.stdout.buffer)
    except ContractError as fault:
        sys.stderr.write(f"{fault}\n")
        return fault.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
