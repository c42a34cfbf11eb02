"""Strict reading of a checkpoint's JSON: every wrong key is named with its file and path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reference_engine.errors import CheckpointError

__all__ = ["JsonSection", "read_json"]


@dataclass(frozen=True, slots=True)
class JsonSection:
    """One object inside a JSON file; `where` is the file and the keys that lead to it."""

    where: str
    values: Mapping[str, object]

    def fail(self, key: str, text: str) -> CheckpointError:
        """An error at a key of this section."""
        return CheckpointError(f"{self.where}: {key}: {text}")

    def has(self, key: str) -> bool:
        """Whether the key stands here with a value other than null."""
        return self.values.get(key) is not None

    def integer(self, key: str, *, at_least: int = 1) -> int:
        """A whole number."""
        value = self._required(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise self.fail(key, f"{value!r} is not a whole number of at least {at_least}")
        return value

    def number(self, key: str) -> float:
        """A number above zero."""
        value = self._required(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise self.fail(key, f"{value!r} is not a number above 0")
        return float(value)

    def boolean(self, key: str) -> bool:
        """true or false."""
        value = self._required(key)
        if not isinstance(value, bool):
            raise self.fail(key, f"{value!r} is not true or false")
        return value

    def text(self, key: str) -> str:
        """A string."""
        value = self._required(key)
        if not isinstance(value, str):
            raise self.fail(key, f"{value!r} is not a string")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers above zero."""
        value = self._required(key)
        if not isinstance(value, list) or not all(
            isinstance(item, int) and not isinstance(item, bool) and item > 0 for item in value
        ):
            raise self.fail(key, f"{value!r} is not a list of whole numbers above 0")
        return tuple(value)

    def section(self, key: str) -> JsonSection:
        """A nested object."""
        value = self._required(key)
        if not isinstance(value, dict):
            raise self.fail(key, f"expected an object, found {type(value).__name__}")
        return JsonSection(f"{self.where}: {key}", value)

    def ids(self, key: str, *, below: int) -> dict[str, int]:
        """A table of lower-cased names and ids."""
        inner = self.section(key)
        return {name.lower(): inner.id(name, below=below) for name in inner.values}

    def id(self, key: str, *, below: int) -> int:
        """An id inside a vocabulary."""
        value = self.integer(key, at_least=0)
        if value >= below:
            raise self.fail(key, f"id {value} is outside the vocabulary of {below}")
        return value

    def expect(self, key: str, wanted: object) -> None:
        """Refuse any value but the one this engine implements."""
        found = self._required(key)
        if found != wanted:
            raise self.fail(key, f"{found!r} is not supported, only {wanted!r}")

    def expect_if_set(self, key: str, wanted: object) -> None:
        """As `expect`, but the key may be absent or null."""
        if self.has(key):
            self.expect(key, wanted)

    def _required(self, key: str) -> object:
        if self.values.get(key) is None:
            raise self.fail(key, "is missing; the checkpoint must state it")
        return self.values[key]


def read_json(path: Path) -> JsonSection:
    """Read a JSON file that must hold one object.

    Raises:
        CheckpointError: the file is missing, is not JSON, or holds something else.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: not found; is this a Qwen3-TTS checkpoint folder?"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected an object, found {type(values).__name__}")
    return JsonSection(str(path), values)
