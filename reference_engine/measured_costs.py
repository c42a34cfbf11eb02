"""A cost table out of a bench: what `simulate` runs on once a device has been measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from reference_engine.batch import Stage
from reference_engine.cost_table import CostKind, CostTable, Launches, StageCost
from reference_engine.errors import ReferenceEngineError
from reference_engine.step_bench import StepBench, StepTime

__all__ = ["cost_table", "write_costs"]


def cost_table(bench: StepBench, *, turn_us: float, label: str) -> CostTable:
    """Fit each stage's times by a fixed part and one a row.

    Args:
        bench: of both forms of a codec frame, and of prefill and codec.
        turn_us: CPU time of a scheduling turn, part of the host's gap.
        label: names the device and the conditions.

    Raises:
        ReferenceEngineError: a stage was not timed.
    """
    by_stage = {stage: [s for s in bench.steps if s.stage == stage.name.lower()] for stage in Stage}
    missing = [stage.name.lower() for stage, steps in by_stage.items() if not steps]
    if missing:
        raise ReferenceEngineError(f"no cost table: {', '.join(missing)} not timed")
    frames = by_stage[Stage.FRAME]
    gaps = sorted(step.host_gap_ms for step in frames)
    source = (
        f"earwitness engine-bench on {bench.device}, {bench.dtype}, torch {bench.torch},"
        f" checkpoint {Path(bench.checkpoint).name}: {len(bench.steps)} shapes,"
        f" {frames[0].num_calls} calls each; delivery is the copy to the host alone, no socket."
    )
    fitted = {stage.name.lower(): _fit(steps) for stage, steps in by_stage.items()}
    launches = {stage.name.lower(): steps[0].launches for stage, steps in by_stage.items()}
    return CostTable(
        label=label,
        kind=CostKind.MEASURED,
        source=source,
        host_gap_ms=gaps[len(gaps) // 2] + turn_us / 1000,
        delivery_ms=bench.samples_ms,
        blocking_read_ms=bench.flags_ms,
        launch_us=bench.launch_us,
        launches=Launches(**launches),
        **fitted,
    )


def _fit(steps: Sequence[StepTime]) -> StageCost:
    """Least relative squares of `fixed + slope * rows * width`; neither part below zero."""
    units = np.array([step.rows * step.width for step in steps], np.float64)
    times = np.array([step.device_ms for step in steps], np.float64)
    weights = 1 / np.maximum(times, 1e-6)
    if len(set(units)) < 2:
        return StageCost(fixed_ms=float(times.mean()), per_row_ms=0.0)
    slope, fixed = np.polyfit(units, times, 1, w=weights)
    if slope < 0:
        slope, fixed = 0.0, float(np.average(times, weights=weights))
    if fixed < 0:
        scaled = weights**2
        slope, fixed = float((scaled * units * times).sum() / (scaled * units**2).sum()), 0.0
    return StageCost(fixed_ms=float(fixed), per_row_ms=float(slope))


def write_costs(table: CostTable, path: Path) -> None:
    """Write a table that `simulate --cost` takes.

    Raises:
        ReferenceEngineError: the file exists already; figures are not overwritten.
    """
    if path.exists():
        raise ReferenceEngineError(f"{path}: exists already; name another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(table.model_dump(mode="json"), sort_keys=False, width=100)
    path.write_text(text, encoding="utf-8")
