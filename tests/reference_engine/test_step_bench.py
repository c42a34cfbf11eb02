"""Times of a checkpoint's steps go through the programs that serve."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from reference_engine.batch import Shape, Stage
from reference_engine.config import Profile, Stages, load_profile
from reference_engine.cost_table import CostKind, StepCosts, load_costs
from reference_engine.errors import ReferenceEngineError
from reference_engine.floors import Ceilings, StageWork, floor_of, stage_work
from reference_engine.measured_costs import cost_table, write_costs
from reference_engine.step_bench import StepBench, StepTime, measure_steps
from tests.builders.checkpoints import Loaded
from tests.builders.model_engine import settings

CEILINGS = Ceilings(bytes_per_s=1e9, model_flops_per_s=1e9, codec_flops_per_s=1e8)


class TickingClock:
    """Two milliseconds pass between two readings."""

    def __init__(self) -> None:
        self._ticks = itertools.count(step=2_000_000)

    def now_ns(self) -> int:
        return next(self._ticks)


def _profile() -> Profile:
    buckets = {
        "frame_rows": [1, 2, 4], "prefill_rows": [1, 4], "prefill_tokens": [16],
        "codec_rows": [1, 2], "codec_frames": [2], "max_codec_work": 4,
    }  # fmt: skip
    return settings(buckets=buckets, chunks={"mode": "fixed", "ramp": [2]})


def _step(stage: str, units: int, device_ms: float, **fields: object) -> StepTime:
    step = StepTime(
        stage=stage, rows=units, width=1, num_calls=12, p50_ms=device_ms + 0.2, best_ms=device_ms,
        device_ms=device_ms, host_gap_ms=0.2, floor_ms=1.0, limit="bytes", launches=100,
    )  # fmt: skip
    return replace(step, **fields)


def _bench(*steps: StepTime) -> StepBench:
    return StepBench("folder/tiny", "a GPU", "bfloat16", "2.11", 1, CEILINGS, 0.1, 0.3, 4.0, steps)


def test_every_captured_shape_up_to_the_limit_is_timed(micro: Loaded):
    """Once for each form of a codec frame where both are asked for; larger batches are left out."""
    found = measure_steps(
        micro.folder,
        _profile(),
        clock=TickingClock(),
        max_rows=2,
        num_calls=3,
        stages=tuple(Stages),
    )

    shapes = {(step.stage, step.rows, step.width) for step in found.steps}
    assert {
        ("talker", 1, 1), ("talker", 2, 1), ("predictor", 1, 1), ("predictor", 2, 1),
        ("frame", 1, 1), ("frame", 2, 1), ("codec", 1, 2), ("codec", 2, 2), ("prefill", 1, 16),
    } == shapes  # fmt: skip
    assert {(2.0, 2.0, 3)} == {(s.p50_ms, s.best_ms, s.num_calls) for s in found.steps}
    assert {2.0 / 3} == {step.device_ms for step in found.steps}
    assert all(step.floor_ms > 0 and step.launches > 50 for step in found.steps)


def test_a_missing_device_is_said_before_anything_is_loaded(tmp_path: Path):
    """No checkpoint is looked for first."""
    with pytest.raises(ReferenceEngineError, match="'cpu' or 'cuda' only"):
        measure_steps(tmp_path / "nothing", _profile(), device="meta")


def test_the_predictor_reads_its_weights_in_every_pass(tiny: Loaded):
    """15 passes over the layers, the heads once; FLOPs for 16 positions and every row."""
    weights = tiny.model.predictor
    stack = sum(
        layer.qkv.numel() + layer.out.numel() + layer.gate_up.numel() + layer.down.numel()
        for layer in weights.stack.layers
    )
    rest = sum(head.numel() for head in weights.heads) + weights.projection.numel()

    work = stage_work(tiny.model, tiny.codec, Shape(Stage.PREDICTOR, 4), context=50)

    assert StageWork(4 * (15 * stack + rest), 2 * 4 * (16 * stack + rest)) == work


def test_a_fused_frame_is_the_work_of_its_halves(tiny: Loaded):
    """Bytes and FLOPs add up; history counts with the rows."""
    talker, predictor, frame = (
        stage_work(tiny.model, tiny.codec, Shape(stage, 8), context=100)
        for stage in (Stage.TALKER, Stage.PREDICTOR, Stage.FRAME)
    )

    assert talker.num_bytes + predictor.num_bytes == frame.num_bytes
    assert talker.num_flops + predictor.num_flops == frame.num_flops


def test_the_floor_is_the_larger_of_two_times():
    """A million bytes at 1 GB/s take 1 ms; three million FLOPs at 1 GFLOP/s take 3."""
    work = StageWork(num_bytes=1_000_000, num_flops=3_000_000)

    frame, codec = (floor_of(work, CEILINGS, stage) for stage in (Stage.FRAME, Stage.CODEC))

    assert (3.0, "flops") == (frame.floor_ms, frame.limit)
    assert (30.0, "flops") == (codec.floor_ms, codec.limit)
    assert "bytes" == floor_of(StageWork(10, 1), CEILINGS, Stage.FRAME).limit


def test_a_measured_table_is_read_back_by_the_simulator(tmp_path: Path):
    """2 ms and 0.5 ms a row come out of times that lie on that line; costs keep their kind."""
    stages = [stage.name.lower() for stage in Stage]
    bench = _bench(*(_step(stage, n, 2.0 + 0.5 * n) for stage in stages for n in (1, 4, 16)))
    path = tmp_path / "costs" / "mine.yaml"

    write_costs(cost_table(bench, turn_us=50.0, label="mine"), path)

    table = load_costs(path)
    assert CostKind.MEASURED is table.kind
    assert (2.0, 0.5) == pytest.approx((table.codec.fixed_ms, table.codec.per_row_ms))
    assert (0.25, 0.3, 0.1) == pytest.approx(
        (table.host_gap_ms, table.delivery_ms, table.blocking_read_ms)
    )
    costs = StepCosts(table, load_profile("ttfa"))
    assert 4_000_000 == pytest.approx(costs.shape_ns(Shape(Stage.FRAME, 4)), abs=100)
    with pytest.raises(ReferenceEngineError, match="exists already"):
        write_costs(table, path)


@pytest.mark.parametrize(
    ("times", "fixed", "slope"),
    [([5.0, 4.0, 3.0], None, 0.0), ([1.0, 4.0, 16.0], 0.0, 1.0), ([0.5, 4.0, 20.0], 0.0, None)],
)
def test_no_part_of_a_fitted_cost_is_negative(
    times: list[float], fixed: float | None, slope: float | None
):
    """Noise may slope down, or point below zero at no rows."""
    steps = [_step("frame", n, ms) for n, ms in zip((1, 4, 16), times, strict=True)]
    others = [_step(s.name.lower(), 1, 1.0) for s in Stage if s is not Stage.FRAME]

    cost = cost_table(_bench(*steps, *others), turn_us=0.0, label="x").frame

    assert cost.fixed_ms >= 0
    assert cost.per_row_ms >= 0
    assert fixed is None or cost.fixed_ms == pytest.approx(fixed, abs=1e-9)
    assert slope is None or cost.per_row_ms == pytest.approx(slope)


def test_a_stage_that_was_not_timed_makes_no_table():
    """A guess would look like a measurement."""
    with pytest.raises(ReferenceEngineError, match=r"prefill, talker.*not timed"):
        cost_table(_bench(_step("frame", 1, 1.0)), turn_us=1.0, label="x")
