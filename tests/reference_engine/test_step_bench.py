"""Times of a checkpoint's steps go through the programs that serve."""

from __future__ import annotations

import itertools

from reference_engine.step_bench import measure_steps
from tests.builders.checkpoints import Loaded
from tests.builders.model_engine import settings


class TickingClock:
    """Two milliseconds pass between two readings."""

    def __init__(self) -> None:
        self._ticks = itertools.count(step=2_000_000)

    def now_ns(self) -> int:
        return next(self._ticks)


def test_every_captured_shape_up_to_the_limit_is_timed(micro: Loaded):
    """Codec-frame and codec steps, many times each; prefill and larger batches are left out."""
    buckets = {
        "frame_rows": [1, 2, 4], "prefill_tokens": [16], "codec_rows": [1, 2], "codec_frames": [2],
        "max_codec_work": 4,
    }  # fmt: skip
    chosen = settings(buckets=buckets, chunks={"mode": "fixed", "ramp": [2]})

    found = measure_steps(micro.folder, chosen, clock=TickingClock(), max_rows=2)

    shapes = [(step.stage, step.rows, step.width) for step in found.steps]
    assert [("frame", 1, 1), ("frame", 2, 1), ("codec", 1, 2), ("codec", 2, 2)] == shapes
    assert {(2.0, 2.0, 12)} == {(s.p50_ms, s.best_ms, s.num_calls) for s in found.steps}
