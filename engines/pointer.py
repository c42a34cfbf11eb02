"""Find values in JSON by a path with wildcards: `/data/*/id`.

As RFC 6901, plus `*` for every member of a list or an object, and `*key` is not special: a
step is a wildcard only when it is exactly `*`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

__all__ = ["find", "find_first", "is_pointer"]


def is_pointer(text: str) -> bool:
    """Whether `text` is a path this module reads: empty (the whole) or starting with `/`."""
    return text == "" or text.startswith("/")


def find(document: Any, pointer: str) -> list[Any]:
    """Every value that `pointer` names, in document order; an absent path gives an empty list."""
    places = [document]
    for step in _steps(pointer):
        places = [inner for place in places for inner in _down(place, step)]
    return places


def find_first(document: Any, pointers: Iterable[str]) -> Any:
    """The first value that is there and not null, over `pointers` in order; else None."""
    for pointer in pointers:
        for value in find(document, pointer):
            if value is not None:
                return value
    return None


@functools.cache
def _steps(pointer: str) -> tuple[str, ...]:
    """The steps of a path. Pointers are a contract's and few; events that they read are many."""
    assert is_pointer(pointer), pointer
    return tuple(raw.replace("~1", "/").replace("~0", "~") for raw in pointer.split("/")[1:])


def _down(place: Any, step: str) -> list[Any]:
    if isinstance(place, dict):
        if step == "*":
            return list(place.values())
        return [place[step]] if step in place else []
    if isinstance(place, list):
        if step == "*":
            return list(place)
        # isdigit also accepts characters such as '²' that int() refuses.
        if step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(place):
            return [place[int(step)]]
    return []
