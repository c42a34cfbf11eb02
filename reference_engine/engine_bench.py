"""What the host itself costs: scheduling turns with a runner that does nothing.

A turn is everything between two steps of the device: commands, choice, input buffers, row flags,
results. It is timed in CPU time of the thread, so a busy machine does not show in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference_engine.batch import Batch, Stage
from reference_engine.clock import NS_PER_MS, VirtualClock
from reference_engine.config import Profile
from reference_engine.delivery import InlineDelivery
from reference_engine.engine import Engine
from reference_engine.messages import End, Event, Job
from reference_engine.runner import PcmHandle

__all__ = ["NullRunner", "TurnCosts", "bench_profile", "measure_turns"]

_STEP_NS = 3 * NS_PER_MS
_WARM_UP_TURNS = 200


class _Silence:
    """Samples of nobody."""

    def wait(self) -> None:
        """Nothing to wait for."""

    def samples(self, row: int, num_samples: int) -> npt.NDArray[np.int16] | None:
        """None."""
        del row, num_samples
        return None


class NullRunner:
    """Fills the input buffers as the real one does, and runs nothing.

    Args:
        max_rows: of the largest bucket.
        clock: advanced by a plausible step, so that streams are paced as in service.
    """

    text_lookahead = 0

    def __init__(self, max_rows: int, clock: VirtualClock) -> None:
        self._inputs = np.zeros((3, max_rows), np.int64)
        self._clock = clock
        self._flags: deque[list[int]] = deque()
        self._pcm = _Silence()

    def admit(self, slot: int, job: Job) -> None:
        """Nothing is loaded."""

    def append_text(self, slot: int, tokens: object, *, is_end: bool) -> None:
        """Nothing is read."""

    def release(self, slot: int) -> None:
        """Nothing was held."""

    def launch(self, batch: Batch, *, wants_flags: bool) -> None:
        """Write slots, counts and padding as a step needs them."""
        num, inputs = len(batch.slots), self._inputs
        inputs[:, : batch.shape.rows] = 0
        inputs[0, :num] = batch.slots
        if batch.counts:
            inputs[1, :num] = batch.counts
        if wants_flags:
            self._flags.append([0] * num)

    def wait(self) -> None:
        """A step's time passes."""
        self._clock.advance(_STEP_NS)

    def read_flags(self) -> list[int]:
        """Nobody ends."""
        return self._flags.popleft()

    def pcm(self) -> PcmHandle:
        """No samples."""
        return self._pcm


class _Nobody:
    """A listener that keeps nothing."""

    def send(self, event: Event) -> None:
        """Forget it."""
        assert not isinstance(event, End)

    def unread_bytes(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True)
class TurnCosts:
    """CPU time of scheduling turns (us): all of them, and those of full codec-frame steps."""

    num_streams: int
    num_turns: int
    p50_us: float
    p99_us: float
    num_full: int
    full_p50_us: float
    full_p99_us: float
    mean_rows: float


def bench_profile(profile: Profile, num_streams: int) -> Profile:
    """The profile with slots and one row bucket for so many streams in step."""
    rows = sorted({*profile.buckets.frame_rows, num_streams})
    buckets = profile.buckets.model_copy(update={"frame_rows": tuple(rows)})
    # Nobody is far enough ahead to sleep, so every stream takes part in every step.
    pacing = profile.pacing.model_copy(update={"max_lead_s": 1e6, "start_slack_ms": 1e9})
    positions = 1_000_000
    return profile.model_copy(
        update={
            "slots": num_streams,
            "buckets": buckets,
            "pacing": pacing,
            "positions_per_slot": positions,
            "kv_budget_positions": None,
            "assume_silent_frames": 1,
        }
    )


def measure_turns(
    profile: Profile, *, num_streams: int, num_turns: int, cpu_ns: Callable[[], int]
) -> TurnCosts:
    """Time scheduling turns with streams that never end.

    Args:
        profile: policy, chunks and fill are its own; see `bench_profile`.
        num_streams: in progress throughout.
        num_turns: measured, after a warm-up.
        cpu_ns: CPU time of the calling thread.
    """
    chosen = bench_profile(profile, num_streams)
    clock = VirtualClock()
    runner = NullRunner(max(chosen.buckets.frame_rows), clock)
    engine = Engine(chosen, runner, clock, make_delivery=InlineDelivery)
    for index in range(num_streams):
        engine.submit(_endless(index), _Nobody())
    for _ in range(_WARM_UP_TURNS):
        engine.turn()
    costs, rows = _timed(engine, num_turns, cpu_ns)
    full = costs[rows >= num_streams]
    return TurnCosts(
        num_streams=num_streams,
        num_turns=len(costs),
        p50_us=_rank(costs, 50),
        p99_us=_rank(costs, 99),
        num_full=len(full),
        full_p50_us=_rank(full, 50),
        full_p99_us=_rank(full, 99),
        mean_rows=float(rows.mean()),
    )


def _timed(
    engine: Engine, num_turns: int, cpu_ns: Callable[[], int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """CPU time (us) and codec-frame rows of each turn; rests are skipped."""
    meter = engine.meters.stages[Stage.FRAME]
    costs: list[float] = []
    rows: list[int] = []
    while len(costs) < num_turns:
        rows_before, start_ns = meter.num_rows, cpu_ns()
        rest = engine.turn()
        spent_ns = cpu_ns() - start_ns
        if rest is None:
            costs.append(spent_ns / 1000)
            rows.append(meter.num_rows - rows_before)
    return np.array(costs), np.array(rows)


def _rank(values: npt.NDArray[np.float64], percent: int) -> float:
    """Nearest rank; 0 where there are none."""
    if not len(values):
        return 0.0
    return float(np.sort(values)[-(-len(values) * percent // 100) - 1])


def _endless(index: int) -> Job:
    return Job(
        request_id=str(index),
        prompt=None,
        num_prompt_positions=10,
        num_prefill_positions=0,
        num_text_tokens=1,
        is_text_complete=True,
        num_characters=450_000,
        max_new_tokens=900_000,
    )
