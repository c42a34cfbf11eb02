"""What the engine counts about itself, for `/metrics` and for the people who ask why.

Plain integers, written by the engine thread alone; a snapshot may be read from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reference_engine.batch import NUM_STAGES, Batch, Stage
from reference_engine.messages import EndReason

__all__ = ["Meters", "StageMeter"]


@dataclass(slots=True)
class StageMeter:
    """Steps of one stage: how many, their real and padded rows, and the time they took."""

    num_steps: int = 0
    num_rows: int = 0
    num_padded_rows: int = 0
    busy_ns: int = 0


@dataclass(slots=True)
class Meters:
    """Counters since the start.

    num_split: cohorts larger than the largest captured bucket, served over several turns.
    num_rescues: steps for somebody who was about to run dry. num_step_faults: steps that failed.
    num_loop_faults: turns that failed, by a bug of ours. num_delivery_deaths: delivery threads
    that died and were replaced.
    """

    stages: list[StageMeter] = field(
        default_factory=lambda: [StageMeter() for _ in range(NUM_STAGES)]
    )
    ends: dict[EndReason, int] = field(default_factory=lambda: dict.fromkeys(EndReason, 0))
    num_submitted: int = 0
    num_refused: int = 0
    num_split: int = 0
    num_rescues: int = 0
    num_step_faults: int = 0
    num_loop_faults: int = 0
    num_delivery_deaths: int = 0

    def step(self, batch: Batch, duration_ns: int) -> None:
        """One finished step."""
        meter = self.stages[batch.shape.stage]
        meter.num_steps += 1
        meter.num_rows += len(batch.slots)
        meter.num_padded_rows += batch.shape.rows
        meter.busy_ns += duration_ns

    def stage(self, stage: Stage) -> StageMeter:
        """The meter of a stage."""
        return self.stages[stage]
