"""One figure of an engine at one rate over all its seeds: what gates judge and reports print.

An average of percentiles is no percentile, and the worst seed is not the engine: the requests of
all seeds are one cohort. From three seeds on the interval comes from resampling seeds and blocks
of requests, below that from order statistics widened for queueing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.percentiles import (
    MIN_N_FOR_INTERVAL,
    Percentile,
    PercentileStatus,
    nearest_rank,
    percentile,
    sort_values,
)
from analysis.stats.bootstrap import interval_over_seeds, quantile_statistic
from analysis.stats.dependence import variance_inflation

__all__ = ["percentile_over_seeds"]


def percentile_over_seeds(by_seed: Sequence[NDArray[np.float64]], percent: int) -> Percentile:
    """A percentile over the requests of some seeds, with its interval where one exists.

    Args:
        by_seed: of each seed its values in the order of the plan, +inf for failures.
        percent: which.
    """
    ordered = sort_values(np.concatenate([np.empty(0), *by_seed]))
    if not len(ordered):
        return percentile(ordered, percent)
    value = float(ordered[nearest_rank(len(ordered), percent) - 1])
    if len(ordered) >= MIN_N_FOR_INTERVAL[percent]:
        interval = interval_over_seeds(by_seed, quantile_statistic(percent))
        if interval is not None:
            return _resampled(value, interval.lo, interval.hi)
    inflation = max(variance_inflation(values, value) for values in by_seed if len(values))
    return percentile(ordered, percent, inflation=inflation)


def _resampled(value: float, lo: float, hi: float) -> Percentile:
    status = PercentileStatus.OK
    if math.isinf(value):
        status = PercentileStatus.NOT_REACHED
    elif math.isinf(hi):
        status = PercentileStatus.UPPER_NOT_REACHED
    return Percentile(_finite(value), _finite(lo), _finite(hi), status)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
