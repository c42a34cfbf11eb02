"""How sure a share is: k of n, with an interval that stays honest at 0 and at n.

Sources: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
JASA 22 (1927); C. J. Clopper and E. S. Pearson, Biometrika 26 (1934).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = [
    "Bounds",
    "Share",
    "clopper_pearson",
    "exact_bounds",
    "rule_of_three",
    "score_bounds",
    "wilson",
]

# 97.5 % point of the standard normal distribution.
_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Share:
    """A share of n and its 95 % interval; all None where n is 0."""

    num_hits: int
    n: int
    value: float | None
    lo: float | None
    hi: float | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ends of a share's 95 % interval."""

    lo: float
    hi: float


def wilson(num_hits: int, n: int) -> Share:
    """Wilson's score interval: near the nominal cover for any share, narrower than the exact one.

    Raises:
        ValueError: not 0 <= num_hits <= n.
    """
    _check(num_hits, n)
    if n == 0:
        return Share(0, 0, None, None, None)
    bounds = score_bounds(num_hits, n)
    return Share(num_hits, n, num_hits / n, bounds.lo, bounds.hi)


def score_bounds(num_hits: float, n: float) -> Bounds:
    """The same for counts that need not be whole; n must be positive."""
    share = num_hits / n
    z2 = _Z95 * _Z95
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At the ends the formula gives 0 and 1 up to rounding.
    lo = 0.0 if num_hits <= 0 else max(0.0, centre - half)
    hi = 1.0 if num_hits >= n else min(1.0, centre + half)
    return Bounds(lo, hi)


def clopper_pearson(num_hits: int, n: int) -> Share:
    """The exact interval: covers at least 95 % for every true share. Used where a limit is judged.

    Raises:
        ValueError: not 0 <= num_hits <= n.
    """
    _check(num_hits, n)
    if n == 0:
        return Share(0, 0, None, None, None)
    bounds = exact_bounds(num_hits, n)
    return Share(num_hits, n, num_hits / n, bounds.lo, bounds.hi)


def exact_bounds(num_hits: float, n: float) -> Bounds:
    """The same for counts that need not be whole: of requests worth fewer independent ones.

    n must be positive.
    """
    # Imported here: scipy takes a second to load.
    from scipy.stats import beta

    lo = 0.0 if num_hits <= 0 else float(beta.ppf(0.025, num_hits, n - num_hits + 1))
    hi = 1.0 if num_hits >= n else float(beta.ppf(0.975, num_hits + 1, n - num_hits))
    return Bounds(lo, hi)


def rule_of_three(n: int) -> float:
    """With 0 of n, the true share is below this at 95 % (one-sided; about 3 / n)."""
    if n < 1:
        raise ValueError("0 of 0 says nothing about a share")
    return float(1.0 - 0.05 ** (1.0 / n))


def _check(num_hits: int, n: int) -> None:
    if not 0 <= num_hits <= n:
        raise ValueError(f"{num_hits} of {n} is no share")
