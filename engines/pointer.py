"""Find values in JSON by a path with wildcards: `/data/*/id`.

As RFC 6901, plus `*` for every member of a list or an object, and `*key` is not special: a
step is a wildcard only when it is exactly `*`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["find", "find_first", "is_pointer"]


def is_pointer(text: str) -> bool:
    """Whether `text` is a path this module reads: empty (the whole) or starting with `/`."""
    return text == "" or text.startswith("/")


def find(document: Any, pointer: str) -> list[Any]:
    """Every value that `pointer` names, in document order; an absent path gives an empty list."""
    assert is_pointer(pointer), pointer
    places = [document]
    for raw in pointer.split("/")[1:]:
        step = raw.replace("~1", "/").replace("~0", "~")
        places = [inner for place in places for inner in _down(place, step)]
    return places


def find_first(document: Any, pointers: Iterable[str]) -> Any:
    """The first value that is there and not null, over `pointers` in order; else None."""
    for pointer in pointers:
        for value in find(document, pointer):
            if value is not None:
                return value
    return None


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
