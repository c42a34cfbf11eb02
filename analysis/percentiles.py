"""Percentiles by nearest rank with failures as +inf, and how sure they are.

One rule everywhere: the q-th percentile of n values is the ceil(q n)-th smallest. No interpolation,
so a percentile is always a value that some request had, and +inf needs no special case.

Source: analysis/METRICS.md, "Percentiles and their intervals".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analysis.stats.dependence import MIN_EFFECTIVE

__all__ = [
    "CONFIDENCE",
    "MIN_N_FOR_INTERVAL",
    "Percentile",
    "PercentileStatus",
    "interval_ranks",
    "nearest_rank",
    "percentile",
    "sort_values",
]

CONFIDENCE = 0.95
# The smallest n whose outermost values cover the quantile with 95 %, half of the doubt on each
# side: 0.5^n, 0.95^n, 0.99^n <= 0.025.
MIN_N_FOR_INTERVAL = {50: 6, 95: 72, 99: 368}


class PercentileStatus(StrEnum):
    """What a percentile's numbers mean."""

    OK = "ok"
    NO_INTERVAL = "no_interval"  # too few values for an interval
    NOT_ESTIMABLE = "not_estimable"  # enough values, but they hang together too much for one
    UPPER_NOT_REACHED = "upper_not_reached"  # the interval's upper end lies on a failure
    NOT_REACHED = "not_reached"  # the value itself does
    NO_DATA = "no_data"


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile of a cohort and its 95 % interval; None where there is none."""

    value: float | None
    lo: float | None
    hi: float | None
    status: PercentileStatus


def sort_values(values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Values in order, +inf last.

    Raises:
        ValueError: a NaN; a value that was not measured must be left out and counted.
    """
    array = np.sort(np.asarray(values, dtype=np.float64))
    if len(array) and np.isnan(array[-1]):
        raise ValueError("a percentile of NaN: leave unmeasured values out and count them")
    return array


def nearest_rank(num_values: int, percent: int) -> int:
    """The 1-based rank of a percentile: ceil(percent / 100 x n)."""
    if num_values < 1 or not 0 < percent <= 100:
        raise ValueError(f"no p{percent} of {num_values} values")
    return -(-percent * num_values // 100)


@dataclass(frozen=True, slots=True)
class Ranks:
    """1-based ranks of an interval's ends."""

    lo: int
    hi: int


@lru_cache(maxsize=4096)
def interval_ranks(num_values: int, percent: int) -> Ranks | None:
    """Ranks whose values enclose the true quantile with 95 % confidence, or None below that n.

    Distribution-free: the number of values below the true quantile is binomial (n, q). Each side
    keeps at most half of the doubt.
    """
    if num_values < 1:
        return None
    # Imported here: scipy takes a second to load and most callers never need an interval.
    from scipy.stats import binom

    quantile = percent / 100
    tail = (1 - CONFIDENCE) / 2
    lo = int(binom.ppf(tail, num_values, quantile))
    # P(B <= lo - 1) <= tail, with B the number of values below the quantile.
    while lo >= 1 and binom.cdf(lo - 1, num_values, quantile) > tail:
        lo -= 1
    hi = int(binom.ppf(1 - tail, num_values, quantile)) + 1
    while binom.cdf(hi - 1, num_values, quantile) < 1 - tail:
        hi += 1
    if lo < 1 or hi > num_values:
        return None
    return Ranks(lo, hi)


def percentile(ordered: NDArray[np.float64], percent: int, *, inflation: float = 1.0) -> Percentile:
    """A percentile of sorted values (see `sort_values`), with its interval where one exists.

    Args:
        ordered: in rising order, +inf last.
        percent: which.
        inflation: of its variance over that of independent values (`stats.dependence`); 1 gives
            the plain binomial interval.
    """
    num_values = len(ordered)
    if num_values == 0:
        return Percentile(None, None, None, PercentileStatus.NO_DATA)
    value = float(ordered[nearest_rank(num_values, percent) - 1])
    ranks = _inflated_ranks(num_values, percent, inflation)
    lo = _finite(float(ordered[ranks.lo - 1])) if ranks else None
    hi = _finite(float(ordered[ranks.hi - 1])) if ranks else None
    if math.isinf(value):
        return Percentile(None, lo, None, PercentileStatus.NOT_REACHED)
    if ranks is None:
        has_enough = interval_ranks(num_values, percent) is not None
        status = PercentileStatus.NOT_ESTIMABLE if has_enough else PercentileStatus.NO_INTERVAL
        return Percentile(value, None, None, status)
    status = PercentileStatus.OK if hi is not None else PercentileStatus.UPPER_NOT_REACHED
    return Percentile(value, lo, hi, status)


def _inflated_ranks(num_values: int, percent: int, inflation: float) -> Ranks | None:
    """The ranks of as many independent values as these are worth, spread over all of them."""
    if inflation <= 1.0:
        return interval_ranks(num_values, percent)
    num_effective = int(num_values / inflation)
    ranks = interval_ranks(num_effective, percent)
    if ranks is None or num_effective < MIN_EFFECTIVE:
        return None
    scale = num_values / num_effective
    return Ranks(max(1, int(ranks.lo * scale)), min(num_values, math.ceil(ranks.hi * scale)))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
