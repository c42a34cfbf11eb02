"""From where on a series has left its beginning behind.

Source: K. P. White, "An effective truncation heuristic for bias reduction in simulation output",
Simulation 69 (1997); MSER-5 after White, Cobb and Spratt (2000).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["SteadyState", "mser5"]

_BATCH = 5
_MIN_BATCHES = 4


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Where to cut: `start` values are best dropped; not `is_reached` if that is over half."""

    start: int
    num_values: int
    is_reached: bool


def mser5(values: NDArray[np.float64]) -> SteadyState | None:
    """The truncation that leaves the mean of the rest best known; None below 20 values.

    Values are averaged in fives; of all cuts d the one with the least variance of the remaining
    batch means over (number left)^2 is chosen. A best cut in the second half means that the series
    had not settled. Failures (+inf) count as the largest finite value.
    """
    num_batches = len(values) // _BATCH
    if num_batches < _MIN_BATCHES:
        return None
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    bounded = np.minimum(values, finite.max())
    means = bounded[: num_batches * _BATCH].reshape(num_batches, _BATCH).mean(axis=1)
    left = np.arange(num_batches, 0, -1)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum(np.square(means)[::-1])[::-1]
    spread = np.maximum(0.0, squares - np.square(sums) / left) / np.square(left)
    # The last few batches alone always look settled.
    cut = int(np.argmin(spread[: num_batches - _MIN_BATCHES + 1]))
    return SteadyState(cut * _BATCH, len(values), cut <= num_batches / 2)
