"""How long each stage takes, as measured: the running percentile of its last steps."""

from __future__ import annotations

from reference_engine.batch import NUM_STAGES, Stage
from reference_engine.clock import NS_PER_MS
from reference_engine.config import Reserve

__all__ = ["Reserves"]

_REFRESH_EVERY = 8  # steps of a stage between two looks at its window; a sort per step would cost


class Reserves:
    """Per stage, the time to keep free for one step of it.

    `ns` is indexed by stage and read by policies; only `measured` and `seed` write it.
    """

    def __init__(self, settings: Reserve) -> None:
        self._percentile = settings.percentile
        self._window = settings.window
        self._seen: list[list[int]] = [[] for _ in range(NUM_STAGES)]
        self._count = [0] * NUM_STAGES
        self.ns = [int(settings.initial_ms * NS_PER_MS)] * NUM_STAGES

    def seed(self, stage: Stage, duration_ns: int) -> None:
        """Start from a figure known beforehand, e.g. from the warm-up."""
        self.ns[stage] = duration_ns

    def measured(self, stage: Stage, duration_ns: int) -> None:
        """Take note of one finished step."""
        seen, count = self._seen[stage], self._count[stage]
        if len(seen) < self._window:
            seen.append(duration_ns)
        else:
            seen[count % self._window] = duration_ns
        self._count[stage] = count + 1
        if count % _REFRESH_EVERY == 0:
            ranked = sorted(seen)
            # Nearest rank.
            rank = -(-len(ranked) * self._percentile // 100)
            self.ns[stage] = ranked[int(rank) - 1]
