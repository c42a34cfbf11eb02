"""Numbers as people read them: one rule for every report, so that no two pages disagree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from analysis.metrics import PointValue, ValueStatus
from analysis.percentiles import PercentileStatus, nearest_rank
from analysis.report.model import Cell

__all__ = [
    "NOT_MEASURED",
    "count",
    "interval_share",
    "minute",
    "number",
    "percentile_note",
    "point_value",
    "rate",
    "share",
    "share_of",
    "with_note",
]

NOT_MEASURED = "not measured"


def number(value: float | None, unit: str = "") -> str:
    """Four significant digits at most, never in powers of ten."""
    if value is None:
        return NOT_MEASURED
    digits = f"{value:.4g}"
    text = f"{float(digits):.0f}" if "e" in digits else digits
    return f"{text} {unit}".rstrip()


def rate(value: float | None) -> str:
    """Requests per second."""
    return NOT_MEASURED if value is None else f"{value:.3g}/s"


def share(value: float | None) -> str:
    """A share as a percentage; small ones keep a digit that says more than 0."""
    if value is None:
        return NOT_MEASURED
    percent = 100 * value
    if percent in (0, 100) or percent >= 10:
        return f"{percent:.0f} %" if percent == round(percent) else f"{percent:.1f} %"
    return f"{percent:.2g} %"


def share_of(hits: int, total: int) -> str:
    """k of n with its percentage; no percentage of nothing."""
    return f"{hits} of {total} ({share(hits / total)})" if total else "0 of 0"


def interval_share(lo: float | None, hi: float | None) -> str:
    """A 95 % interval of a share, its ends to two digits, or that there is none."""
    if lo is None or hi is None:
        return "no interval"
    return f"{_two_digits(100 * lo)}–{_two_digits(100 * hi)} %"


def _two_digits(percent: float) -> str:
    return f"{percent:.0f}" if percent >= 10 else f"{percent:.2g}"


def count(total: int, noun: str) -> str:
    """`1 request`, `20 requests`."""
    return f"{total:,} {noun}{'' if total == 1 else 's'}"


def minute(iso_utc: str) -> str:
    """`2026-11-29 14:55 UTC` of an ISO time; anything else as it is."""
    try:
        when = datetime.fromisoformat(iso_utc)
    except ValueError:
        return iso_utc
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def percentile_note(metric: Mapping[str, Any], percent: int) -> str:
    """What must stand beside a percentile: its interval, or why it has none."""
    found = metric[f"p{percent}"]
    if nearest_rank(metric["n"], percent) == metric["n"]:
        return f"max of {metric['n']}"
    if found["status"] == PercentileStatus.NO_INTERVAL:
        return "no interval"
    if found["status"] == PercentileStatus.NOT_ESTIMABLE:
        return "not estimable"
    upper = "not reached" if found["hi"] is None else _end(found["hi"])
    return f"{_end(found['lo'])}–{upper}"


def _end(value: float) -> str:
    """An interval's end: known to fewer digits than the value inside it."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def with_note(cell: Cell, note: str) -> Cell:
    """A cell with something more beside it."""
    return replace(cell, note=f"{cell.note}, {note}" if cell.note else note)


def point_value(point: Mapping[str, Any], name: str) -> PointValue | None:
    """One metric of a whole point of metrics.json; None where the file does not have it."""
    metric = point["metrics"].get(name)
    if metric is None:
        return None
    found = metric["value"]
    return PointValue(
        value=found["value"],
        lo=found["lo"],
        hi=found["hi"],
        n=metric["n"],
        missing=metric["missing"],
        status=ValueStatus(found["status"]),
    )
