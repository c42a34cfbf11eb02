"""The page of this package says what is there, and all of it."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

import harness
from harness.scenario import Scenario, parse_scenario

PACKAGE = Path(harness.__file__).parent
README = (PACKAGE / "README.md").read_text(encoding="utf-8")


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of all values of a scenario file."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        members = typing.get_args(field.annotation) or (field.annotation,)
        inner = [m for m in members if isinstance(m, type) and issubclass(m, BaseModel)]
        is_list = typing.get_origin(field.annotation) is tuple
        if inner:
            yield from _keys(inner[0], f"{key}[]." if is_list else f"{key}.")
        else:
            yield key


@pytest.mark.parametrize("key", sorted(_keys(Scenario)))
def test_every_key_of_a_scenario_is_explained(key: str):
    """In the table, by its full name."""
    assert f"`{key}`" in README


def test_no_key_is_explained_that_does_not_exist():
    """First column of the table against the schema."""
    rows = [line for line in README.splitlines() if line.startswith("| `")]
    named = {key for row in rows for key in re.findall(r"`([^`]+)`", row.split("|")[1])}

    assert set(_keys(Scenario)) == named


def test_the_example_is_a_scenario():
    """As it stands on the page."""
    [block] = re.findall(r"```yaml\n(.*?)```", README, flags=re.S)
    given = parse_scenario(yaml.safe_load(block), where="README.md", base_dir=PACKAGE)

    assert 6 == len(given.points())


def test_every_module_is_in_the_reading_order():
    """No file that a newcomer would not be told of."""
    names = {
        path.name if path.suffix else f"{path.name}/"
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").exists())
    } - {"__init__.py"}

    assert set() == {name for name in names if f"`{name}`" not in README}
