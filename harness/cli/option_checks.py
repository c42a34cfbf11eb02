"""What an option must be beyond its type: a number, and not one that would be ignored."""

from __future__ import annotations

import math
from collections.abc import Iterable

import typer

__all__ = ["above_zero", "finite", "refuse_given"]


def finite(value: float | None) -> float | None:
    """A number that counts something, or nothing at all.

    Raises:
        typer.BadParameter: `nan` or `inf`.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def above_zero(value: float | None) -> float | None:
    """A price or a share, or nothing at all.

    Raises:
        typer.BadParameter: 0 or less, `nan` or `inf`.
    """
    if value is not None and value <= 0:
        raise typer.BadParameter(f"{value} is not above 0.")
    return finite(value)


def refuse_given(context: typer.Context, parameters: Iterable[str], why: str) -> None:
    """Refuse options that were typed but would be ignored, rather than ignore them.

    Args:
        context: of the command.
        parameters: names of its parameters.
        why: they would be, as a sentence about the option.

    Raises:
        typer.BadParameter: one of them was typed.
    """
    for name in parameters:
        source = context.get_parameter_source(name)
        # By its name: the command library moved the class between releases.
        if source is not None and source.name == "COMMANDLINE":
            option = next(p.opts[0] for p in context.command.params if p.name == name)
            raise typer.BadParameter(why, param_hint=f"'{option}'")
