"""SwiGLU's gate: both halves of the merged projection in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_engine.kernels.rounding import rounded

__all__ = ["silu_gate"]

_BLOCK = 512


@triton.jit
def _silu_gate_kernel(gate_up_ptr, out_ptr, size, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    is_inside = at < size
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    gate = tl.load(gate_up_ptr + row * 2 * size + at, mask=is_inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * 2 * size + size + at, mask=is_inside, other=0.0).to(tl.float32)
    gated = rounded(gate / (1.0 + tl.exp(-gate)), dtype) * up
    tl.store(out_ptr + row * size + at, rounded(gated, dtype).to(dtype), mask=is_inside)


def silu_gate(gate_up: Tensor) -> Tensor:
    """See `kernels.reference.silu_gate`; any leading dimensions."""
    gate_up = gate_up.contiguous()
    size = gate_up.shape[-1] // 2
    out = torch.empty(*gate_up.shape[:-1], size, dtype=gate_up.dtype, device=gate_up.device)
    block = min(_BLOCK, triton.next_power_of_2(size))
    _silu_gate_kernel[(out.numel() // size, triton.cdiv(size, block))](
        gate_up, out, size, block=block, enable_fp_fusion=False, num_warps=4
    )
    return out
