"""Fused kernels compile to Hopper machine code, which needs no GPU; the interpreter cannot tell."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed on this platform")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="interpreted kernels are not compiled"
)

HOPPER = 90
MODEL = "*bf16"  # pointers whose type is not named below
POINTERS = {
    "rows_ptr": "*i64", "slots_ptr": "*i64", "lengths_ptr": "*i64", "top_k_ptr": "*i64",
    "eos_legal_ptr": "*i64", "seed_ptr": "*i64", "counter_ptr": "*i64", "seen_ptr": "*u8",
    "penalty_ptr": "*fp32", "bans_ptr": "*fp32", "scores_ptr": "*fp32", "uniforms_ptr": "*fp32",
    "temperature_ptr": "*fp32", "top_p_ptr": "*fp32",
}  # fmt: skip
HEADS = {"num_kv": 8, "group": 2, "head_dim": 128}
# The real model's sizes: constants, results that are not in the model's dtype, warps.
KERNELS: dict[str, tuple[dict[str, Any], str, int]] = {
    "rms_norm": ({"has_residual": True, "block": 2048}, MODEL, 8),
    "silu_gate": ({"block": 512}, MODEL, 4),
    "rotate_and_store": ({"num_q": 16, "num_kv": 8, "head_dim": 128}, MODEL, 1),
    "attend_slots": ({**HEADS, "group_block": 2, "block": 32}, MODEL, 4),
    "attend_rows": ({**HEADS, "block": 16}, MODEL, 4),
    "snake_beta": ({"block": 1024}, MODEL, 4),
    "penalised_scores": ({"block": 512}, "*fp32", 4),
    "sample_tokens": ({"block": 4096}, "*i64", 8),
    "philox_uniform": ({"block": 16}, "*fp32", 1),
    "to_pcm16": ({"block": 1024}, "*i16", 4),
}


def _type_of(name: str, out: str) -> str:
    if name == "out_ptr":
        return out
    if name.endswith("_ptr"):
        return POINTERS.get(name, MODEL)
    return "fp32" if name in ("eps", "scale") else "i32"


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_for_hopper(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In bf16 at the real model's sizes, down to machine code within shared memory's limit."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    constants, out, num_warps = KERNELS[name]
    module = "pcm16" if name == "to_pcm16" else name
    kernel = getattr(
        importlib.import_module(f"reference_engine.kernels.{module}"), f"_{name}_kernel"
    )
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else _type_of(n, out) for n in names}
    source = ASTSource(
        kernel, signature, {(names.index(n),): value for n, value in constants.items()}
    )

    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", HOPPER, 32),
        options={"num_warps": num_warps, "enable_fp_fusion": False},
    )

    assert f"sm_{HOPPER}" in compiled.asm["ptx"]
    assert len(compiled.asm["cubin"]) > 0
    assert compiled.metadata.shared <= 48 * 1024
