"""The sampler: temperature, top-k, top-p and the draw, one program a row, the row in registers.

Both thresholds are found by searching the bits of a key that orders as the scores do, so nothing
is sorted, any top-k is served at the same cost, and ties stay in.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["sample_tokens"]

_LOWEST = tl.constexpr(-2147483648)


@triton.jit
def _largest_key(keys, weights, wanted):
    """Largest key such that the weights of all keys from it up reach `wanted`."""
    # Bit 31 first: adding it to the smallest int32 gives 0, the smallest non-negative key.
    reached = tl.sum(tl.where(keys >= 0, weights, 0.0), axis=0)
    low = tl.where(reached >= wanted, 0, _LOWEST).to(tl.int32)
    for step in range(31):
        trial = low + (1 << (30 - step))
        reached = tl.sum(tl.where(keys >= trial, weights, 0.0), axis=0)
        low = tl.where(reached >= wanted, trial, low)
    return low


@triton.jit
def _score_of(key):
    """The score a key stands for."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _sample_tokens_kernel(
    scores_ptr,
    uniforms_ptr,
    uniforms_stride,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    out_ptr,
    size,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    is_inside = at < size
    scores = tl.load(scores_ptr + row * size + at, mask=is_inside, other=float("-inf"))
    scores = scores.to(tl.float32)
    # Rounded division, not the faster one: a last bit could make or break a tie.
    temperature = tl.zeros((block,), tl.float32) + tl.load(temperature_ptr + row)
    scores = tl.div_rn(scores, temperature)
    scores = tl.where(is_inside, scores, float("-inf"))
    bits = scores.to(tl.int32, bitcast=True)
    keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    # Counts up to 2^24 are exact in fp32; top-k may be "more than any vocabulary".
    wanted = tl.minimum(tl.load(top_k_ptr + row), size).to(tl.float32)
    threshold = _score_of(_largest_key(keys, is_inside.to(tl.float32), wanted))
    is_kept = is_inside & (scores >= threshold)
    best = tl.max(scores, axis=0)
    mass = tl.where(is_kept, tl.exp(scores - best), 0.0)
    top_p = tl.load(top_p_ptr + row)
    if top_p < 1.0:
        share = mass / tl.sum(mass, axis=0)
        nucleus = _score_of(_largest_key(keys, share, top_p))
        # A sum that rounding kept below top_p leaves a key that is no number: nothing is cut.
        mass = tl.where(scores < nucleus, 0.0, mass)
    summed = tl.cumsum(mass, axis=0)
    target = tl.max(summed, axis=0) * tl.load(uniforms_ptr + row * uniforms_stride)
    # Only codes that have mass, since a parallel sum need not rise from one code to the next.
    drawn = tl.min(tl.where((summed > target) & (mass > 0), at, block), axis=0)
    # A row of NaN has none; it is flagged elsewhere and must only stay within the vocabulary.
    tl.store(out_ptr + row, tl.where(drawn < size, drawn, 0).to(tl.int64))


def sample_tokens(
    scores: Tensor,
    uniforms: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    *,
    top_k_cap: int | None,
) -> Tensor:
    """See `kernels.reference.sample_tokens`; `top_k_cap` changes nothing here."""
    del top_k_cap
    num_rows, size = scores.shape
    for tensor in (scores, temperature, top_k, top_p):
        assert tensor.is_contiguous()
    out = torch.empty(num_rows, dtype=torch.int64, device=scores.device)
    block = triton.next_power_of_2(size)
    _sample_tokens_kernel[(num_rows,)](
        scores, uniforms, uniforms.stride(0), temperature, top_k, top_p, out, size,
        block=block, enable_fp_fusion=False, num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip
    return out
