"""A Python function as a command: bytes out, mistakes on one line."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from engines.errors import ContractError
from engines.run_callable import load_callable, speak


def whole(text: str) -> bytes:
    """All at once."""
    return text.encode()


def pieces(text: str) -> Iterator[bytes]:
    """A piece a letter."""
    yield from (letter.encode() for letter in text)


class _Watched(io.BytesIO):
    """Counts flushes, since a piece that is not flushed is not on its way."""

    num_flushes = 0

    def flush(self) -> None:
        self.num_flushes += 1


@pytest.mark.parametrize(("speaker", "num_flushes"), [(whole, 1), (pieces, 3)])
def test_bytes_are_written_as_they_come(speaker: Any, num_flushes: int):
    """Each piece at once."""
    out = _Watched()
    speak(speaker, "abc", out)

    assert b"abc" == out.getvalue()
    assert num_flushes == out.num_flushes


@pytest.mark.parametrize("given", ["text", [1, 2], None, 7])
def test_anything_but_bytes_is_refused(given: object):
    """A list of numbers could be any format."""
    with pytest.raises(ContractError, match="not bytes"):
        speak(lambda _text: given, "x", io.BytesIO())


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("no_colon", "is not of the form package.module:name"),
        ("no_such_package:speak", "cannot be loaded: No module named"),
        ("engines.run_callable:nothing", "cannot be loaded: module"),
        ("engines.run_callable:__all__", "is no function"),
    ],
)
def test_a_place_without_a_function_is_one_line(place: str, line: str):
    """With the reason."""
    with pytest.raises(ContractError, match=line):
        load_callable(place)


def test_a_function_is_found_by_its_place():
    """Module and name."""
    assert load_callable(f"{__name__}:whole").__name__ == "whole"
