"""How long the steps of a checkpoint take, shape by shape, through the programs that serve.

Each shape is timed twice: one call at a time, as the engine loop makes them, and several in a row
with one wait at the end. The second is the device's own time; what the first takes beyond it is
the host's gap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reference_engine.batch import Batch, Shape, Stage, Urgency, captured_stages
from reference_engine.clock import Clock, MonotonicClock
from reference_engine.codec.weights import load_codec
from reference_engine.config import Fp32Math, Profile, Stages
from reference_engine.floors import Ceilings, floor_of, measure_ceilings, stage_work
from reference_engine.graphs import make_driver
from reference_engine.launches import count_launches
from reference_engine.messages import Job
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model.text.prompts import PromptBuilder, TextLayout
from reference_engine.model.text.tokenizer import load_tokenizer
from reference_engine.model.weights import load_model
from reference_engine.model_runner import ModelPrompt, ModelRunner

__all__ = ["StepBench", "StepTime", "measure_steps"]

_WARM_UP_CALLS = 2
_NS_PER_MS = 1_000_000
_MAX_TOKENS = 500
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class StepTime:
    """One shape: calls made, their times (ms), and the least it could have been.

    p50_ms, best_ms: one call and the wait for it. device_ms: a call among several in a row.
    host_gap_ms: what the wait after each call costs. floor_ms: bytes or FLOPs (`limit`) at the
    device's measured ceilings. launches: kernels, for one row.
    """

    stage: str
    rows: int
    width: int
    num_calls: int
    p50_ms: float
    best_ms: float
    device_ms: float
    host_gap_ms: float
    floor_ms: float
    limit: str
    launches: int


@dataclass(frozen=True, slots=True)
class StepBench:
    """All shapes of one checkpoint.

    flags_ms, samples_ms: from asking until a step's row flags, and a codec call's samples, were on
    the host; p50. launch_us: of one kernel, where a codec frame is launched step by step.
    """

    checkpoint: str
    device: str
    dtype: str
    torch: str
    num_threads: int
    ceilings: Ceilings
    flags_ms: float
    samples_ms: float
    launch_us: float
    steps: tuple[StepTime, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def measure_steps(
    folder: Path,
    profile: Profile,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    clock: Clock | None = None,
    max_rows: int = 32,
    num_calls: int = 12,
    stages: Sequence[Stages] = (),
) -> StepBench:
    """Time the captured steps with full batches.

    Args:
        folder: the checkpoint.
        profile: sampler and buckets; only shapes up to `max_rows` rows are timed.
        device: where; its driver, its kernels.
        dtype: of talker and code predictor: `float32` or `bfloat16`.
        clock: of the times.
        max_rows: see `profile`.
        num_calls: of each shape, one by one and then in a row.
        stages: fused, split or both; the profile's own where empty.

    Raises:
        CheckpointError, ReferenceEngineError: the folder or the device cannot be used.
    """
    desk = _Desk(
        folder,
        device=device,
        dtype=_DTYPES[dtype],
        fp32_math=profile.fp32_math,
        clock=clock or MonotonicClock(),
        num_calls=num_calls,
    )
    steps: dict[Shape, StepTime] = {}
    waits = _Waits([], [], [])
    for each in stages or (profile.stages,):
        chosen = profile.model_copy(update={"stages": each})
        # Codec and prefill are the same in both forms: known by now, not recorded once more.
        desk.time_all(_without_the_rest(chosen) if steps else chosen, max_rows, steps, waits)
    return StepBench(
        checkpoint=str(folder),
        device=desk.device_name,
        dtype=dtype,
        torch=torch.__version__,
        num_threads=torch.get_num_threads(),
        ceilings=desk.ceilings,
        flags_ms=_median_ms(waits.flags_ns),
        samples_ms=_median_ms(waits.samples_ns),
        launch_us=min(waits.launch_us),
        steps=tuple(steps.values()),
    )


@dataclass(frozen=True, slots=True)
class _Waits:
    """Side costs, gathered over every form of the stages."""

    flags_ns: list[int]
    samples_ns: list[int]
    launch_us: list[float]


class _Desk:
    """A loaded checkpoint and what times its steps."""

    def __init__(
        self,
        folder: Path,
        *,
        device: str,
        dtype: torch.dtype,
        fp32_math: Fp32Math,
        clock: Clock,
        num_calls: int,
    ) -> None:
        # A device that is not there is said before anything is loaded.
        make_driver(device, fp32_math=fp32_math)
        self._device, self._clock, self._num_calls = device, clock, num_calls
        self._model = load_model(folder, device=device, dtype=dtype)
        self._codec = load_codec(folder, device=device)
        self._prompts = PromptBuilder(
            self._model.config, load_tokenizer(folder, self._model.config)
        )
        self.ceilings = measure_ceilings(
            self._model.device,
            model_dtype=dtype,
            codec_dtype=self._codec.dtype,
            clock=clock,
        )

    @property
    def device_name(self) -> str:
        """Of the GPU as the driver names it, or `cpu`."""
        is_cuda = self._model.device.type == "cuda"
        return str(torch.cuda.get_device_name(self._model.device)) if is_cuda else "cpu"

    def time_all(
        self, profile: Profile, max_rows: int, steps: dict[Shape, StepTime], waits: _Waits
    ) -> None:
        """Add every shape of a profile that is not known yet; prefill last, for it fills slots."""
        launches = count_launches(self._model, self._codec, profile)
        runner = self._runner(profile, max_rows)
        shapes = {shape for shape in runner.catalogue.shapes if shape.rows <= max_rows} - set(steps)
        for shape in sorted(shapes, key=lambda shape: (shape.stage is Stage.PREFILL, shape)):
            steps[shape] = self._time(runner, shape, launches[shape.stage])
        frame = Shape(runner.catalogue.frame_stages[0], profile.buckets.frame_rows[0])
        waits.flags_ns.extend(self._flag_waits(runner, frame))
        waits.samples_ns.extend(self._sample_waits(runner, profile))
        runner.close()
        waits.launch_us.append(self._launch_us(profile, frame, launches[frame.stage]))

    def _runner(self, profile: Profile, num_slots: int, *, is_plain: bool = False) -> ModelRunner:
        captured = frozenset[Stage]() if is_plain else captured_stages(profile.capture)
        chosen = _up_to(profile, num_slots)
        driver = make_driver(self._device, captured=captured, fp32_math=profile.fp32_math)
        runner = ModelRunner(self._model, self._codec, chosen, driver)
        voice = self._prompts.voice(sorted(self._model.config.speakers)[0])
        runner.store_prefixes([self._prompts.open(voice)])
        prompt = self._prompts.build("one two three", voice, layout=TextLayout.STREAMING)
        drawn = SamplingSettings.from_defaults(self._model.config.generation, ignore_eos=True)
        for slot in range(1, num_slots + 1):
            loaded = ModelPrompt(prompt, drawn)
            job: Job = runner.job(str(slot), loaded, num_characters=13, max_new_tokens=_MAX_TOKENS)
            runner.admit(slot, job)
        return runner

    def _time(self, runner: ModelRunner, shape: Shape, launches: int) -> StepTime:
        batch, launch = _batch(shape), _launcher(runner, shape)
        context = int(runner.state.lengths.max())
        for _ in range(_WARM_UP_CALLS):
            launch(batch)
            runner.wait()
        ranked = sorted(self._once(runner, launch, batch, 1) for _ in range(self._num_calls))
        p50_ms = ranked[len(ranked) // 2] / _NS_PER_MS
        device_ms = (
            self._once(runner, launch, batch, self._num_calls) / self._num_calls / _NS_PER_MS
        )
        work = stage_work(self._model, self._codec, shape, context=context)
        floor = floor_of(work, self.ceilings, shape.stage)
        return StepTime(
            stage=shape.stage.name.lower(),
            rows=shape.rows,
            width=shape.width,
            num_calls=len(ranked),
            p50_ms=p50_ms,
            best_ms=ranked[0] / _NS_PER_MS,
            device_ms=device_ms,
            host_gap_ms=max(0.0, p50_ms - device_ms),
            floor_ms=floor.floor_ms,
            limit=floor.limit,
            launches=launches,
        )

    def _once(
        self, runner: ModelRunner, launch: Callable[[Batch], None], batch: Batch, calls: int
    ) -> int:
        """Wall time (ns) of so many calls and one wait."""
        start_ns = self._clock.now_ns()
        for _ in range(calls):
            launch(batch)
        runner.wait()
        return self._clock.now_ns() - start_ns

    def _flag_waits(self, runner: ModelRunner, shape: Shape) -> list[int]:
        """From a step's end until its flags were read."""
        spent = []
        for _ in range(self._num_calls):
            runner.launch(_batch(shape), wants_flags=True)
            runner.wait()
            start_ns = self._clock.now_ns()
            runner.read_flags()
            spent.append(self._clock.now_ns() - start_ns)
        return spent

    def _sample_waits(self, runner: ModelRunner, profile: Profile) -> list[int]:
        """From a codec step's end until its samples were on the host."""
        shape = Shape(Stage.CODEC, profile.buckets.codec_rows[0], profile.buckets.codec_frames[0])
        spent = []
        for _ in range(self._num_calls):
            runner.launch(_batch(shape), wants_flags=False)
            runner.wait()
            start_ns = self._clock.now_ns()
            runner.pcm().wait()
            spent.append(self._clock.now_ns() - start_ns)
        return spent

    def _launch_us(self, profile: Profile, shape: Shape, launches: int) -> float:
        """Time of a small step that is launched kernel by kernel, a kernel."""
        runner = self._runner(_without_the_rest(profile), shape.rows, is_plain=True)
        launch = _launcher(runner, shape)
        spent = [self._once(runner, launch, _batch(shape), 1) for _ in range(self._num_calls)]
        runner.close()
        return _median_ms(spent) * 1000 / launches


def _up_to(profile: Profile, max_rows: int) -> Profile:
    """The profile with no bucket of more rows than this, and a slot for each."""
    buckets = profile.buckets
    rows = {
        name: tuple(n for n in getattr(buckets, name) if n <= max_rows)
        for name in ("frame_rows", "prefill_rows", "codec_rows")
    }
    update = {
        "slots": max_rows,
        "buckets": buckets.model_copy(update=rows),
        "kv_budget_positions": None,
        "prefix_kv": True,  # so that admission prefills nothing
    }
    return profile.model_copy(update=update)


def _without_the_rest(profile: Profile) -> Profile:
    """The profile with one small bucket of the stages that are no codec frame."""
    buckets = profile.buckets
    names = ("prefill_rows", "prefill_tokens", "codec_rows", "codec_frames")
    firsts = {name: getattr(buckets, name)[:1] for name in names}
    return profile.model_copy(update={"buckets": buckets.model_copy(update=firsts)})


def _batch(shape: Shape) -> Batch:
    has_width = shape.stage in (Stage.CODEC, Stage.PREFILL)
    counts = [shape.width] * shape.rows if has_width else []
    return Batch(shape, list(range(1, shape.rows + 1)), counts, 1, Urgency.STEADY)


def _launcher(runner: ModelRunner, shape: Shape) -> Callable[[Batch], None]:
    """How a step is started; prefill without its host side, which builds each prompt's rows."""
    if shape.stage is Stage.PREFILL:
        return runner.graphs.run
    return lambda batch: runner.launch(batch, wants_flags=False)


def _median_ms(spent_ns: list[int]) -> float:
    return sorted(spent_ns)[len(spent_ns) // 2] / _NS_PER_MS
