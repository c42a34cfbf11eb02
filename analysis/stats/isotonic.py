"""A curve that can only fall, fitted to shares that do not quite.

Source: R. E. Barlow et al., "Statistical Inference under Order Restrictions" (1972): the
pool-adjacent-violators algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["falling_fit"]


def falling_fit(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-increasing sequence nearest to `values` by weighted squares."""
    blocks: list[list[float]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        blocks.append([value, weight, 1.0])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            mean_b, weight_b, length_b = blocks.pop()
            mean_a, weight_a, length_a = blocks.pop()
            total = weight_a + weight_b
            mean = (mean_a * weight_a + mean_b * weight_b) / total
            blocks.append([mean, total, length_a + length_b])
    return [mean for mean, _, length in blocks for _ in range(int(length))]
