"""Numbers as people read them: one rule for every report, so that no two pages disagree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from analysis.metrics import PointValue, ValueStatus
from analysis.number_words import NOT_MEASURED, count, figure, number, rate, share, share_of
from analysis.percentiles import MIN_N_FOR_INTERVAL, PercentileStatus, nearest_rank
from analysis.report.model import Cell, Tone

__all__ = [
    "NOT_MEASURED",
    "count",
    "interval_share",
    "metric_words",
    "minute",
    "num_hits",
    "number",
    "offered_note",
    "percentile_note",
    "point_value",
    "rate",
    "share",
    "share_cell",
    "share_of",
    "value_cell",
    "with_note",
]

# A Poisson plan of a short phase holds more or fewer arrivals than its rate says.
_OFFERED_TOLERANCE = 0.05
_ABBREVIATIONS = ("ttfa", "ttfb", "ttfp", "wer")


def metric_words(name: str) -> str:
    """`audible_ttfa` as a text has it: `audible TTFA`."""
    words = name.split("_")
    return " ".join(word.upper() if word in _ABBREVIATIONS else word for word in words)


def interval_share(lo: float | None, hi: float | None) -> str:
    """A 95 % interval of a share, its ends to two digits, or that there is none."""
    if lo is None or hi is None:
        return "no interval"
    return f"{_two_digits(100 * lo)}–{_two_digits(100 * hi)} %"


def _two_digits(percent: float) -> str:
    if 99 < percent < 100:  # what is not all of them must not look like it
        return f"{min(percent, 99.9):.1f}"
    return f"{percent:.0f}" if percent >= 10 else figure(percent, 2)


def offered_note(rate_rps: float, measured: Mapping[str, Any]) -> str:
    """What was offered, where the plan's own number of arrivals makes it another rate."""
    offered = measured.get("planned_rps")
    if offered is None or abs(offered / rate_rps - 1) <= _OFFERED_TOLERANCE:
        return ""
    return f"{rate(offered)} offered"


def share_cell(found: PointValue | None) -> Cell:
    """A share of a point with its interval."""
    if found is None or found.value is None:
        return Cell(NOT_MEASURED)
    return Cell(share(found.value), found.value, interval_share(found.lo, found.hi))


def num_hits(found: PointValue) -> int:
    """How many of n a share is; metrics.json has the share alone."""
    return round((found.value or 0.0) * found.n)


def value_cell(found: PointValue | None, unit: str) -> Cell:
    """One number of a point with its interval and n."""
    if found is None or found.status is ValueStatus.NO_DATA:
        return Cell(NOT_MEASURED)
    if found.value is None:
        return Cell("not reached", note=f"n = {found.n}", tone=Tone.BAD)
    upper = "not reached" if found.hi is None else _end(found.hi)
    interval = "" if found.lo is None else f"{_end(found.lo)}–{upper}, "
    return Cell(number(found.value, unit), found.value, f"{interval}n = {found.n}")


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
        return f"no interval (n < {MIN_N_FOR_INTERVAL[percent]})"
    if found["status"] == PercentileStatus.NOT_ESTIMABLE:
        return "no interval (correlated)"
    if metric["unit"] == "share" and found["hi"] is not None:
        return interval_share(found["lo"], found["hi"])
    upper = "not reached" if found["hi"] is None else _end(found["hi"])
    dash = " to " if found["lo"] < 0 else "–"
    return f"{_end(found['lo'])}{dash}{upper}"


def _end(value: float) -> str:
    """An interval's end: known to fewer digits than the value inside it."""
    return f"{value:.0f}" if abs(value) >= 100 else figure(value, 3)


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
