"""Fused kernels compile to Hopper machine code for every launch of the real model.

That needs a compiler and no GPU. The interpreter can tell neither whether a kernel compiles nor
what it takes of a GPU.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed on this platform")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="interpreted kernels are not compiled"
)

from reference_engine.batch import Shape, Stage  # noqa: E402
from reference_engine.config import load_profile  # noqa: E402
from reference_engine.graphs import CpuDriver  # noqa: E402
from reference_engine.kernels import FUSED_NAMES  # noqa: E402
from reference_engine.kernels.fused import FUSED_KERNELS  # noqa: E402
from reference_engine.model_runner import ModelRunner  # noqa: E402
from tests.builders.hopper import (  # noqa: E402
    REGISTERS_A_BLOCK,
    THREADS_A_WARP,
    compiled_launches,
)
from tests.builders.real_shape import load_shapes  # noqa: E402

# One row and many, one token and many: what Triton specialises a launch by.
SHAPES = (
    Shape(Stage.FRAME, 1), Shape(Stage.FRAME, 128), Shape(Stage.PREFILL, 2, 16),
    Shape(Stage.CODEC, 1, 1), Shape(Stage.CODEC, 6, 8),
)  # fmt: skip
# The sine's exact path for large arguments keeps a few words on the stack; spills would be more.
MAX_STACK_BYTES = 64
SHARED_WITHOUT_ASKING = 48 * 1024


def test_every_launch_of_the_real_model_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The 1.7B shape in bf16: without spills, within a block's registers and shared memory."""
    model, codec = load_shapes(tmp_path / "1.7b", "1.7b", FUSED_KERNELS, monkeypatch)
    driver = CpuDriver()
    ModelRunner(model, codec, load_profile("ttfa"), driver)

    with compiled_launches(tmp_path / "cache", monkeypatch) as compiled:
        for shape in SHAPES:
            driver.replay(shape)

    kernels = list(compiled.values())
    print(f"{len(kernels)} specialisations")
    for kernel in kernels:
        used = kernel.resources(tmp_path)
        print(f"{kernel.name}: {used}, {kernel.num_warps} warps, {kernel.shared_bytes} B shared")
        assert used["REG"] * kernel.num_warps * THREADS_A_WARP <= REGISTERS_A_BLOCK, kernel.name
        assert used["STACK"] + used["LOCAL"] <= MAX_STACK_BYTES, kernel.name
        assert kernel.shared_bytes <= SHARED_WITHOUT_ASKING, kernel.name
    # One kernel serves both norms; joining columns is two.
    expected = {*FUSED_NAMES, "keep_columns"} - {"add_rms_norm"}
    assert expected == {kernel.name for kernel in kernels}
