"""Read a YAML file into a strict model; every mistake in it becomes one line a person can act on.

`FILE: path.to.key: 'found' is not one of a, b (did you mean 'a'?)`

Shared by everything that reads YAML, so that the lines look the same everywhere.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

__all__ = ["describe", "read_yaml", "suggest", "validate"]

ModelT = TypeVar("ModelT", bound=BaseModel)

_MAX_FOUND_CHARS = 60
# pydantic joins the choices as `'a', 'b' or 'c'`.
_QUOTED = re.compile(r"'([^']*)'")
_TOO_SHORT = re.compile(r"\w+ should have at least (\d+ \w+)")


class _UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key written twice; plain YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, list | dict | set):
                continue  # SafeLoader itself says that such a key cannot be used
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is written twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def read_yaml(text: str, *, where: str, error: type[Exception]) -> dict[str, Any]:
    """Parse YAML text whose top level is a mapping.

    Args:
        text: the file's text.
        where: how to name the file in messages.
        error: the class to raise.

    Raises:
        error: a syntax error, a key written twice, or a top level that is no mapping.
    """
    try:
        data = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise error(f"{where}{line}: not valid YAML: {broken.problem or broken.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as broken:
        raise error(f"{where}: not valid YAML: {_one_line(str(broken))}") from None
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {_kind_of(data)}"
        raise error(f"{where}: found {found}, expected `key: value` lines")
    return data


def validate(
    model: type[ModelT], data: Mapping[str, Any], *, where: str, error: type[Exception]
) -> ModelT:
    """Build the model from what YAML or the command line gave.

    The data passes through JSON: a strict model then still takes a list for a tuple and a string
    for an enum, and nothing else is bent to fit.

    Raises:
        error: one line per mistake, each with its path.
    """
    try:
        text = to_json(data, inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError, RecursionError) as broken:
        raise error(f"{where}: holds a value that is no plain data: {broken}") from None
    try:
        return model.model_validate_json(text)
    except ValidationError as invalid:
        raise error(describe(invalid, model, where=where)) from None


def describe(invalid: ValidationError, model: type[BaseModel], *, where: str) -> str:
    """One line per mistake: file, path, what was found, what was expected, a suggestion."""
    lines = [f"{where}: {_line(details, model)}" for details in invalid.errors(include_url=False)]
    # A union reports once for each of its members; the same sentence twice helps nobody.
    return "\n".join(dict.fromkeys(lines))


def suggest(found: object, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the known name closest to `found`, or nothing."""
    close = difflib.get_close_matches(str(found), list(known), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _line(details: ErrorDetails, model: type[BaseModel]) -> str:
    location = details["loc"]
    kind = details["type"]
    if kind == "extra_forbidden":
        known = _keys_at(model, location[:-1])
        owner = f"{_path(model, location[:-1])}: " if location[:-1] else ""
        key = str(location[-1])
        return f"{owner}unknown key '{key}'; expected {_listing(known)}{suggest(key, known)}"
    path = _path(model, location) or "top level"
    if kind == "missing":
        return f"{path}: missing; it must be given"
    found = details["input"]
    if kind in ("enum", "literal_error"):
        choices = _QUOTED.findall(str(details.get("ctx", {}).get("expected", "")))
        return (
            f"{path}: {_quote(found)} is not one of {', '.join(choices)}{suggest(found, choices)}"
        )
    return f"{path}: found {_quote(found)}; {_expectation(details)}"


def _expectation(details: ErrorDetails) -> str:
    message = details["msg"]
    for prefix in ("Value error, ", "Assertion failed, "):
        message = message.removeprefix(prefix)
    message = message.replace("Input should be", "expected")
    message = message.replace("expected an object", "expected `key: value` lines")
    too_short = _TOO_SHORT.match(message)
    if too_short:
        return f"expected at least {too_short[1]}"
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


def _listing(known: Iterable[str]) -> str:
    names = ", ".join(known)
    return f"one of {names}" if names else "no keys here"


def _quote(found: object) -> str:
    if found is None:
        return "nothing"
    if isinstance(found, dict | list):
        return f"a {_kind_of(found)}"
    text = repr(found)
    return text if len(text) <= _MAX_FOUND_CHARS else f"{text[:_MAX_FOUND_CHARS]}..."


def _kind_of(value: object) -> str:
    names = {dict: "mapping", list: "list", str: "text", bool: "truth value"}
    return names.get(type(value), type(value).__name__)


def _one_line(text: str) -> str:
    return " ".join(text.split())


# -- walking a model by the location of an error ---------------------------------------------------


def _path(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """`engines[0].params.voice`; names pydantic adds for the members of a union are left out."""
    path = ""
    for part, _ in _walk(model, location):
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> tuple[str, ...]:
    annotation = [model, *(reached for _, reached in _walk(model, location))][-1]
    keys = (key for found in _models_in(annotation) for key in _keys_of(found))
    return tuple(dict.fromkeys(keys))


def _walk(
    model: type[BaseModel], location: tuple[int | str, ...]
) -> Iterator[tuple[int | str, object]]:
    """Each part that stands in the file, with the annotation of what it leads to."""
    annotation: object = model
    for part in location:
        if isinstance(part, int):
            annotation = _item_of(annotation)
            yield part, annotation
            continue
        models = _models_in(annotation)
        field = next((f for m in models if (f := _field_of(m, part)) is not None), None)
        if field is not None:
            annotation = field
        elif models and len(models) + _num_other_members(annotation) > 1:
            continue  # the tag or the class name of a union's member
        elif _is_internal(part):
            continue
        else:
            annotation = _value_of(annotation)
        yield part, annotation


def _is_internal(part: str) -> bool:
    """`function-after[...]`, `list[int]`, ... : pydantic's own words, never a key in a file."""
    return "[" in part and part.endswith("]")


def _keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _field_of(model: type[BaseModel], key: str) -> object | None:
    for name, field in model.model_fields.items():
        if key in (field.alias, name):
            return field.annotation
    return None


def _members(annotation: object) -> tuple[object, ...]:
    """The members of a union (or the one annotation), with `Annotated` taken off."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return tuple(m for arg in typing.get_args(annotation) for m in _members(arg))
    return (annotation,)


def _models_in(annotation: object) -> list[type[BaseModel]]:
    return [m for m in _members(annotation) if isinstance(m, type) and issubclass(m, BaseModel)]


def _num_other_members(annotation: object) -> int:
    members = _members(annotation)
    return sum(m is not type(None) for m in members) - len(_models_in(annotation))


def _item_of(annotation: object) -> object:
    for member in _members(annotation):
        arguments = typing.get_args(member)
        if arguments and typing.get_origin(member) is not dict:
            return arguments[0]
    return None


def _value_of(annotation: object) -> object:
    for member in _members(annotation):
        arguments = typing.get_args(member)
        if len(arguments) == 2:
            return arguments[1]
    return None
