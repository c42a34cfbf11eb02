"""Which share of requests is beyond a limit, and does that settle whether too many are?

"p95 is at most 500 ms" says the same as "at most 5 % of requests take longer than 500 ms", and the
second is a count: 11 of 41 refute it, which no interval of p95 from 41 values could. Failures are
+inf and so above every limit.

The interval is the exact one of Clopper and Pearson, for as many independent requests as these are
worth (`dependence.clustering` of the hits). Where a limit has hardly anything beyond it, clusters
cannot be seen there, and 75 requests of a busy queue without one above the limit are often a lull
and not 75 witnesses. For the upper end clusters are then looked for at the nearest level that a
fifth of the requests is beyond, unless the limit is out of reach from there: the waits of a queue
fall off exponentially, so its mean excess over that level says how far a lull can deceive.

False answers and power are in METRICS.md, measured by tests/analysis/stats/test_beyond.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.stats.dependence import clustering
from analysis.stats.rates import exact_bounds

__all__ = ["MOST_NEEDED", "ClusteredShare", "clustered_share", "least_n", "share_above"]

FloatArray = NDArray[np.float64]
_LEAST_SEEN = 0.2
# How much of what is allowed the tail of a lull may leave beyond a limit that is out of reach.
# A lull underrates the tail it is part of; this is by simulation.
_OUT_OF_REACH = 0.1
# More than anybody sends to settle one rule.
MOST_NEEDED = 20_000


@dataclass(frozen=True, slots=True)
class ClusteredShare:
    """num_hits of n with the 95 % interval of the share.

    inflation: n requests are worth n / inflation independent ones, by the clusters of the hits.
    inflation_above: the same for the upper end, by what may hide in a lull; at least `inflation`.
    """

    num_hits: int
    n: int
    inflation: float
    inflation_above: float

    @property
    def value(self) -> float:
        return self.num_hits / self.n

    @property
    def lo(self) -> float:
        return self._lo(self.n)

    @property
    def hi(self) -> float:
        return self._hi(self.n)

    def needed_n(self, allowed: float) -> int | None:
        """How many requests would leave `allowed` outside, if this share and clustering stayed.

        None: the share is so near to it that MOST_NEEDED would not.
        """
        return least_n(self.n, lambda n: self._lo(n) > allowed or self._hi(n) <= allowed)

    def _lo(self, n: int) -> float:
        effective = n / self.inflation
        return exact_bounds(self.value * effective, effective).lo

    def _hi(self, n: int) -> float:
        effective = n / self.inflation_above
        return exact_bounds(self.value * effective, effective).hi


def least_n(n: int, tells: Callable[[int], bool]) -> int | None:
    """The least number of requests from n on that tells; None: not even MOST_NEEDED do."""
    too_few = enough = n
    while not tells(enough):
        if enough >= MOST_NEEDED:
            return None
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if tells(middle) else (middle, enough)
    return enough


def clustered_share(hits: Sequence[FloatArray]) -> ClusteredShare | None:
    """The share of hits over all seeds; None where there is no request.

    Args:
        hits: one array a seed, in the order of arrival, of 1 and 0.
    """
    kept = [each for each in hits if len(each)]
    if not kept:
        return None
    inflation = clustering(kept)
    num_hits = int(sum(each.sum() for each in kept))
    return ClusteredShare(num_hits, sum(map(len, kept)), inflation, inflation)


def share_above(
    values: Sequence[FloatArray], limit: float, *, allowed: float
) -> ClusteredShare | None:
    """The share of values above a limit, over all seeds; None where there is no value.

    Args:
        values: one array a seed, in the order of arrival; +inf for failures.
        limit: what is on it is not above it.
        allowed: which share may be.
    """
    kept = [each for each in values if len(each)]
    found = clustered_share(_above(kept, limit))
    if found is None:
        return None
    pooled = np.concatenate(kept)
    level = _seen_level(pooled)
    if level >= limit:  # enough is beyond the limit itself
        return found
    near = clustered_share(_above(kept, level))
    assert near is not None
    if near.inflation <= found.inflation or _is_out_of_reach(pooled, near, level, limit, allowed):
        return found
    return replace(found, inflation_above=near.inflation)


def _above(values: Sequence[FloatArray], limit: float) -> list[FloatArray]:
    return [(each > limit).astype(np.float64) for each in values]


def _seen_level(values: FloatArray) -> float:
    """The highest level with at least a fifth of the values above it, as far as none are equal."""
    least = math.ceil(_LEAST_SEEN * len(values))
    return float(np.sort(values)[max(0, len(values) - least - 1)])


def _is_out_of_reach(
    values: FloatArray, near: ClusteredShare, level: float, limit: float, allowed: float
) -> bool:
    """Whether few enough pass the limit by an exponential tail that starts at `level`.

    Its mean and the share above the level are taken at their upper ends, with as many independent
    values as these are worth.
    """
    # Imported here: scipy takes a second to load.
    from scipy.stats import chi2

    above = values[values > level]
    if not len(above) or not np.isfinite(above).all():
        return False
    freedom = 2 * len(above) / near.inflation
    mean = float((above - level).mean()) * freedom / float(chi2.ppf(0.025, freedom))
    return near.hi * math.exp(-(limit - level) / mean) <= _OUT_OF_REACH * allowed
