"""What an option's number must be beyond a range: ranges let "not a number" through."""

from __future__ import annotations

import math

import typer

__all__ = ["above_zero", "finite"]


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
