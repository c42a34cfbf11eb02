"""From YAML to a strict model, with nothing bent on the way."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from harness.config_errors import validate
from harness.errors import ScenarioError


class _Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class _Inner(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    colour: _Colour
    sizes: tuple[float, ...] = ()


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    inner: _Inner
    number: int = 0
    version: int = Field(default=1, alias="schema")


def _validate(data: Any) -> _Model:
    return validate(_Model, data, where="f.yaml", error=ScenarioError)


def test_lists_become_tuples_and_words_become_members():
    """A strict model takes what YAML can write."""
    found = _validate({"inner": {"colour": "red", "sizes": [1, 2.5]}, "schema": 3})

    assert (_Colour.RED, (1.0, 2.5), 3) == (found.inner.colour, found.inner.sizes, found.version)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (None, "f.yaml: is empty, expected a mapping of keys"),
        ([1], "f.yaml: holds [1], expected a mapping of keys"),
        (
            {"inner": {"colour": "gren"}},
            "f.yaml: inner.colour: 'gren' is not one of red, green (did you mean 'green'?)",
        ),
        (
            {"inner": {"colour": "red", "size": [1]}},
            "f.yaml: inner.size: unknown key (did you mean 'sizes'?); known keys: colour, sizes",
        ),
        ({}, "f.yaml: inner: missing, but required"),
    ],
)
def test_a_mistake_is_one_line(data: Any, line: str):
    """File, path, what was found, what was expected, what was probably meant."""
    with pytest.raises(ScenarioError) as refused:
        _validate(data)
    assert line == str(refused.value)


@pytest.mark.parametrize("value", ["1", 1.5, True, None, [1]])
def test_a_number_is_a_number(value: Any):
    """No text, no truth value and no fraction passes for a whole number."""
    with pytest.raises(ScenarioError, match=r"f\.yaml: number: "):
        _validate({"inner": {"colour": "red"}, "number": value})
