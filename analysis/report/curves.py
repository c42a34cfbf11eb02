"""One figure of an engine against the offered rate: points with intervals, and where none is.

Used by the page's charts and by the static figures, so that both draw the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analysis.report.model import EngineView, PointView
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

Reader = Callable[[PointView], Point | None]


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured points in order of rate, and rates at which the value was not reached."""

    points: tuple[Point, ...]
    missing: tuple[float, ...]


def curve(engine: EngineView, read: Reader) -> Curve:
    """Points by rate. Several seeds of one rate: their median, with their range as interval.

    A rate counts as not reached when at least half of its seeds did not reach the value: the
    median over seeds, failures as worse than any number, is then a failure.
    """
    points, missing = [], []
    for rate_rps in engine.rates:
        found = [value for point in engine.at(rate_rps) if (value := read(point)) is not None]
        finite = sorted((value for value in found if math.isfinite(value.y)), key=lambda p: p.y)
        if found and 2 * len(finite) <= len(found):
            missing.append(rate_rps)
        elif len(finite) == 1:
            points.append(finite[0])
        elif finite:
            middle = finite[(len(finite) - 1) // 2].y
            points.append(Point(rate_rps, middle, finite[0].y, finite[-1].y))
    return Curve(tuple(points), tuple(missing))


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

    def read(point: PointView) -> Point | None:
        view = point.metrics.get(metric)
        if view is None:
            return None
        found = view.raw[f"p{percent}"]
        if found["status"] == "not_reached":
            return Point(point.rate_rps, math.inf)
        if found["value"] is None:
            return None
        is_open = found["status"] == "upper_not_reached"
        return Point(point.rate_rps, found["value"], found["lo"], found["hi"], is_open)

    return read


def read_share(name: str) -> Reader:
    """A share of a point, in percent."""

    def read(point: PointView) -> Point | None:
        found = point_value(point.raw, name)
        if found is None or found.value is None:
            return None
        lo, hi = (None if end is None else 100 * end for end in (found.lo, found.hi))
        return Point(point.rate_rps, 100 * found.value, lo, hi)

    return read
