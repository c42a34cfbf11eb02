"""Did a share change between two runs, and by how much at most?

Newcombe's score intervals, for shares of the same requests and for shares of different ones. Unlike
a bootstrap they have a width where neither side had a hit, since 0 of 73 on both sides says little
about changes of some percent. The requests count as many independent ones as they are worth: of the
same requests by the clusters of their differences, of different ones by those of each side's hits.

Sources: R. G. Newcombe, "Improved confidence intervals for the difference between binomial
proportions based on paired data", and "Interval estimation for the difference between independent
proportions: comparison of eleven methods", both Statistics in Medicine 17 (1998), method 10 of
either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.stats.beyond import ClusteredShare, clustered_share, least_n
from analysis.stats.bootstrap import Interval, PairedSample
from analysis.stats.dependence import clustering
from analysis.stats.rates import Z95, score_bounds

__all__ = ["ShareChange", "share_change", "unpaired_share_change"]

FloatArray = NDArray[np.float64]
# Beyond this many standard errors a p-value is 0 for anybody.
_MOST_Z = 10.0
_NUM_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class ShareChange:
    """Two shares and what they have in common.

    both: the share of requests that were hits on both sides; None where the requests are different
    ones.
    """

    of_first: ClusteredShare
    of_second: ClusteredShare
    both: float | None = None

    @property
    def first(self) -> float:
        return self.of_first.value

    @property
    def second(self) -> float:
        return self.of_second.value

    @property
    def value(self) -> float:
        return self.second - self.first

    @property
    def n(self) -> int:
        """Requests it rests on; of different ones, those of the smaller side."""
        return min(self.of_first.n, self.of_second.n)

    @property
    def interval(self) -> Interval:
        """Of second minus first, 95 %."""
        return self._interval()

    @property
    def p_value(self) -> float:
        """Two-sided: the doubt at which the interval would just leave out 0."""
        if self.value == 0:
            return 1.0
        inside, outside = _MOST_Z, 0.0
        for _ in range(_NUM_HALVINGS):
            middle = (inside + outside) / 2
            found = self._interval(z=middle)
            if found.lo <= 0 <= found.hi:
                inside = middle
            else:
                outside = middle
        return math.erfc(outside / math.sqrt(2))

    def needed_n(self, *, limit: float, unseen: float) -> int | None:
        """How many requests would show a rise of more than `limit`, or of at most `unseen`."""

        def tells(n: int) -> bool:
            found = self._interval(growth=n / self.n)
            return found.lo > limit or found.hi <= unseen

        return least_n(self.n, tells)

    def _interval(self, *, growth: float = 1.0, z: float = Z95) -> Interval:
        """By so many times the requests, with the confidence of z."""
        num_first, num_second = (
            growth * side.n / side.inflation for side in (self.of_first, self.of_second)
        )
        of_first = score_bounds(self.first * num_first, num_first, z=z)
        of_second = score_bounds(self.second * num_second, num_second, z=z)
        phi = self._correlation(num_first)
        below = _reach(self.second - of_second.lo, of_first.hi - self.first, phi)
        above = _reach(of_second.hi - self.second, self.first - of_first.lo, phi)
        return Interval(self.value - below, self.value + above)

    def _correlation(self, effective: float) -> float:
        """Of the two sides' hits, less Newcombe's correction for few requests; 0 without any."""
        spread = math.sqrt(self.first * (1 - self.first) * self.second * (1 - self.second))
        if spread == 0 or self.both is None:
            return 0.0
        shared = self.both - self.first * self.second
        if shared > 0:
            shared = max(0.0, shared - 1 / (2 * effective))
        return shared / spread


def share_change(samples: Sequence[PairedSample]) -> ShareChange | None:
    """How a share of the same requests changed, over all seeds; None where none can be compared.

    Args:
        samples: one a seed, of 1 and 0 on both sides.
    """
    kept = [sample for sample in samples if len(sample.first)]
    if not kept:
        return None
    first = np.concatenate([sample.first for sample in kept])
    second = np.concatenate([sample.second for sample in kept])
    inflation = clustering([sample.second - sample.first for sample in kept])
    of_first, of_second = (
        ClusteredShare(int(hits.sum()), len(hits), inflation, inflation) for hits in (first, second)
    )
    return ShareChange(of_first, of_second, both=float((first * second).mean()))


def unpaired_share_change(
    first: Sequence[FloatArray], second: Sequence[FloatArray]
) -> ShareChange | None:
    """The same of requests that do not correspond to each other; None where a side has none.

    Args:
        first, second: one array a seed, in the order of arrival, of 1 and 0.
    """
    of_first, of_second = clustered_share(first), clustered_share(second)
    if of_first is None or of_second is None:
        return None
    return ShareChange(of_first, of_second)


def _reach(of_second: float, of_first: float, phi: float) -> float:
    square = of_second**2 - 2 * phi * of_second * of_first + of_first**2
    return math.sqrt(max(0.0, square))
