"""How a mistake in a YAML file of `harness` or `analysis` is told: one line, path and suggestion.

`scenarios/burst.yaml: arrivals.process: 'possion' is not one of constant, poisson, trace (did you
mean 'poisson'?)`. The work is done in `engines.config_errors`; this is its name on this side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from engines.config_errors import closest, describe, hint, load_yaml, problems, read_yaml, show

__all__ = [
    "closest",
    "describe",
    "hint",
    "load_yaml",
    "problems",
    "read_yaml",
    "show",
    "validate",
]

ModelT = TypeVar("ModelT", bound=BaseModel)


def validate(
    model: type[ModelT],
    data: object,
    *,
    where: str,
    error: type[Exception],
    sources: Mapping[str, str] | None = None,
) -> ModelT:
    """Build a strict model from what YAML or the command line gave.

    The data passes through JSON: a strict model then still takes a list for a tuple and a string
    for an enum, and bends nothing else to fit.

    Args:
        model: the schema.
        data: what `read_yaml` returned.
        where: the file, put in front of the message.
        error: the class to raise.
        sources: path -> what gave the value there in place of the file, such as an option.

    Raises:
        error: one line with the path of the first mistake.
    """
    if not isinstance(data, Mapping):
        found = "is empty" if data is None else f"holds {show(data)}"
        raise error(f"{where}: {found}, expected a mapping of keys")
    try:
        text = to_json(_with_text_keys(data), inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError, RecursionError) as fault:
        raise error(f"{where}: holds a value that is no plain data: {fault}") from None
    try:
        return model.model_validate_json(text)
    except ValidationError as invalid:
        raise error(describe(invalid, model, where=where, sources=sources)) from None


def _with_text_keys(data: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in data.items()}
