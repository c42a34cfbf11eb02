"""One figure of an engine against the offered rate: points with intervals, and where none is.

Used by the page's charts and by the static figures, so that both draw the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analysis.percentiles import PercentileStatus
from analysis.report.model import EngineView, RateView
from analysis.report.svg import Point
from analysis.report.words import point_value

__all__ = [
    "Curve",
    "Reader",
    "curve",
    "dodged",
    "rate_ticks",
    "read_percentile",
    "read_share",
    "spread_ticks",
]

# Width of a tick's label as a share of the axis.
_LABEL_ROOM = 0.07

Reader = Callable[[RateView], Point | None]


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured points in order of rate, and rates at which the value was not reached.

    segments: a line may join the points of one, and no others: between two lies a rate at which
        nothing was reached or measured.
    """

    segments: tuple[tuple[Point, ...], ...]
    missing: tuple[float, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """All of them in order."""
        return tuple(point for segment in self.segments for point in segment)


def curve(engine: EngineView, read: Reader) -> Curve:
    """Points by rate, each over all seeds of its rate."""
    segments: list[list[Point]] = [[]]
    missing = []
    for view in sorted(engine.pooled, key=lambda view: view.rate_rps):
        found = read(view)
        if found is not None and math.isfinite(found.y):
            segments[-1].append(found)
            continue
        segments.append([])
        if found is not None:
            missing.append(view.rate_rps)
    return Curve(tuple(tuple(each) for each in segments if each), tuple(missing))


def dodged(
    points: Sequence[Point], engine: EngineView, engines: Sequence[EngineView]
) -> tuple[Point, ...]:
    """Points moved sideways by a hair, so that intervals at one rate do not cover each other."""
    share = min(0.008, 0.02 / max(1, len(engines) - 1))
    step = share * max(rate_rps for each in engines for rate_rps in each.rates)
    shift = step * (engine.series - (len(engines) - 1) / 2)
    return tuple(replace(point, x=point.x + shift) for point in points)


def rate_ticks(engines: Sequence[EngineView]) -> tuple[float, ...]:
    """Measured rates to label an axis with, less those whose labels would collide."""
    return spread_ticks([each for engine in engines for each in engine.rates])


def spread_ticks(values: Sequence[float]) -> tuple[float, ...]:
    """From the highest down, values that leave room for each other's labels."""
    ordered = sorted(set(values), reverse=True)
    kept: list[float] = []
    for each in ordered:
        if not kept or kept[-1] - each >= _LABEL_ROOM * ordered[0]:
            kept.append(each)
    return tuple(reversed(kept))


def read_percentile(metric: str, percent: int) -> Reader:
    """A percentile of a request metric; +inf where it was not reached."""

    def read(view: RateView) -> Point | None:
        values = view.metrics.get(metric)
        if values is None:
            return None
        found = values.raw[f"p{percent}"]
        if found["status"] == PercentileStatus.NOT_REACHED:
            return Point(view.rate_rps, math.inf)
        if found["value"] is None:
            return None
        is_open = found["status"] == PercentileStatus.UPPER_NOT_REACHED
        return Point(view.rate_rps, found["value"], found["lo"], found["hi"], is_open)

    return read


def read_share(name: str) -> Reader:
    """A share of a point, in percent."""

    def read(view: RateView) -> Point | None:
        found = point_value(view.raw, name)
        if found is None or found.value is None:
            return None
        lo, hi = (None if end is None else 100 * end for end in (found.lo, found.hi))
        return Point(view.rate_rps, 100 * found.value, lo, hi)

    return read
