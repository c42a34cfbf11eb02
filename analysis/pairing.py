"""Which request of one run corresponds to which of another.

The same scenario and seed give the same arrivals and prompts whatever the engine, so requests are
paired by rate, seed and place in the plan; that the prompts agree is checked, not assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.evidence import PointEvidence
from analysis.metrics import PointMetric, registry
from analysis.stats.bootstrap import (
    Difference,
    PairedSample,
    Statistic,
    paired_difference,
    unpaired_difference,
)
from analysis.stats.share_change import ShareChange, share_change, unpaired_share_change

__all__ = [
    "PointPair",
    "Values",
    "change_of_share",
    "difference_of",
    "metric_values",
    "pair_points",
    "share_values",
    "text_wait_values",
    "unpaired_change_of_share",
    "unpaired_difference_of",
]

FloatArray = NDArray[np.float64]
# Of a point: values by place in the plan.
Values = Callable[[PointEvidence], dict[int, float]]


@dataclass(frozen=True, slots=True)
class PointPair:
    """Two points of one rate and seed. `has_same_prompts`: place by place, as far as both go."""

    first: PointEvidence
    second: PointEvidence
    has_same_prompts: bool


def pair_points(first: Sequence[PointEvidence], second: Sequence[PointEvidence]) -> list[PointPair]:
    """Pair points of one rate by their seed; seeds that only one side has are left out."""
    by_seed = {point.seed: point for point in second}
    return [
        PointPair(point, by_seed[point.seed], _has_same_prompts(point, by_seed[point.seed]))
        for point in first
        if point.seed in by_seed
    ]


def _has_same_prompts(first: PointEvidence, second: PointEvidence) -> bool:
    ours, theirs = first.prompts_by_index(), second.prompts_by_index()
    shared = ours.keys() & theirs.keys()
    return bool(shared) and all(ours[index] == theirs[index] for index in shared)


def metric_values(name: str) -> Values:
    """A request metric, failures as +inf where they count."""
    return lambda point: point.by_index(name)


def text_wait_values(point: PointEvidence) -> dict[int, float]:
    """From the end of the text to the first sound, for text in pieces and for whole text.

    Whole text ends when it is sent, so its wait is `audible_ttfa_from_send`.
    """
    is_incremental = bool(point.cohort["is_incremental"].fillna(False).any())
    return point.by_index("final_text_to_audible" if is_incremental else "audible_ttfa_from_send")


def share_values(name: str) -> Values:
    """1 or 0 per request that a share is over."""
    declared = registry()[name]
    assert isinstance(declared, PointMetric)
    assert declared.hits is not None
    hits_of = declared.hits

    def values(point: PointEvidence) -> dict[int, float]:
        hits = hits_of(point.cohort)
        places = point.cohort.loc[hits.index, "index"]
        return dict(zip(places.tolist(), hits.astype(float).tolist(), strict=True))

    return values


def difference_of(
    pairs: Sequence[PointPair], values: Values, statistic: Statistic, *, seed: int = 0
) -> Difference:
    """Second minus first over all seeds, with its interval, request by request.

    Requests that lack the value on either side are left out.
    """
    return paired_difference(_aligned(pairs, values), statistic, seed=seed)


def unpaired_difference_of(
    first: Sequence[PointEvidence],
    second: Sequence[PointEvidence],
    values: Values,
    statistic: Statistic,
    *,
    seed: int = 0,
) -> Difference:
    """The same of points whose requests do not correspond to each other."""
    return unpaired_difference(
        _in_order(first, values), _in_order(second, values), statistic, seed=seed
    )


def change_of_share(pairs: Sequence[PointPair], name: str) -> ShareChange | None:
    """How a share changed over all seeds, with an interval that has a width at 0 of n too."""
    return share_change(_aligned(pairs, share_values(name)))


def unpaired_change_of_share(
    first: Sequence[PointEvidence], second: Sequence[PointEvidence], name: str
) -> ShareChange | None:
    """The same of points whose requests do not correspond to each other."""
    values = share_values(name)
    return unpaired_share_change(_in_order(first, values), _in_order(second, values))


def _aligned(pairs: Sequence[PointPair], values: Values) -> list[PairedSample]:
    samples = []
    for pair in pairs:
        ours, theirs = values(pair.first), values(pair.second)
        shared = sorted(ours.keys() & theirs.keys())
        samples.append(
            PairedSample(
                np.array([ours[index] for index in shared], dtype=np.float64),
                np.array([theirs[index] for index in shared], dtype=np.float64),
            )
        )
    return samples


def _in_order(points: Sequence[PointEvidence], values: Values) -> list[FloatArray]:
    found = [values(point) for point in points]
    return [np.array([each[i] for i in sorted(each)], dtype=np.float64) for each in found]
