"""Codec frames a second against the official package, both in one interleaved run.

Rounds alternate between the two processes, each on one thread, and the best round counts: what a
busy machine takes from one it takes from the other. Both start from text and end with codes on the
host; neither decodes audio.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO

import torch

from reference_engine.clock import NS_PER_S, Clock
from reference_engine.errors import ArgumentError, ReferenceEngineError
from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import DEFAULT_PLAN, GREEDY_PLAN, SamplerPlan, SamplingSettings
from reference_engine.model.state import (
    ModelState,
    allocate,
    reset_slots,
    write_sampling,
    write_text,
)
from reference_engine.model.talker import prefill_step
from reference_engine.model.text.prompts import Prompt, PromptBuilder, TextLayout
from reference_engine.model.text.tokenizer import load_tokenizer
from reference_engine.model.tts_model import TtsModel
from reference_engine.model.weights import load_model

__all__ = ["SpeedComparison", "SpeedRow", "compare_official"]

_TEXT = "hello the user, and all the others here"
_SPEAKER = "ryan"
_STARTUP_FRAMES = 2


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One kind of drawing at one batch size: best rounds of both, in codec frames a second."""

    sampled: bool
    batch: int
    ours_fps: float
    official_fps: float

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return self.ours_fps / self.official_fps


@dataclass(frozen=True, slots=True)
class SpeedComparison:
    """Every row, and what was run."""

    checkpoint: str
    frames_per_request: int
    rounds: int
    rows: tuple[SpeedRow, ...]

    def row(self, *, sampled: bool, batch: int) -> SpeedRow:
        """The row of a kind and batch size."""
        return next(r for r in self.rows if r.sampled == sampled and r.batch == batch)

    def as_json(self) -> dict[str, object]:
        """For `--json`, ratios included."""
        rows = [{**asdict(row), "ratio": row.ratio} for row in self.rows]
        return {**asdict(self), "rows": rows}


def compare_official(
    checkpoint: Path,
    *,
    python: Path,
    clock: Clock,
    batches: tuple[int, ...] = (1, 8),
    frames: int = 16,
    rounds: int = 3,
) -> SpeedComparison:
    """Time both at every batch size, greedy and sampled.

    Args:
        checkpoint: folder both can read.
        python: interpreter of the environment that holds the official package.
        clock: the watch.
        batches: equal requests side by side.
        frames: codec frames of each request.
        rounds: timed rounds of each; the best counts. One more round warms up.

    Raises:
        ArgumentError: the interpreter is absent.
        ReferenceEngineError: the official process died.
    """
    if not python.exists():
        raise ArgumentError(f"{python}: not found; build it with `make oracle`")
    ours = _Ours(checkpoint, max_batch=max(batches), frames=frames)
    rows = []
    with _Official(python, checkpoint) as official:
        for sampled in (False, True):
            for batch in batches:
                jobs = (
                    partial(ours.generate, batch, sampled=sampled),
                    partial(official.generate, batch, frames, sampled=sampled),
                )
                best = _interleave(jobs, clock=clock, rounds=rounds)
                rows.append(SpeedRow(sampled, batch, ours_fps=best[0], official_fps=best[1]))
    return SpeedComparison(str(checkpoint), frames, rounds, tuple(rows))


def _interleave(
    jobs: tuple[Callable[[], int], Callable[[], int]], *, clock: Clock, rounds: int
) -> list[float]:
    """Best frames a second of each job over alternating rounds, after one to warm up."""
    best = [0.0, 0.0]
    for number in range(rounds + 1):
        for which, job in enumerate(jobs):
            start_ns = clock.now_ns()
            made = job()
            rate = made * NS_PER_S / (clock.now_ns() - start_ns)
            if number > 0:
                best[which] = max(best[which], rate)
    return best


class _Ours:
    """This engine's model, stepped directly: no scheduler, no audio."""

    def __init__(self, checkpoint: Path, *, max_batch: int, frames: int) -> None:
        self._model: TtsModel = load_model(checkpoint, device="cpu", dtype=torch.float32)
        prompts = PromptBuilder(self._model.config, load_tokenizer(checkpoint, self._model.config))
        self._prompt: Prompt = prompts.build(
            _TEXT, prompts.voice(_SPEAKER), layout=TextLayout.STREAMING
        )
        self._frames = frames
        self._state: ModelState = allocate(
            self._model.config,
            max_batch + 1,
            max_positions=self._prompt.num_rows + frames + _STARTUP_FRAMES,
            device="cpu",
            dtype=torch.float32,
        )

    def generate(self, batch: int, *, sampled: bool) -> int:
        """Prefill and speak equal requests side by side; returns the codec frames made."""
        state, prompt, threads = self._state, self._prompt, torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            slots = torch.arange(1, batch + 1)
            self._admit(batch, sampled=sampled)
            prefill_step(
                self._model,
                state,
                slots,
                text_ids=torch.tensor([prompt.text_ids] * batch),
                codec_ids=torch.tensor([prompt.codec_ids] * batch),
                num_rows=torch.full((batch,), prompt.num_rows),
            )
            plan: SamplerPlan = DEFAULT_PLAN if sampled else GREEDY_PLAN
            for _ in range(self._frames):
                frame_step(self._model, state, slots, sampler=plan)
            return int(state.num_frames[slots].sum())
        finally:
            torch.set_num_threads(threads)

    def _admit(self, batch: int, *, sampled: bool) -> None:
        reset_slots(self._state, torch.ones(self._state.num_slots, dtype=torch.bool))
        for slot in range(1, batch + 1):
            settings = SamplingSettings.greedy(ignore_eos=True)
            if sampled:
                settings = SamplingSettings.from_defaults(
                    self._model.config.generation, seed=slot, ignore_eos=True
                )
            write_sampling(self._state, slot, settings)
            write_text(self._state, slot, 0, self._prompt.text_rows)


class _Official:
    """The official package in its own process, asked over a pipe."""

    def __init__(self, python: Path, checkpoint: Path) -> None:
        environment = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        }
        self._process = subprocess.Popen(
            [str(python), "-m", "reference_engine.official.speed_process", str(checkpoint)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )

    def __enter__(self) -> _Official:
        self._answer()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(timeout=30)

    def generate(self, batch: int, frames: int, *, sampled: bool) -> int:
        """Generate equal requests side by side; returns the codec frames made."""
        request = {
            "batch": batch,
            "frames": frames,
            "sampled": sampled,
            "text": _TEXT,
            "speaker": _SPEAKER,
        }
        pipe: IO[str] | None = self._process.stdin
        assert pipe is not None
        pipe.write(json.dumps(request) + "\n")
        pipe.flush()
        return self._answer()["frames"]

    def _answer(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ReferenceEngineError(
                "the official package's process ended; run "
                "`python -m reference_engine.official.speed_process FOLDER` in its environment"
            )
        answer: dict[str, int] = json.loads(line)
        return answer
