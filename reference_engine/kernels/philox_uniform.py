"""Random numbers by address: one program a row, one lane a codebook."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["philox_uniform"]


@triton.jit
def _philox_uniform_kernel(seed_ptr, counter_ptr, out_ptr, num_lanes, block: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, block)
    seed = tl.load(seed_ptr + row)
    offset = tl.load(counter_ptr + row) * num_lanes + lane
    low = (offset & 0xFFFFFFFF).to(tl.uint32)
    high = ((offset >> 32) & 0xFFFFFFFF).to(tl.uint32)
    word, _, _, _ = tl.philox(seed, low, high, low * 0, low * 0)
    signed = word.to(tl.int32, bitcast=True)
    folded = tl.where(signed < 0, -signed - 1, signed)
    # Just below 2^-31, so that the largest draw stays below 1 in fp32.
    uniform = folded.to(tl.float32) * 4.6566127342e-10
    tl.store(out_ptr + row * num_lanes + lane, uniform, mask=lane < num_lanes)


def philox_uniform(seed: Tensor, counter: Tensor, *, num_lanes: int) -> Tensor:
    """See `kernels.reference.philox_uniform`."""
    seed, counter = seed.contiguous(), counter.contiguous()
    out = torch.empty(seed.shape[0], num_lanes, dtype=torch.float32, device=seed.device)
    _philox_uniform_kernel[(seed.shape[0],)](
        seed,
        counter,
        out,
        num_lanes,
        block=triton.next_power_of_2(num_lanes),
        enable_fp_fusion=False,
        num_warps=1,
    )
    return out
