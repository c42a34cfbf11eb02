"""Numbers as people read them: one rule for every page and every line, never in powers of ten."""

from __future__ import annotations

import math

__all__ = ["NOT_MEASURED", "count", "figure", "number", "quantity", "rate", "share", "share_of"]

NOT_MEASURED = "not measured"


def figure(value: float, digits: int) -> str:
    """So many significant digits at most: `12900`, `0.00012`."""
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    return f"{float(text):.12f}".rstrip("0").rstrip(".")


def number(value: float | None, unit: str = "") -> str:
    """Four significant digits at most."""
    return NOT_MEASURED if value is None else f"{figure(value, 4)} {unit}".rstrip()


def quantity(value: float | None, unit: str) -> str:
    """With its unit, a share as a percentage; +-inf is a failure's latency."""
    if value is not None and math.isinf(value):
        return "not reached"
    return share(value) if unit == "share" else number(value, unit)


def rate(value: float | None) -> str:
    """Requests per second."""
    return NOT_MEASURED if value is None else f"{figure(value, 3)}/s"


def share(value: float | None) -> str:
    """A share as a percentage; small ones keep a digit that says more than 0."""
    if value is None:
        return NOT_MEASURED
    percent = 100 * value
    if percent in (0, 100) or percent >= 10:
        return f"{percent:.0f} %" if percent == round(percent) else f"{percent:.1f} %"
    return f"{figure(percent, 2)} %"


def share_of(hits: int, total: int) -> str:
    """`4.9 % (2 of 41)`; no percentage of nothing."""
    return f"{share(hits / total)} ({hits} of {total})" if total else "0 of 0"


def count(total: int, noun: str) -> str:
    """`1 request`, `20 requests`."""
    return f"{total:,} {noun}{'' if total == 1 else 's'}"
