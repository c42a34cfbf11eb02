"""How sure a share is: k of n, with an interval that stays honest at 0 and at n.

Sources: C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in
the case of the binomial", Biometrika 26 (1934); E. B. Wilson, "Probable inference, the law of
succession, and statistical inference", JASA 22 (1927).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Z95", "Bounds", "exact_bounds", "score_bounds"]

# 97.5 % point of the standard normal distribution.
Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ends of a share's interval."""

    lo: float
    hi: float


def exact_bounds(num_hits: float, n: float) -> Bounds:
    """Clopper and Pearson's 95 % interval: covers at least that for every true share.

    Args:
        num_hits, n: need not be whole: of requests worth fewer independent ones. n is positive.
    """
    # Imported here: scipy takes a second to load.
    from scipy.stats import beta

    lo = 0.0 if num_hits <= 0 else float(beta.ppf(0.025, num_hits, n - num_hits + 1))
    hi = 1.0 if num_hits >= n else float(beta.ppf(0.975, num_hits + 1, n - num_hits))
    return Bounds(lo, hi)


def score_bounds(num_hits: float, n: float, *, z: float = Z95) -> Bounds:
    """Wilson's score interval, what Newcombe's intervals of a difference are made of.

    Args:
        num_hits, n: as for `exact_bounds`.
        z: normal quantile of its confidence.
    """
    share = num_hits / n
    z2 = z * z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At the ends the formula gives 0 and 1 up to rounding.
    lo = 0.0 if num_hits <= 0 else max(0.0, centre - half)
    hi = 1.0 if num_hits >= n else min(1.0, centre + half)
    return Bounds(lo, hi)
