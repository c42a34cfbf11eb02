"""On a CUDA device: fused kernels, captured stages and the driver against plain calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reference_engine.codec.weights import load_codec
from reference_engine.config import Stages
from reference_engine.device_check import check_stages
from reference_engine.graphs import make_driver
from reference_engine.kernels import kernels_for
from reference_engine.kernels.parity import FULL_SHAPES, check_kernels
from reference_engine.model.text.tokenizer import load_tokenizer
from reference_engine.model.weights import load_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_every_kernel_equals_its_twin_at_the_real_shapes(dtype: torch.dtype):
    """Compiled, not interpreted."""
    results = check_kernels(kernels_for("cuda"), shapes=FULL_SHAPES, device="cuda", dtype=dtype)

    assert [] == [result for result in results if not result.is_equal]


@pytest.mark.parametrize("stages", list(Stages))
def test_captured_stages_equal_plain_calls(tiny_folder: Path, stages: Stages):
    """Codes to the last, samples within rounding, on fused kernels in recorded graphs."""
    model = load_model(tiny_folder, device="cuda", dtype=torch.float32)
    codec = load_codec(tiny_folder, device="cuda")
    tokenizer = load_tokenizer(tiny_folder, model.config)

    result = check_stages(model, codec, tokenizer, stages=stages)

    assert result.is_equal, result


def test_closing_the_driver_gives_memory_back():
    """Device memory after a capture and a close is what it was before."""
    from reference_engine.batch import Shape, Stage

    driver = make_driver("cuda")
    before = driver.memory_bytes()
    held = [torch.zeros(1 << 24, device="cuda")]
    driver.capture(Shape(Stage.FRAME, 1), lambda: held[0].copy_(held[0].sin() + held[0].cos()))
    driver.replay(Shape(Stage.FRAME, 1))
    driver.synchronize()

    held.clear()
    driver.close()

    assert driver.memory_bytes() <= before + (1 << 21)
