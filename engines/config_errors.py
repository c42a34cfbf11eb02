"""Turn what a schema library says about a file into lines a person can act on.

`scenarios/burst.yaml: arrivals.process: 'possion' is not one of constant, poisson, trace
(did you mean 'poisson'?)`

Shared by contracts here and by scenarios and gates elsewhere, so that every file of the project
complains in the same voice.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

__all__ = ["closest", "describe", "hint", "load_yaml", "problems", "read_yaml", "show"]

_MAX_SHOWN_CHARS = 60
_CLOSE_ENOUGH = 0.6
# What aliases may make of a short text; a long one may hold as many values as it has characters.
_MAX_ALIASED_VALUES = 100_000


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, or None where nothing is close."""
    options = {option.lower(): option for option in known}
    found = difflib.get_close_matches(word.lower(), list(options), n=1, cutoff=_CLOSE_ENOUGH)
    return options[found[0]] if found else None


def hint(word: object, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing."""
    match = closest(str(word), known)
    return f" (did you mean {match!r}?)" if match else ""


def show(value: object) -> str:
    """A value as a person wrote it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."


def describe(
    error: ValidationError,
    model: type[BaseModel],
    *,
    where: str,
    sources: Mapping[str, str] | None = None,
) -> str:
    """One line for the whole error: its first problem, and how many more there are.

    Args:
        error: from `model.model_validate`.
        model: the schema that was applied; tells which keys are known.
        where: the file or the argument, put in front.
        sources: path -> what gave the value there in place of `where`, such as an option.
    """
    lines = problems(error, model, where=where, sources=sources)
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return lines[0] + more


def problems(
    error: ValidationError,
    model: type[BaseModel],
    *,
    where: str,
    sources: Mapping[str, str] | None = None,
) -> list[str]:
    """Every problem as `where: path.to.key: what was found, what was expected`."""
    found = error.errors(include_url=False, include_context=True)
    # A misspelt key is also a missing one; the line with the suggestion is the useful one.
    found.sort(key=lambda item: item["type"] == "missing")
    lines: list[str] = []
    for item in found:
        path = _dotted(tuple(item["loc"]), model)
        line = _problem(dict(item), model, f"{_source(path, where, sources or {})}: {path}")
        if line not in lines:
            lines.append(line)
    return lines


def _source(path: str, where: str, sources: Mapping[str, str]) -> str:
    """Who gave the value at this path: whoever gave the most of the path itself."""
    given = [key for key in sources if path == key or path.startswith((f"{key}.", f"{key}["))]
    return sources[max(given, key=len)] if given else where


def _problem(item: Mapping[str, Any], model: type[BaseModel], at: str) -> str:
    loc = tuple(item["loc"])
    kind, found, context = item["type"], item.get("input"), item.get("ctx") or {}
    if kind == "extra_forbidden":
        known = sorted(_keys_at(model, loc[:-1]))
        listed = f"; known keys: {', '.join(known)}" if known else ""
        return f"{at}: unknown key{hint(loc[-1], known)}{listed}"
    if kind == "missing":
        return f"{at}: missing, but required{_only_value(model, loc)}"
    if kind in {"literal_error", "enum"}:
        options = [word.strip("'") for word in _options(str(context.get("expected", "")))]
        return f"{at}: {show(found)} is not one of {', '.join(options)}{hint(found, options)}"
    if kind in {"union_tag_invalid", "union_tag_not_found"}:
        options = _options(str(context.get("expected_tags", "")))
        tag, key = context.get("tag", "nothing"), str(context.get("discriminator", "")).strip("'")
        return f"{at}.{key}: {show(tag)} is not one of {', '.join(options)}{hint(tag, options)}"
    if kind in {"value_error", "assertion_error"}:
        return (
            f"{at}: {item['msg'].removeprefix('Value error, ').removeprefix('Assertion failed, ')}"
        )
    return f"{at}: {_complaint(found, item['msg'])}"


def _only_value(model: type[BaseModel], loc: tuple[str | int, ...]) -> str:
    """What to write for a key of the file that can have but one value, as `schema: 1`."""
    reached = _step(model, loc[0]) if len(loc) == 1 else []
    values = [
        v for a in reached if typing.get_origin(a) is typing.Literal for v in typing.get_args(a)
    ]
    return f"; write `{loc[0]}: {values[0]}`" if len(values) == 1 else ""


def _complaint(found: object, message: str) -> str:
    """pydantic's own words, less its vocabulary of Python types."""
    message = re.sub(r"valid dictionary( or instance of \w+)?", "mapping of keys", message)
    if message.startswith("Input "):
        return f"{show(found)} {message.removeprefix('Input ')}"
    return f"{show(found)}: {message[:1].lower()}{message[1:]}"


def _options(text: str) -> list[str]:
    """The words of pydantic's `'a', 'b' or 'c'`."""
    return [word.strip().strip("'") for word in text.replace(" or ", ", ").split(",") if word]


def _dotted(loc: tuple[str | int, ...], model: type[BaseModel]) -> str:
    """`arrivals.rates_rps[2]`; the names that pydantic adds for union members are left out."""
    path = ""
    for depth, part in enumerate(loc):
        if isinstance(part, int):
            path += f"[{part}]"
        elif depth == len(loc) - 1 or _is_real_key(model, loc[:depth], part):
            path += f".{part}" if path else part
    return path or "the whole file"


def _is_real_key(model: type[BaseModel], parent: tuple[str | int, ...], part: str) -> bool:
    keys = _keys_at(model, parent)
    # A mapping with free keys has none on record: every part of it is the user's own.
    return not keys or part in keys


def _keys_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> set[str]:
    """The known keys of whatever mapping stands at `loc`, over every union member."""
    places: list[Any] = [model]
    for part in loc:
        places = [inner for place in places for inner in _step(place, part)] or places
    keys: set[str] = set()
    for place in places:
        for candidate in _members(place):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                keys |= {_key(name, info) for name, info in candidate.model_fields.items()}
    return keys


def _key(name: str, info: FieldInfo) -> str:
    """A field's name in the file."""
    alias = info.validation_alias
    return alias if isinstance(alias, str) else name


def _step(place: Any, part: str | int) -> list[Any]:
    """Annotations reached from `place` by one key or index."""
    found: list[Any] = []
    for candidate in _members(place):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            found += [
                info.annotation
                for name, info in candidate.model_fields.items()
                if part in (name, _key(name, info))
            ]
        arguments = typing.get_args(candidate)
        if not arguments:
            continue
        if isinstance(part, int):
            found.append(arguments[0])
        elif len(arguments) == 2 and arguments[1] is not Ellipsis:
            found.append(arguments[1])
    return found


def _members(annotation: Any) -> list[Any]:
    """Union members and the inside of `Annotated`, flattened."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [m for inner in typing.get_args(annotation) for m in _members(inner)]
    return [annotation]


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice: the second would silently win."""


def _mapping_without_duplicates(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    seen: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, (str, int, float, bool)):
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be a plain word", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} is given twice", key_node.start_mark
            )
        seen[key] = loader.construct_object(value_node, deep=True)
    return seen


_StrictLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_duplicates
)


def load_yaml(text: str, *, where: str, error: type[Exception]) -> Any:
    """Parse one YAML document; `error` is raised as one line that names `where` and the line.

    A bare `1e3` or `on` is read by YAML 1.1 rules; the schema then says what it expected.
    """
    try:
        document = yaml.load(text, Loader=_StrictLoader)
        num_values = _num_values(document, {})
    except RecursionError:
        raise error(f"{where}: nested too deeply to be read") from None
    except (yaml.YAMLError, ValueError) as fault:
        mark = getattr(fault, "problem_mark", None)
        line = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        said = getattr(fault, "problem", None) or str(fault).splitlines()[0]
        raise error(f"{where}:{line} not valid YAML: {said}") from None
    if num_values > max(_MAX_ALIASED_VALUES, len(text)):
        raise error(f"{where}: its aliases stand for {num_values} values; write out what is meant")
    return document


def _num_values(value: Any, known: dict[int, int]) -> int:
    """How many values there are once every alias is written out; a few lines can mean billions.

    `known` holds what was counted, by identity: what aliases share is one object.
    """
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        known[id(value)] = 1  # for the case that it holds itself
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] += sum(_num_values(part, known) for part in parts)
    return known[id(value)]


def read_yaml(path: Path, *, error: type[Exception]) -> Any:
    """Read and parse a YAML file; every way in which that can fail is one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise error(f"{path}: is not UTF-8 text") from None
    except OSError as fault:
        raise error(f"{path}: cannot be read: {fault.strerror or fault}") from None
    return load_yaml(text, where=str(path), error=error)
