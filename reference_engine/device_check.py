"""`python -m reference_engine.device_check`: does a device compute what the plain twins compute?

Two parts, printed as one JSON object: every fused kernel against its twin, and the captured stages
of a checkpoint against the same stages run by plain calls on plain kernels, on the same device.
On a CPU the kernels run in Triton's interpreter, for which TRITON_INTERPRET=1 must be set.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from reference_engine.batch import Batch, Shape, Stage, Urgency
from reference_engine.codec.decoder import CodecModel
from reference_engine.codec.weights import load_codec
from reference_engine.config import Profile, Stages, load_profile
from reference_engine.errors import ArgumentError, ReferenceEngineError
from reference_engine.graphs import CpuDriver, GraphDriver, make_driver
from reference_engine.kernels import REFERENCE_KERNELS
from reference_engine.kernels.parity import (
    FULL_SHAPES,
    TINY_SHAPES,
    ParityResult,
    check_kernels,
)
from reference_engine.messages import SAMPLES_PER_CODEC_FRAME
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model.text.prompts import PromptBuilder, TextLayout
from reference_engine.model.text.tokenizer import load_tokenizer
from reference_engine.model.tts_model import TtsModel
from reference_engine.model.weights import load_model
from reference_engine.model_runner import ModelPrompt, ModelRunner

__all__ = ["StageResult", "check_stages", "main"]

_TEXTS = ("one two three", "yes", "a little more of this")
_NUM_FRAMES = 6
_CODEC_FRAMES = 4
_ROWS = 4  # one of them padding
# Hidden rows over their largest magnitude. fp32: sums in another order through all layers. bf16:
# a few steps of its eight bits, layer upon layer.
_HIDDEN_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.06}
_PCM_TOLERANCE = 4  # steps of 1/32767 after the codec's snakes


@dataclass(frozen=True, slots=True)
class StageResult:
    """Captured stages against plain calls on plain kernels.

    hidden_error: of the talker after one step, over the largest magnitude. codes_equal: share of
    codes that agree over all frames; below fp32 near ties may part them, so it decides only there.
    pcm_steps: largest difference of the samples of the same codes.
    """

    stages: str
    dtype: str
    hidden_error: float
    hidden_tolerance: float
    codes_equal: float
    must_codes_agree: bool
    pcm_steps: int
    pcm_tolerance: int

    @property
    def is_equal(self) -> bool:
        """Whether capture and fused kernels changed nothing that matters."""
        codes_agree = self.codes_equal == 1.0 or not self.must_codes_agree
        is_close = self.hidden_error <= self.hidden_tolerance  # False for NaN
        return is_close and codes_agree and self.pcm_steps <= self.pcm_tolerance


def check_stages(folder: Path, *, device: str, dtype: torch.dtype, stages: Stages) -> StageResult:
    """Speak three short texts twice and compare.

    Raises:
        CheckpointError, ReferenceEngineError: the folder or the device cannot be used.
    """
    model, codec = load_model(folder, device=device, dtype=dtype), load_codec(folder, device=device)
    plain = replace(model, kernels=REFERENCE_KERNELS), replace(codec, kernels=REFERENCE_KERNELS)
    profile = _profile(stages)
    captured = _Speaker(folder, model, codec, profile, make_driver(device))
    expected = _Speaker(folder, *plain, profile, CpuDriver())
    for speaker in (captured, expected):
        speaker.prefill()
        speaker.frame()
    hidden_error = _relative(expected.hidden(), captured.hidden())
    for speaker in (captured, expected):
        for _ in range(_NUM_FRAMES - 1):
            speaker.frame()
    codes, found = expected.codes(), captured.codes()
    captured.runner.state.codes.copy_(expected.runner.state.codes)
    steps = max(
        int((a - b).abs().max()) for a, b in zip(expected.pcm(), captured.pcm(), strict=True)
    )
    for speaker in (captured, expected):
        speaker.runner.close()
    return StageResult(
        stages=stages.value,
        dtype=str(dtype).removeprefix("torch."),
        hidden_error=hidden_error,
        hidden_tolerance=_HIDDEN_TOLERANCE[dtype],
        codes_equal=float((codes == found).double().mean()),
        must_codes_agree=dtype is torch.float32,
        pcm_steps=steps,
        pcm_tolerance=_PCM_TOLERANCE,
    )


def _profile(stages: Stages) -> Profile:
    return load_profile(
        "ttfa",
        overrides={
            "stages": stages.value,
            "prefix_kv": False,  # so that prefill takes part
            "slots": _ROWS - 1,
            "positions_per_slot": 64,
            "chunks": {"mode": "fixed", "ramp": [_CODEC_FRAMES]},
            "buckets": {
                "frame_rows": [_ROWS], "prefill_rows": [_ROWS], "prefill_tokens": [16],
                "codec_rows": [_ROWS], "codec_frames": [_CODEC_FRAMES],
                "max_codec_work": _ROWS * _CODEC_FRAMES,
            },
        },
    )  # fmt: skip


def _relative(expected: torch.Tensor, found: torch.Tensor) -> float:
    return float((expected - found).abs().max() / max(1e-6, float(expected.abs().max())))


class _Speaker:
    """A runner with three requests: greedy, sampled, sampled."""

    def __init__(
        self,
        folder: Path,
        model: TtsModel,
        codec: CodecModel,
        profile: Profile,
        driver: GraphDriver,
    ) -> None:
        self.runner = ModelRunner(model, codec, profile, driver)
        self._slots = list(range(1, _ROWS))
        builder = PromptBuilder(model.config, load_tokenizer(folder, model.config))
        voice = builder.voice(sorted(model.config.speakers)[0])
        drawn = SamplingSettings.from_defaults(model.config.generation, ignore_eos=True)
        for slot, text in zip(self._slots, _TEXTS, strict=True):
            prompt = builder.build(text, voice, layout=TextLayout.STREAMING)
            sampling = (
                replace(drawn, seed=slot) if slot > 1 else SamplingSettings.greedy(ignore_eos=True)
            )
            job = self.runner.job(
                str(slot), ModelPrompt(prompt, sampling), num_characters=20, max_new_tokens=40
            )
            self.runner.admit(slot, job)

    def _run(self, stage: Stage, width: int = 1) -> None:
        counts = [width] * len(self._slots) if stage is Stage.CODEC else []
        shape = Shape(stage, _ROWS, width)
        batch = Batch(shape, self._slots, counts, self._slots[0], Urgency.STEADY)
        self.runner.launch(batch, wants_flags=False)
        self.runner.wait()

    def prefill(self) -> None:
        """The prompts' rows."""
        self._run(Stage.PREFILL, 16)

    def frame(self) -> None:
        """One codec frame, fused or not."""
        for stage in self.runner.catalogue.frame_stages:
            self._run(stage)

    def hidden(self) -> torch.Tensor:
        """The talker's last rows, fp64 on the host."""
        return self.runner.state.hidden[1:].double().cpu()

    def codes(self) -> torch.Tensor:
        """All codes [requests, codec frames, 16]."""
        return self.runner.state.codes[1:, :_NUM_FRAMES].cpu()

    def pcm(self) -> list[torch.Tensor]:
        """Samples of the first chunk of every request, int64."""
        self._run(Stage.CODEC, _CODEC_FRAMES)
        handle = self.runner.pcm()
        handle.wait()
        count = _CODEC_FRAMES * SAMPLES_PER_CODEC_FRAME
        rows = [handle.samples(row, count) for row in range(len(self._slots))]
        return [torch.from_numpy(row.astype("int64")) for row in rows if row is not None]


def _check_kernels(device: str) -> list[ParityResult]:
    is_cpu = torch.device(device).type == "cpu"
    if is_cpu and os.environ.get("TRITON_INTERPRET") != "1":
        raise ArgumentError("on a CPU kernels run in Triton's interpreter: set TRITON_INTERPRET=1")
    from reference_engine.kernels.fused import FUSED_KERNELS

    shapes = TINY_SHAPES if is_cpu else FULL_SHAPES
    return [
        result
        for dtype in (torch.float32, torch.bfloat16)
        for result in check_kernels(FUSED_KERNELS, shapes=shapes, device=device, dtype=dtype)
    ]


def _check_all_stages(folders: Sequence[Path], device: str) -> list[StageResult]:
    """fp32 everywhere; bf16 too where the device is meant for it."""
    is_cpu = torch.device(device).type == "cpu"
    return [
        check_stages(folder, device=device, dtype=dtype, stages=stages)
        for folder in folders
        for dtype in ((torch.float32,) if is_cpu else (torch.float32, torch.bfloat16))
        for stages in Stages
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the results; 1 where something differs, 2 where it could not be compared."""
    parser = argparse.ArgumentParser(prog="python -m reference_engine.device_check")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--checkpoint", type=Path, action="append", required=True, metavar="DIR")
    given = parser.parse_args(argv)
    try:
        make_driver(given.device)
        kernels = _check_kernels(given.device)
        stages = _check_all_stages(given.checkpoint, given.device)
    except ReferenceEngineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    results: list[ParityResult | StageResult] = [*kernels, *stages]
    report = {
        "device": given.device,
        "kernels": [_as_json(each) for each in kernels],
        "stages": [_as_json(each) for each in stages],
        "all_equal": all(each.is_equal for each in results),
    }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    return 0 if report["all_equal"] else 1


def _as_json(result: ParityResult | StageResult) -> dict[str, object]:
    return {**dataclasses.asdict(result), "is_equal": result.is_equal}


if __name__ == "__main__":
    raise SystemExit(main())
