"""How sure a difference of percentiles is, between runs of the same arrivals and prompts.

Two levels are resampled: whole seeds (if there are several), and inside each seed blocks of
neighbouring requests, because requests that queue behind each other are alike. The same requests
are drawn from both sides, so that what both have in common (the prompts, the bursts) cancels.

Failures are +inf. A percentile that lands on one is +inf too, and a difference of two such is 0:
both did not get there.

Sources: B. Efron, R. Tibshirani, "An Introduction to the Bootstrap" (1993); H. R. Künsch, "The
jackknife and the bootstrap for general stationary observations", Annals of Statistics 17 (1989).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.stats.dependence import variance_inflation

__all__ = [
    "NOTHING_TO_COMPARE",
    "Difference",
    "Interval",
    "PairedSample",
    "Statistic",
    "interval_over_seeds",
    "paired_difference",
    "quantile_statistic",
    "unpaired_difference",
]

FloatArray = NDArray[np.float64]
# [resamples, n] -> [resamples]
Statistic = Callable[[FloatArray], FloatArray]

NUM_RESAMPLES = 1000
_MIN_BLOCKS = 4
_MIN_SEEDS = 3


@dataclass(frozen=True, slots=True)
class PairedSample:
    """One seed's values on both sides, aligned by request, in the order of arrival."""

    first: FloatArray
    second: FloatArray


@dataclass(frozen=True, slots=True)
class Difference:
    """Second minus first, with its 95 % interval and a two-sided p-value.

    Values may be +-inf: one side does not reach the percentile at all. None: nothing to compare.
    num_pairs: requests it rests on (of unpaired sides: of the smaller one).
    """

    first: float | None
    second: float | None
    value: float | None
    lo: float | None
    hi: float | None
    p_value: float | None
    num_pairs: int
    num_seeds: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.lo is not None and self.hi is not None and (self.lo > 0 or self.hi < 0)


NOTHING_TO_COMPARE = Difference(None, None, None, None, None, None, 0, 0)


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval; ends may be +inf."""

    lo: float
    hi: float


def quantile_statistic(percent: int) -> Statistic:
    """The percentile by nearest rank, over the last axis."""

    def statistic(values: FloatArray) -> FloatArray:
        rank = -(-percent * values.shape[-1] // 100) - 1
        return np.asarray(np.partition(values, rank, axis=-1)[..., rank])

    return statistic


def paired_difference(
    samples: Sequence[PairedSample],
    statistic: Statistic,
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> Difference:
    """The difference of a statistic over all seeds together, by a hierarchical block bootstrap.

    Args:
        samples: one a seed; both sides of one sample have the same length.
        statistic: of the pooled values.
        seed: of the resampling; same seed, same interval.
        num_resamples: more give a steadier interval.
    """
    samples = [sample for sample in samples if len(sample.first)]
    if not samples:
        return NOTHING_TO_COMPARE
    first = np.concatenate([sample.first for sample in samples])
    second = np.concatenate([sample.second for sample in samples])
    random = np.random.default_rng(seed)
    draws = _draw(samples, random, num_resamples)
    at_first, at_second = statistic(first[draws]), statistic(second[draws])
    return _difference(
        float(statistic(first[np.newaxis])[0]),
        float(statistic(second[np.newaxis])[0]),
        _minus(at_second, at_first),
        num_pairs=len(first),
        num_seeds=len(samples),
    )


def unpaired_difference(
    first: Sequence[FloatArray],
    second: Sequence[FloatArray],
    statistic: Statistic,
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> Difference:
    """As `paired_difference`, for runs whose requests do not correspond to each other."""
    random = np.random.default_rng(seed)
    sides = []
    for side in (first, second):
        kept = [PairedSample(values, values) for values in side if len(values)]
        if not kept:
            return NOTHING_TO_COMPARE
        values = np.concatenate([sample.first for sample in kept])
        whole = float(statistic(values[np.newaxis])[0])
        sides.append((whole, statistic(values[_draw(kept, random, num_resamples)])))
    (a, at_a), (b, at_b) = sides
    return _difference(
        a,
        b,
        _minus(at_b, at_a),
        num_pairs=min(sum(map(len, first)), sum(map(len, second))),
        num_seeds=min(len(first), len(second)),
    )


def interval_over_seeds(
    values: Sequence[FloatArray],
    statistic: Statistic,
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval | None:
    """The interval of a statistic over several seeds; None below three, where seeds cannot tell."""
    kept = [PairedSample(each, each) for each in values if len(each)]
    if len(kept) < _MIN_SEEDS:
        return None
    pooled = np.concatenate([sample.first for sample in kept])
    random = np.random.default_rng(seed)
    ordered = np.sort(statistic(pooled[_draw(kept, random, num_resamples)]))
    return Interval(*_ends(ordered))


# -- resampling -----------------------------------------------------------------------------------


def _draw(
    samples: Sequence[PairedSample], random: np.random.Generator, num_resamples: int
) -> NDArray[np.int64]:
    """Row indices into the pooled values, [num_resamples, n].

    For each seed's place a seed is drawn, and from it circular blocks, as many rows as the place
    had; so every resample has the size of the whole.
    """
    lengths = np.array([len(sample.first) for sample in samples])
    starts = np.cumsum(lengths) - lengths
    block = max(_block_length(sample) for sample in samples)
    parts = []
    for place in lengths:
        chosen = random.integers(0, len(samples), num_resamples)
        length = lengths[chosen][:, np.newaxis]
        places = random.random((num_resamples, -(-place // block))) * length
        rows = places.astype(np.int64)
        if block > 1:
            spread = (rows[:, :, np.newaxis] + np.arange(block)) % length[:, :, np.newaxis]
            rows = spread.reshape(num_resamples, -1)[:, :place]
        parts.append(rows + starts[chosen][:, np.newaxis])
    return np.concatenate(parts, axis=1)


def _block_length(sample: PairedSample) -> int:
    """Long enough to hold what hangs together, short enough that there are some blocks."""
    length = len(sample.first)
    inflation = max(
        variance_inflation(values, float(np.median(values)))
        for values in (sample.first, sample.second)
    )
    wanted = math.ceil(max(length ** (1 / 3) if inflation > 1 else 1, 2 * (inflation - 1)))
    return max(1, min(wanted, length // _MIN_BLOCKS or 1))


def _minus(second: FloatArray, first: FloatArray) -> FloatArray:
    both = np.isinf(second) & np.isinf(first)
    with np.errstate(invalid="ignore"):
        return np.where(both, 0.0, second - first)


def _difference(
    first: float, second: float, differences: FloatArray, *, num_pairs: int, num_seeds: int
) -> Difference:
    ordered = np.sort(differences)
    count = len(ordered)
    lo, hi = _ends(ordered)
    below = (np.count_nonzero(ordered <= 0) + 1) / (count + 1)
    above = (np.count_nonzero(ordered >= 0) + 1) / (count + 1)
    value = 0.0 if math.isinf(first) and math.isinf(second) else second - first
    return Difference(
        first=first,
        second=second,
        value=value,
        lo=lo,
        hi=hi,
        p_value=float(min(1.0, 2 * min(below, above))),
        num_pairs=num_pairs,
        num_seeds=num_seeds,
    )


def _ends(ordered: FloatArray) -> tuple[float, float]:
    """The 2.5 % and 97.5 % points."""
    count = len(ordered)
    return float(ordered[math.floor(0.025 * count)]), float(ordered[math.ceil(0.975 * count) - 1])
