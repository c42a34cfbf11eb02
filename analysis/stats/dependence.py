"""How much less a queue's latencies say than as many independent ones.

Requests behind one another wait for each other, so neighbours in time are alike. At 70 % load the
variance of a percentile is some eight times that of independent values, at 90 % some fifty times,
and an interval that ignores this covers the truth in 40 % or 10 % of runs instead of 95 %.

The inflation is the sum of autocorrelations, estimated on ranks (latencies have no useful
variance) and on "above the percentile" (its clusters decide), whichever is larger, cut off by
Geyer's initial monotone sequence. Where no autocorrelation shows, it is 1.

A share (of failures, of requests above a limit) hangs together by its own hits: `clustering` asks
only whether those come in clusters.

Source: C. J. Geyer, "Practical Markov chain Monte Carlo", Statistical Science 7 (1992).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["MIN_EFFECTIVE", "clustering", "variance_inflation"]

# In standard errors of independent values: one in six such runs is taken for a queue, whose
# interval is then only wider; short runs of a busy queue pass unseen more often with a laxer limit.
_LAG_1_LIMIT = 1.0
# Estimates from one run are too low on average: the long waves of a queue do not fit into it.
_SHORT_RUN_FACTOR = 1.3
# With fewer effective values than this the inflation itself is a guess.
MIN_EFFECTIVE = 20
# For hits, in the same unit: few independent runs may pay for a queue that they do not have.
_CLUSTER_LIMIT = 2.0
# A share is never taken to rest on fewer independent requests than this: with one wave in a whole
# run the estimate has no upper bound of its own.
_MIN_EFFECTIVE_HITS = 6


def variance_inflation(values: NDArray[np.float64], threshold: float) -> float:
    """By how much the variance of a percentile exceeds that of independent values; at least 1.

    Args:
        values: in the order of arrival; +inf for failures.
        threshold: the percentile's value.
    """
    num_values = len(values)
    if num_values < 3:
        return 1.0
    ranks = _mid_ranks(values)
    of_ranks = _autocorrelation([ranks])
    if of_ranks[1] <= _LAG_1_LIMIT / math.sqrt(num_values):
        return 1.0
    is_above = (values > threshold).astype(np.float64)
    return _SHORT_RUN_FACTOR * max(_geyer(of_ranks), _geyer(_autocorrelation([is_above])))


def clustering(hits: Sequence[NDArray[np.float64]]) -> float:
    """By how much the variance of the hits' mean exceeds that of independent ones; at least 1.

    Args:
        hits: one array a seed, in the order of arrival: 1 or 0, or of pairs 1, 0 and -1. They are
            held against the mean of all seeds, so seeds that differ count as a cluster too.
    """
    num_values = sum(map(len, hits))
    if num_values < 3:
        return 1.0
    correlation = _autocorrelation(hits)
    if len(correlation) < 2 or correlation[1] <= _CLUSTER_LIMIT / math.sqrt(num_values):
        return 1.0
    most = max(1.0, num_values / _MIN_EFFECTIVE_HITS)
    return min(most, _SHORT_RUN_FACTOR * _geyer(correlation))


def _mid_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks, equal values sharing their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], dtype=np.float64)


def _autocorrelation(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """At every lag within a part, 1 at lag 0; zeros where the values are all alike."""
    longest = max(map(len, parts))
    size = 1 << (2 * longest - 1).bit_length()
    mean = float(np.concatenate(parts).mean())
    products = np.zeros(longest)
    for part in parts:
        spectrum = np.fft.rfft(part - mean, size)
        products += np.fft.irfft(spectrum * np.conj(spectrum), size)[:longest]
    if products[0] <= 0:
        return np.zeros(longest)
    return np.asarray(products / products[0])


def _geyer(correlation: NDArray[np.float64]) -> float:
    """1 + 2 x the sum of autocorrelations, up to where pairs of them are no longer positive."""
    if correlation[0] == 0:
        return 1.0
    even = correlation[: len(correlation) // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = np.flatnonzero(even <= 0)
    pairs = np.minimum.accumulate(even[: stop[0]] if len(stop) else even)
    return max(1.0, 2.0 * float(pairs.sum()) - 1.0)
