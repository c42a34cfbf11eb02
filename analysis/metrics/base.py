"""What a metric is: a name, a unit, which way is better, one sentence, and one function.

Two kinds. A request metric is computed for each request and summarised over the cohort; a point
metric is one number for a whole point (a share, a rate).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from analysis.load import InFlight
from analysis.stats.beyond import clustered_share
from analysis.view import RequestView

if TYPE_CHECKING:
    import pandas as pd

    from harness.records import PointRecord

__all__ = [
    "Better",
    "Cohort",
    "Declared",
    "PointData",
    "PointMetric",
    "PointValue",
    "RequestMetric",
    "ValueStatus",
    "ms_between",
    "share_metric",
    "share_over",
]

_NS_PER_MS = 1_000_000


class Better(StrEnum):
    """Which direction is an improvement; `neither` for what only describes."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class Cohort(StrEnum):
    """Which requests a request metric's percentiles are over.

    `all`: every arrival of the measurement; a failed one is worse than any finite value.
    `measured`: those that have the value; the others are counted as missing.
    """

    ALL = "all"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class RequestMetric:
    """A number per request; `compute` gives None where it was not or cannot be measured."""

    name: str
    unit: str
    better: Better
    definition: str
    compute: Callable[[RequestView], float | None]
    cohort: Cohort = Cohort.MEASURED
    is_for_incremental_text: bool = False


class ValueStatus(StrEnum):
    """What a point metric's number means."""

    OK = "ok"
    NO_INTERVAL = "no_interval"
    NO_DATA = "no_data"
    # Of a percentile, as in `analysis.percentiles`: it, or its interval's end, lies on a failure.
    NOT_REACHED = "not_reached"
    UPPER_NOT_REACHED = "upper_not_reached"


@dataclass(frozen=True, slots=True)
class PointValue:
    """One number for a point, its 95 % interval where it has one, and what it is over."""

    value: float | None
    lo: float | None
    hi: float | None
    n: int
    missing: int
    status: ValueStatus


@dataclass(frozen=True, slots=True)
class PointData:
    """The measured part of one point.

    cohort: one row per arrival of the measurement phase: recorded stamps, the derived outcome and
        every request metric by name.
    num_planned: arrivals that the plan had in the measurement phase.
    in_flight: over the measurement phase, with the warm-up requests that reach into it; None where
        the phase never ended or nothing was sent.
    wer: what the recogniser found (`analysis.speech.summarise_wer`), or None where nobody listened.
    """

    point: PointRecord
    cohort: pd.DataFrame
    num_planned: int
    in_flight: InFlight | None = None
    wer: Mapping[str, Any] | None = None

    @property
    def measure_s(self) -> float | None:
        """Length of the measurement phase; None where it never ended."""
        begin, end = self.point.warmup_end_ns, self.point.measure_end_ns
        return None if begin is None or end is None or end <= begin else (end - begin) / 1e9


# Of a cohort: which of the requests that a share is over are hits, in order, by their row labels.
Hits = Callable[["pd.DataFrame"], "pd.Series"]


@dataclass(frozen=True, slots=True)
class PointMetric:
    """One number for a whole point. `hits`: what it counts, where it is a share of requests."""

    name: str
    unit: str
    better: Better
    definition: str
    compute: Callable[[PointData], PointValue]
    hits: Hits | None = None


Declared = RequestMetric | PointMetric


def ms_between(begin_ns: int | None, end_ns: int | None) -> float | None:
    """Milliseconds from one stamp to another; None where either was not taken."""
    return None if begin_ns is None or end_ns is None else (end_ns - begin_ns) / _NS_PER_MS


def share_metric(name: str, better: Better, definition: str, hits: Hits) -> PointMetric:
    """A share of requests."""

    def compute(data: PointData) -> PointValue:
        return share_over([data.cohort], hits)

    return PointMetric(name, "share", better, definition, compute, hits)


def share_over(cohorts: Sequence[pd.DataFrame], hits: Hits) -> PointValue:
    """A share over the requests of some seeds, with the interval by which gates judge it.

    Requests that it is not over are missing; no data where nobody could have been counted.
    """
    found = clustered_share([hits(cohort).to_numpy(dtype="float64") for cohort in cohorts])
    num_all = sum(map(len, cohorts))
    if found is None:
        return PointValue(None, None, None, 0, num_all, ValueStatus.NO_DATA)
    missing = num_all - found.n
    return PointValue(found.value, found.lo, found.hi, found.n, missing, ValueStatus.OK)
