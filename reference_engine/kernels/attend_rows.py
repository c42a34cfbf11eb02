"""The code predictor's attention: at most sixteen keys, so one block holds them all."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_engine.kernels.rounding import rounded

__all__ = ["attend_rows"]


@triton.jit
def _attend_rows_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    num_keys,
    num_tokens,
    row_stride,
    key_stride,
    scale,
    num_kv: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    block: tl.constexpr,
):
    token_row = tl.program_id(0).to(tl.int64)  # batch row * tokens + token
    kv_head = tl.program_id(1)
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    row, token = token_row // num_tokens, token_row % num_tokens
    dims, keys = tl.arange(0, head_dim), tl.arange(0, block)
    # A token sees the keys before it and its own; keys beyond were never written this frame.
    is_seen = keys < num_keys - num_tokens + token + 1
    at = row * row_stride + keys[:, None] * key_stride + kv_head * head_dim + dims[None, :]
    k = tl.load(k_ptr + at, mask=is_seen[:, None], other=0.0).to(tl.float32)
    v = tl.load(v_ptr + at, mask=is_seen[:, None], other=0.0).to(tl.float32)
    for member in tl.static_range(group):
        q_at = ((token_row * num_kv + kv_head) * group + member) * head_dim + dims
        q = tl.load(q_ptr + q_at).to(tl.float32) * scale
        scores = tl.where(is_seen, tl.sum(k * q[None, :], axis=1), float("-inf"))
        weights = tl.exp(scores - tl.max(scores, axis=0))
        mixed = tl.sum(weights[:, None] * v, axis=0) / tl.sum(weights, axis=0)
        tl.store(out_ptr + q_at, rounded(mixed, dtype).to(dtype))


def attend_rows(q: Tensor, k_rows: Tensor, v_rows: Tensor, *, num_keys: int) -> Tensor:
    """See `kernels.reference.attend_rows`."""
    num_rows, num_tokens, num_heads, head_dim = q.shape
    num_kv = k_rows.shape[2]
    for tensor in (q, k_rows, v_rows):
        assert tensor.is_contiguous()
    out = torch.empty(num_rows * num_tokens, num_heads * head_dim, dtype=q.dtype, device=q.device)
    _attend_rows_kernel[(num_rows * num_tokens, num_kv)](
        q,
        k_rows,
        v_rows,
        out,
        num_keys,
        num_tokens,
        k_rows.stride(0),
        k_rows.stride(1),
        head_dim**-0.5,
        num_kv=num_kv,
        group=num_heads // num_kv,
        head_dim=head_dim,
        block=triton.next_power_of_2(k_rows.shape[1]),
        enable_fp_fusion=False,
        num_warps=4,
    )
    return out
