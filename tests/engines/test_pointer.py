"""Paths into JSON, with wildcards."""

from __future__ import annotations

import pytest

from engines.pointer import find, find_first

DOCUMENT = {"data": [{"id": "a"}, {"id": "b"}, 3], "a/b": {"~": None}, "n": 0}


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", [DOCUMENT]),
        ("/data/1/id", ["b"]),
        ("/data/*/id", ["a", "b"]),
        ("/a~1b/~0", [None]),
        ("/data/9/id", []),
        ("/data/²", []),
        ("/data/-1", []),
        ("/n/x", []),
        ("/absent", []),
    ],
)
def test_a_pointer_finds_what_it_names(pointer: str, found: list[object]):
    """And an absent path finds nothing."""
    assert found == find(DOCUMENT, pointer)


def test_the_first_value_that_is_there_wins():
    """Null and absent are passed over; zero is a value."""
    assert 0 == find_first(DOCUMENT, ("/absent", "/a~1b/~0", "/n", "/data/0/id"))
