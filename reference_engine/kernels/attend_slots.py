"""Decode attention: one query a row over the keys of its slot, read where they lie.

The twin copies each slot's keys together first; this reads only the keys a row has, block by
block, with a running softmax. One program serves the query heads that share a key head. A row's
keys are not split over programs: at a few hundred keys (one a codec frame) the loop is short.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_engine.kernels.rounding import rounded

__all__ = ["attend_slots"]

_KEYS_PER_BLOCK = 32


@triton.jit
def _attend_slots_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    slots_ptr,
    lengths_ptr,
    out_ptr,
    slot_stride,
    position_stride,
    context,
    scale,
    num_kv: tl.constexpr,
    group: tl.constexpr,
    group_block: tl.constexpr,
    head_dim: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    dims = tl.arange(0, head_dim)
    members = tl.arange(0, group_block)
    heads = (row * num_kv + kv_head) * group + members
    q_at = heads[:, None] * head_dim + dims[None, :]
    is_member = (members < group)[:, None]
    q = tl.load(q_ptr + q_at, mask=is_member, other=0.0).to(tl.float32) * scale
    slot = tl.load(slots_ptr + row)
    length = tl.minimum(tl.load(lengths_ptr + row), context)
    base = slot * slot_stride + kv_head * head_dim
    best = tl.full((group_block,), float("-inf"), tl.float32)
    total = tl.zeros((group_block,), tl.float32)
    mixed = tl.zeros((group_block, head_dim), tl.float32)
    for start in range(0, length, block):
        keys = start + tl.arange(0, block)
        is_key = keys < length
        at = base + keys[:, None].to(tl.int64) * position_stride + dims[None, :]
        k = tl.load(k_ptr + at, mask=is_key[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=is_key[:, None], other=0.0).to(tl.float32)
        scores = tl.sum(q[:, None, :] * k[None, :, :], axis=2)
        scores = tl.where(is_key[None, :], scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, axis=1))
        shrink = tl.exp(best - new_best)
        weights = tl.exp(scores - new_best[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        mixed = mixed * shrink[:, None] + tl.sum(weights[:, :, None] * v[None, :, :], axis=1)
        best = new_best
    mixed = rounded(mixed / total[:, None], dtype)
    tl.store(out_ptr + q_at, mixed.to(dtype), mask=is_member)


def attend_slots(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    lengths: Tensor,
    *,
    context: int,
) -> Tensor:
    """See `kernels.reference.attend_slots`; every length is at least 1."""
    num_rows, num_heads, head_dim = q.shape
    num_kv = k_cache.shape[2]
    group = num_heads // num_kv
    for tensor in (q, k_cache, v_cache, slots, lengths):
        assert tensor.is_contiguous()
    out = torch.empty(num_rows, num_heads * head_dim, dtype=q.dtype, device=q.device)
    _attend_slots_kernel[(num_rows, num_kv)](
        q,
        k_cache,
        v_cache,
        slots,
        lengths,
        out,
        k_cache.stride(0),
        k_cache.stride(1),
        context,
        head_dim**-0.5,
        num_kv=num_kv,
        group=group,
        group_block=triton.next_power_of_2(group),
        head_dim=head_dim,
        block=_KEYS_PER_BLOCK,
        enable_fp_fusion=False,
        num_warps=4,
    )
    return out
