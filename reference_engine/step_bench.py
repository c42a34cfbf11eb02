"""How long the steps of a checkpoint take, shape by shape, through the programs that serve."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reference_engine.batch import Batch, Shape, Stage, Urgency
from reference_engine.clock import Clock, MonotonicClock
from reference_engine.codec.weights import load_codec
from reference_engine.config import Profile
from reference_engine.graphs import CpuDriver
from reference_engine.messages import Job
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model.text.prompts import PromptBuilder, TextLayout
from reference_engine.model.text.tokenizer import load_tokenizer
from reference_engine.model.weights import load_model
from reference_engine.model_runner import ModelPrompt, ModelRunner

__all__ = ["StepBench", "StepTime", "measure_steps"]

_MAX_ROWS = 32
_NUM_CALLS = 12
_WARM_UP_CALLS = 2
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class StepTime:
    """One shape: calls made, and their times (ms)."""

    stage: str
    rows: int
    width: int
    num_calls: int
    p50_ms: float
    best_ms: float


@dataclass(frozen=True, slots=True)
class StepBench:
    """All shapes of one checkpoint."""

    checkpoint: str
    device: str
    num_threads: int
    steps: tuple[StepTime, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def measure_steps(
    folder: Path, profile: Profile, *, clock: Clock | None = None, max_rows: int = _MAX_ROWS
) -> StepBench:
    """Time codec-frame and codec steps on the CPU with full batches.

    Args:
        folder: the checkpoint.
        profile: stages, sampler and buckets; only shapes up to `max_rows` rows are timed.
        clock: of the times.
    """
    clock = clock or MonotonicClock()
    runner, jobs = _runner(folder, profile, max_rows)
    for slot, job in enumerate(jobs, start=1):
        runner.admit(slot, job)
    times = [
        _time(runner, shape, clock)
        for shape in sorted(runner.catalogue.shapes)
        if shape.stage is not Stage.PREFILL and shape.rows <= max_rows
    ]
    runner.close()
    return StepBench(str(folder), "cpu", torch.get_num_threads(), tuple(times))


def _runner(folder: Path, profile: Profile, num_slots: int) -> tuple[ModelRunner, Sequence[Job]]:
    model = load_model(folder, device="cpu", dtype=torch.float32)
    codec = load_codec(folder, device="cpu")
    # Every timed call of every shape makes a codec frame.
    chosen = profile.model_copy(update={"slots": num_slots, "kv_budget_positions": None})
    runner = ModelRunner(model, codec, chosen, CpuDriver())
    builder = PromptBuilder(model.config, load_tokenizer(folder, model.config))
    voice = builder.voice(sorted(model.config.speakers)[0])
    opening = builder.open(voice)
    runner.store_prefixes([opening])
    prompt = builder.build("one two three", voice, layout=TextLayout.STREAMING)
    drawn = SamplingSettings.from_defaults(model.config.generation, ignore_eos=True)
    jobs = [
        runner.job(str(n), ModelPrompt(prompt, drawn), num_characters=13, max_new_tokens=500)
        for n in range(num_slots)
    ]
    return runner, jobs


def _time(runner: ModelRunner, shape: Shape, clock: Clock) -> StepTime:
    slots = list(range(1, shape.rows + 1))
    counts = [shape.width] * shape.rows if shape.stage is Stage.CODEC else []
    batch = Batch(shape, slots, counts, 1, Urgency.STEADY)
    spent: list[int] = []
    for _ in range(_WARM_UP_CALLS + _NUM_CALLS):
        start_ns = clock.now_ns()
        runner.launch(batch, wants_flags=False)
        runner.wait()
        spent.append(clock.now_ns() - start_ns)
    ranked = sorted(spent[_WARM_UP_CALLS:])
    return StepTime(
        stage=shape.stage.name.lower(),
        rows=shape.rows,
        width=shape.width,
        num_calls=len(ranked),
        p50_ms=ranked[len(ranked) // 2] / _NS_PER_MS,
        best_ms=ranked[0] / _NS_PER_MS,
    )
