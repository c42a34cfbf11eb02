"""One figure of an engine at a rate, over all its seeds, with an interval fit to be judged by.

Percentiles: over the pooled requests; from three seeds on the interval comes from resampling seeds
and blocks of requests, below that from order statistics widened for queueing. Shares: exact
(Clopper-Pearson) over the pooled requests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.evidence import PointEvidence
from analysis.metrics import PointMetric, registry
from analysis.pairing import share_values
from analysis.percentiles import MIN_N_FOR_INTERVAL, PercentileStatus
from analysis.pooling import percentile_over_seeds
from analysis.stats.rates import clopper_pearson

__all__ = ["Estimate", "estimate"]

_SHARES = ("underrun_rate", "failure_rate")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure; +inf is "not reached", None "not measured". `why`: what is missing, in words."""

    value: float | None
    lo: float | None
    hi: float | None
    n: int
    percent: int | None = None
    why: str = ""

    def needed_n(self, limit: float) -> int | None:
        """About how many requests would put the interval on one side of `limit`."""
        if self.value is None or not self.n:
            return None
        if self.lo is None or self.hi is None:
            least = MIN_N_FOR_INTERVAL.get(self.percent or 0)
            return least if least is not None and self.n < least else None
        half, distance = (self.hi - self.lo) / 2, abs(self.value - limit)
        if not math.isfinite(half) or not math.isfinite(distance) or distance == 0:
            return None
        return math.ceil(self.n * max(1.0, half / distance) ** 2)


def estimate(
    points: Sequence[PointEvidence],
    metric: str,
    percent: int | None,
    *,
    wer: Mapping[str, Any] | None = None,
) -> Estimate:
    """One figure over the seeds of one engine at one rate.

    Args:
        points: of that engine and rate, one a seed.
        metric: its name.
        percent: of a request metric; None for a figure of a whole point.
        wer: the engine's, over all its rates: clips are drawn per engine, not per rate.
    """
    if percent is not None:
        return _percentile(points, metric, percent)
    if metric in _SHARES:
        return _share(points, metric)
    if metric == "wer":
        return _wer(wer)
    return _of_points(points, metric)


def _percentile(points: Sequence[PointEvidence], metric: str, percent: int) -> Estimate:
    by_seed = [point.values(metric).values for point in points]
    n = sum(map(len, by_seed))
    found = percentile_over_seeds(by_seed, percent)
    if found.status is PercentileStatus.NO_DATA:
        missing = sum(point.values(metric).missing for point in points)
        return Estimate(None, None, None, 0, percent, f"{missing} requests without it")
    value = math.inf if found.value is None else found.value
    if found.status in (PercentileStatus.NO_INTERVAL, PercentileStatus.NOT_ESTIMABLE):
        why = (
            f"p{percent} of {n} values"
            if found.status is PercentileStatus.NO_INTERVAL
            else "requests queue behind each other; run more seeds"
        )
        return Estimate(value, None, None, n, percent, why)
    if math.isinf(value) and found.lo is None and n < MIN_N_FOR_INTERVAL[percent]:
        return Estimate(value, None, None, n, percent, "not reached")
    lo = math.inf if found.lo is None else found.lo
    hi = math.inf if found.hi is None else found.hi
    return Estimate(value, lo, hi, n, percent)


def _share(points: Sequence[PointEvidence], metric: str) -> Estimate:
    hits = [value for point in points for value in share_values(metric)(point).values()]
    found = clopper_pearson(int(sum(hits)), len(hits))
    why = "" if hits else "no request could have been counted"
    return Estimate(found.value, found.lo, found.hi, found.n, None, why)


def _wer(found: Mapping[str, Any] | None) -> Estimate:
    if found is None or found.get("value") is None:
        why = "nobody listened" if found is None else str(found.get("reason") or "no clip")
        return Estimate(None, None, None, 0, None, why)
    return Estimate(
        found["value"], found.get("lo"), found.get("hi"), found["n"], None, "too few clips"
    )


def _of_points(points: Sequence[PointEvidence], metric: str) -> Estimate:
    """Any other figure of a point: the worst seed, with that seed's interval."""
    declared = registry()[metric]
    assert isinstance(declared, PointMetric)
    found = [point.summary["metrics"][metric] for point in points]
    measured = [each for each in found if each["value"]["value"] is not None]
    if not measured:
        return Estimate(None, None, None, 0, None, "no point has it")
    is_lower = declared.better.value != "higher"
    pick = max if is_lower else min
    worst = pick(measured, key=lambda each: each["value"]["value"])
    value = worst["value"]
    return Estimate(
        value["value"], value["lo"], value["hi"], worst["n"], None, "it has no interval"
    )
