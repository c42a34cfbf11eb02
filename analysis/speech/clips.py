"""Which clips of a run are heard: drawn by seed, alike for every engine, nothing left out silently.

Candidates are measured requests that the wire ended well. A clip that arrived but holds no sound
stays in and counts as all deletions; a request that failed has no clip and is counted in the
failure rate instead. The draw ranks candidates by a hash of seed, prompt and place in the plan,
not of the engine, so two engines under the same arrivals are heard on the same texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pandas as pd

from engines.outcomes import TransportOutcome
from harness.records import Phase, PointRecord

__all__ = ["ClipChoice", "Selection", "select_clips"]


@dataclass(frozen=True, slots=True)
class ClipChoice:
    """What may be drawn, and how many of it.

    `prompt_ids`, `max_rate_rps` and `point_ids` narrow the candidates; None takes all.
    """

    max_clips_per_engine: int
    seed: int
    prompt_ids: Collection[str] | None = None
    max_rate_rps: float | None = None
    point_ids: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Drawn request ids in plan order, and how many candidates each engine had."""

    request_ids: tuple[str, ...]
    num_candidates: Mapping[str, int]


def select_clips(
    requests: pd.DataFrame, points: Collection[PointRecord], choice: ClipChoice
) -> Selection:
    """Draw up to `max_clips_per_engine` clips of each engine.

    Args:
        requests: the recorded requests table.
        points: of the run.
        choice: limits and seed.
    """
    chosen_points = {
        point.point_id: point
        for point in points
        if (choice.max_rate_rps is None or point.rate_rps <= choice.max_rate_rps)
        and (choice.point_ids is None or point.point_id in choice.point_ids)
    }
    candidates = requests[
        (requests["phase"] == str(Phase.MEASURE))
        & (requests["transport_outcome"] == str(TransportOutcome.OK))
        & requests["point_id"].isin(list(chosen_points))
    ]
    if choice.prompt_ids is not None:
        candidates = candidates[candidates["prompt_id"].isin(list(choice.prompt_ids))]
    engines = candidates["point_id"].map(lambda point_id: chosen_points[point_id].engine)
    places = zip(candidates["point_id"], candidates["prompt_id"], candidates["index"], strict=True)
    ranks = [
        _rank(choice.seed, chosen_points[point_id], prompt_id, int(index))
        for point_id, prompt_id, index in places
    ]
    ranked = candidates.assign(_engine=engines, _rank=ranks).sort_values(["_rank", "request_id"])
    drawn = ranked.groupby("_engine", sort=True).head(choice.max_clips_per_engine)
    in_plan_order = drawn.sort_values(["point_id", "index", "request_id"])
    return Selection(
        request_ids=tuple(in_plan_order["request_id"]),
        num_candidates={str(name): int(count) for name, count in engines.value_counts().items()},
    )


def _rank(seed: int, point: PointRecord, prompt_id: str, index: int) -> str:
    place = f"{seed}|{point.rate_rps!r}|{point.seed}|{index}|{prompt_id}"
    return hashlib.sha256(place.encode()).hexdigest()
