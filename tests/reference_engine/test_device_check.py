"""The comparison of captured stages and plain calls, on a CPU where both are plain."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from reference_engine import device_check
from reference_engine.config import Stages
from reference_engine.device_check import StageResult, check_stages, main
from reference_engine.kernels import REFERENCE_KERNELS
from tests.builders.checkpoints import Loaded


@pytest.mark.parametrize("stages", list(Stages))
def test_the_same_kernels_give_the_same_codes_and_samples(micro: Loaded, stages: Stages):
    """Prefill, six codec frames of three requests, and a chunk of each."""
    result = check_stages(micro.model, micro.codec, micro.tokenizer, stages=stages)

    assert (0.0, 1.0, 0) == (result.hidden_error, result.codes_equal, result.pcm_steps)
    assert result.is_equal


def test_a_kernel_that_is_a_little_off_is_found(micro: Loaded):
    """A gate one percent too strong shows in the talker's hidden rows."""
    spoilt = replace(REFERENCE_KERNELS, silu_gate=lambda x: REFERENCE_KERNELS.silu_gate(x) * 1.01)
    model = replace(micro.model, kernels=spoilt)

    result = check_stages(model, micro.codec, micro.tokenizer, stages=Stages.FUSED)

    assert not result.is_equal


@pytest.mark.parametrize(
    ("changed", "is_equal"),
    [
        ({}, True),
        ({"codes_equal": 0.99}, False),
        ({"codes_equal": 0.9, "must_codes_agree": False}, True),
        ({"hidden_error": float("nan")}, False),
        ({"pcm_steps": 9}, False),
    ],
)
def test_what_counts_as_equal(changed: dict[str, object], is_equal: bool):
    """In bf16 near ties may part the codes; NaN never passes."""
    values = {
        "stages": "fused", "dtype": "float32", "hidden_error": 0.0, "hidden_tolerance": 1e-3,
        "codes_equal": 1.0, "must_codes_agree": True, "pcm_steps": 0, "pcm_tolerance": 4, **changed,
    }  # fmt: skip

    assert is_equal is StageResult(**values).is_equal


def test_kernels_on_a_cpu_ask_for_the_interpreter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Compiled kernels cannot run there; the message says what to set."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)

    assert 2 == main(["--device", "cpu", "--kernels"])
    assert "set TRITON_INTERPRET=1" in capsys.readouterr().err


def test_what_raises_is_written_down_and_the_rest_compared(
    micro: Loaded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """One form of the stages loses its device; the other is still there, and the exit code is 1."""

    def check(*loaded: object, stages: Stages) -> StageResult:
        if stages is Stages.SPLIT:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return StageResult(stages.value, "float32", 0.0, 1e-3, 1.0, True, 0, 4)

    monkeypatch.setattr(device_check, "check_stages", check)

    code = main(["--device", "cpu", "--checkpoint", str(micro.folder)])

    found = json.loads(capsys.readouterr().out)
    assert 1 == code
    assert ["fused"] == [each["stages"] for each in found["stages"]]
    (fault,) = found["faults"]
    assert "illegal memory access" in fault["text"]
    assert not found["all_equal"]


def test_the_results_name_what_they_hold_for(
    micro: Loaded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Device and versions, whatever was compared."""
    equal = StageResult("fused", "float32", 0.0, 1e-3, 1.0, True, 0, 4)
    monkeypatch.setattr(device_check, "check_stages", lambda *loaded, stages: equal)

    assert 0 == main(["--device", "cpu", "--checkpoint", str(micro.folder)])

    machine = json.loads(capsys.readouterr().out)["machine"]
    assert ("cpu", torch.__version__) == (machine["device"], machine["torch"])
