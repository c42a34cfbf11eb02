"""The comparison of captured stages and plain calls, on a CPU where both are plain."""

from __future__ import annotations

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
    result = check_stages(micro.folder, device="cpu", dtype=torch.float32, stages=stages)

    assert (0.0, 1.0, 0) == (result.hidden_error, result.codes_equal, result.pcm_steps)
    assert result.is_equal


def test_a_kernel_that_is_a_little_off_is_found(micro: Loaded, monkeypatch: pytest.MonkeyPatch):
    """A gate one percent too strong shows in the talker's hidden rows."""
    spoilt = replace(REFERENCE_KERNELS, silu_gate=lambda x: REFERENCE_KERNELS.silu_gate(x) * 1.01)
    model = replace(micro.model, kernels=spoilt)
    monkeypatch.setattr(device_check, "load_model", lambda folder, **settings: model)

    result = check_stages(micro.folder, device="cpu", dtype=torch.float32, stages=Stages.FUSED)

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

    assert 2 == main(["--device", "cpu", "--checkpoint", str(tmp_path)])
    assert "set TRITON_INTERPRET=1" in capsys.readouterr().err
