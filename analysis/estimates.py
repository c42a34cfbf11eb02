"""One figure of an engine at a rate, over all its seeds, with an interval fit to be judged by.

Percentiles and shares as `pooling.py` and `stats/beyond.py` give them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.evidence import PointEvidence
from analysis.metrics import Better, PointMetric, registry
from analysis.percentiles import PercentileStatus
from analysis.pooling import percentile_over_seeds
from analysis.stats.beyond import ClusteredShare, clustered_share

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure; +inf is "not reached", None "not measured". `why`: what is missing, in words.

    share: the counts behind it, where it is a share of requests.
    """

    value: float | None
    lo: float | None
    hi: float | None
    n: int
    why: str = ""
    share: ClusteredShare | None = None


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
    if metric == "wer":
        return _wer(wer)
    declared = registry()[metric]
    assert isinstance(declared, PointMetric)
    if declared.hits is not None:
        return _share([declared.hits(point.cohort) for point in points])
    return _of_points(points, declared)


def _percentile(points: Sequence[PointEvidence], metric: str, percent: int) -> Estimate:
    values = [point.values(metric) for point in points]
    n = sum(len(each.values) for each in values)
    found = percentile_over_seeds([each.values for each in values], percent)
    if found.status is PercentileStatus.NO_DATA:
        missing = sum(each.missing for each in values)
        return Estimate(None, None, None, 0, f"{missing} requests without it")
    value = math.inf if found.value is None else found.value
    hi = math.inf if found.lo is not None and found.hi is None else found.hi
    return Estimate(value, found.lo, hi, n)


def _share(hits: Sequence[pd.Series]) -> Estimate:
    found = clustered_share([each.to_numpy(dtype=np.float64) for each in hits])
    if found is None:
        return Estimate(None, None, None, 0, "no request could have been counted")
    return Estimate(found.value, found.lo, found.hi, found.n, share=found)


def _wer(found: Mapping[str, Any] | None) -> Estimate:
    if found is None or found.get("value") is None:
        why = "nobody listened" if found is None else str(found.get("reason") or "no clip")
        return Estimate(None, None, None, 0, why)
    return Estimate(found["value"], found.get("lo"), found.get("hi"), found["n"], "too few clips")


def _of_points(points: Sequence[PointEvidence], declared: PointMetric) -> Estimate:
    """Any other figure of a point: the worst seed, with that seed's interval."""
    found = [point.summary["metrics"][declared.name] for point in points]
    measured = [each for each in found if each["value"]["value"] is not None]
    if not measured:
        return Estimate(None, None, None, 0, "no point has it")
    pick = min if declared.better is Better.HIGHER else max
    worst = pick(measured, key=lambda each: each["value"]["value"])
    value = worst["value"]
    return Estimate(value["value"], value["lo"], value["hi"], worst["n"], "it has no interval")
