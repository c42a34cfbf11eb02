"""`python -m reference_engine.device_check`: does a device compute what the plain twins compute?

Two parts, printed as one JSON object: every fused kernel against its twin (`--kernels`), and the
captured stages of checkpoints against the same stages run by plain calls on plain kernels, on the
same device (`--checkpoint`). What raises is written down and the rest is still compared: time on a
device is short. On a CPU kernels run in Triton's interpreter, for which TRITON_INTERPRET=1 must be
set.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from reference_engine.batch import Batch, Shape, Stage, Urgency
from reference_engine.codec.decoder import CodecModel
from reference_engine.codec.weights import load_codec
from reference_engine.config import Profile, Stages, load_profile
from reference_engine.errors import ArgumentError, ReferenceEngineError
from reference_engine.graphs import CpuDriver, GraphDriver, make_driver
from reference_engine.kernels import FUSED_NAMES, REFERENCE_KERNELS
from reference_engine.kernels.parity import (
    FULL_SHAPES,
    TINY_SHAPES,
    ParityResult,
    check_kernels,
)
from reference_engine.messages import SAMPLES_PER_CODEC_FRAME
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model.text.prompts import PromptBuilder, TextLayout
from reference_engine.model.text.tokenizer import TextTokenizer, load_tokenizer
from reference_engine.model.tts_model import TtsModel
from reference_engine.model.weights import load_model
from reference_engine.model_runner import ModelPrompt, ModelRunner

__all__ = ["Fault", "StageResult", "check_stages", "main"]

_TEXTS = ("one two three", "yes", "a little more of this")
_NUM_FRAMES = 6
_CODEC_FRAMES = 4
_ROWS = 4  # one of them padding
# Hidden rows over their largest magnitude. fp32: sums in another order through all layers. bf16:
# rounding, layer upon layer; attention computed in fp32 instead moved the 1.7B shape by 0.022 (CPU,
# random weights), and bf16 lay 0.020 from fp32.
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


@dataclass(frozen=True, slots=True)
class Fault:
    """What could not be compared, and why."""

    what: str
    text: str


def check_stages(
    model: TtsModel, codec: CodecModel, tokenizer: TextTokenizer, *, stages: Stages
) -> StageResult:
    """Speak three short texts twice, on the model's device, and compare.

    Raises:
        ReferenceEngineError: the device cannot be used.
    """
    device, dtype = str(model.device), model.dtype
    plain = replace(model, kernels=REFERENCE_KERNELS), replace(codec, kernels=REFERENCE_KERNELS)
    profile = _profile(stages)
    captured = _Speaker(tokenizer, model, codec, profile, make_driver(device))
    expected = _Speaker(tokenizer, *plain, profile, CpuDriver())
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
        tokenizer: TextTokenizer,
        model: TtsModel,
        codec: CodecModel,
        profile: Profile,
        driver: GraphDriver,
    ) -> None:
        self.runner = ModelRunner(model, codec, profile, driver)
        self._slots = list(range(1, _ROWS))
        builder = PromptBuilder(model.config, tokenizer)
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


class _Findings:
    """Results and faults, in the order they came."""

    def __init__(self) -> None:
        self.kernels: list[ParityResult] = []
        self.stages: list[StageResult] = []
        self.faults: list[Fault] = []

    @property
    def all_equal(self) -> bool:
        """Whether everything was compared and nothing differs."""
        results: list[ParityResult | StageResult] = [*self.kernels, *self.stages]
        return not self.faults and all(each.is_equal for each in results)

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Turn what is raised inside into a fault.

        Whatever it is: a kernel that does not compile, memory that runs out, a device that is lost.
        """
        try:
            yield
        except Exception as error:
            self.faults.append(Fault(what, f"{type(error).__name__}: {error}"))


def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _check_kernels(device: str, findings: _Findings) -> None:
    is_cpu = torch.device(device).type == "cpu"
    if is_cpu and os.environ.get("TRITON_INTERPRET") != "1":
        raise ArgumentError("on a CPU kernels run in Triton's interpreter: set TRITON_INTERPRET=1")
    if not _has_triton():
        raise ArgumentError("there are no fused kernels without Triton: install triton")
    from reference_engine.kernels.fused import FUSED_KERNELS

    shapes = TINY_SHAPES if is_cpu else FULL_SHAPES
    for dtype in (torch.float32, torch.bfloat16):
        for name in FUSED_NAMES:
            with findings.noting(f"{name} in {dtype}"):
                findings.kernels += check_kernels(
                    FUSED_KERNELS, shapes=shapes, device=device, dtype=dtype, names=(name,)
                )


def _check_all_stages(folders: Sequence[Path], device: str, findings: _Findings) -> None:
    """fp32 everywhere; bf16 too where the device is meant for it. Each is loaded once."""
    is_cpu = torch.device(device).type == "cpu"
    for folder in folders:
        for dtype in (torch.float32,) if is_cpu else (torch.float32, torch.bfloat16):
            model = load_model(folder, device=device, dtype=dtype)
            codec = load_codec(folder, device=device)
            tokenizer = load_tokenizer(folder, model.config)
            for stages in Stages:
                with findings.noting(f"{stages.value} stages of {folder.name} in {dtype}"):
                    findings.stages.append(check_stages(model, codec, tokenizer, stages=stages))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the results; 1 where something differs or failed, 2 where nothing could be compared."""
    parser = argparse.ArgumentParser(prog="python -m reference_engine.device_check")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--checkpoint", type=Path, action="append", default=[], metavar="DIR")
    given = parser.parse_args(argv)
    findings = _Findings()
    try:
        make_driver(given.device)
        if given.kernels:
            _check_kernels(given.device, findings)
        _check_all_stages(given.checkpoint, given.device, findings)
    except ReferenceEngineError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    report = {
        "machine": _machine(given.device),
        "kernels": [_as_json(each) for each in findings.kernels],
        "stages": [_as_json(each) for each in findings.stages],
        "faults": [dataclasses.asdict(each) for each in findings.faults],
        "all_equal": findings.all_equal,
    }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    return 0 if findings.all_equal else 1


def _machine(device: str) -> dict[str, str]:
    """What the results hold for."""
    is_cuda = torch.device(device).type == "cuda"
    name = str(torch.cuda.get_device_name(device)) if is_cuda else platform.processor() or "cpu"
    return {
        "device": device,
        "name": name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": importlib.metadata.version("triton") if _has_triton() else "not installed",
    }


def _as_json(result: ParityResult | StageResult) -> dict[str, object]:
    return {**dataclasses.asdict(result), "is_equal": result.is_equal}


if __name__ == "__main__":
    raise SystemExit(main())
