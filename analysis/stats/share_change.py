"""Did a share change between two runs of the same requests, and by how much at most?

Newcombe's score interval for paired shares: unlike a bootstrap it has a width where neither side
had a hit, since 0 of 73 on both sides says little about changes of some percent. The requests count
as many independent ones as their differences are worth.

Source: R. G. Newcombe, "Improved confidence intervals for the difference between binomial
proportions based on paired data", Statistics in Medicine 17 (1998), method 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.stats.beyond import least_n
from analysis.stats.bootstrap import Interval, PairedSample
from analysis.stats.dependence import clustering
from analysis.stats.rates import score_bounds

__all__ = ["ShareChange", "share_change"]


@dataclass(frozen=True, slots=True)
class ShareChange:
    """Two shares of the same n requests.

    both: the share of requests that were hits on both sides. inflation: n requests are worth n /
    inflation independent ones.
    """

    first: float
    second: float
    both: float
    n: int
    inflation: float

    @property
    def value(self) -> float:
        return self.second - self.first

    @property
    def interval(self) -> Interval:
        """Of second minus first, 95 %."""
        return self._interval(self.n)

    def needed_n(self, *, limit: float, unseen: float) -> int | None:
        """How many requests would show a rise of more than `limit`, or of at most `unseen`."""

        def tells(n: int) -> bool:
            found = self._interval(n)
            return found.lo > limit or found.hi <= unseen

        return least_n(self.n, tells)

    def _interval(self, n: int) -> Interval:
        effective = n / self.inflation
        of_first = score_bounds(self.first * effective, effective)
        of_second = score_bounds(self.second * effective, effective)
        phi = self._correlation(effective)
        below = _reach(self.second - of_second.lo, of_first.hi - self.first, phi)
        above = _reach(of_second.hi - self.second, self.first - of_first.lo, phi)
        return Interval(self.value - below, self.value + above)

    def _correlation(self, effective: float) -> float:
        """Of the two sides' hits, less Newcombe's correction for few requests; 0 without any."""
        spread = math.sqrt(self.first * (1 - self.first) * self.second * (1 - self.second))
        if spread == 0:
            return 0.0
        shared = self.both - self.first * self.second
        if shared > 0:
            shared = max(0.0, shared - 1 / (2 * effective))
        return shared / spread


def share_change(samples: Sequence[PairedSample]) -> ShareChange | None:
    """How a share changed, over all seeds; None where no request can be compared.

    Args:
        samples: one a seed, of 1 and 0 on both sides.
    """
    kept = [sample for sample in samples if len(sample.first)]
    if not kept:
        return None
    first = np.concatenate([sample.first for sample in kept])
    second = np.concatenate([sample.second for sample in kept])
    return ShareChange(
        first=float(first.mean()),
        second=float(second.mean()),
        both=float((first * second).mean()),
        n=len(first),
        inflation=clustering([sample.second - sample.first for sample in kept]),
    )


def _reach(of_second: float, of_first: float, phi: float) -> float:
    square = of_second**2 - 2 * phi * of_second * of_first + of_first**2
    return math.sqrt(max(0.0, square))
