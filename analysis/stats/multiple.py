"""When several differences are looked at, one of them will look real by chance.

Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
Statistics 6 (1979).
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["holm"]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the same order; below 0.05 stays below it whatever else was tested."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, running)
    return adjusted
