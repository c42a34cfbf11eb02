"""Head norms, rotary embedding and the write into the KV cache: one pass over the projection."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_engine.kernels.rounding import rounded

__all__ = ["rotate_and_store"]


@triton.jit
def _rotate_and_store_kernel(
    qkv_ptr,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    q_ptr,
    k_rows_ptr,
    v_rows_ptr,
    rows_ptr,
    rotary_stride,
    eps,
    num_q: tl.constexpr,
    num_kv: tl.constexpr,
    head_dim: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    at = tl.arange(0, head_dim)
    dtype: tl.constexpr = q_ptr.dtype.element_ty
    source = qkv_ptr + (token * (num_q + 2 * num_kv) + head) * head_dim
    x = tl.load(source + at).to(tl.float32)
    row = tl.load(rows_ptr + token)
    if head >= num_q + num_kv:
        v_head = head - (num_q + num_kv)
        tl.store(v_rows_ptr + (row * num_kv + v_head) * head_dim + at, x.to(dtype))
    else:
        # The other half of each rotated pair is loaded again: registers cannot be rolled.
        rolled_at = (at + head_dim // 2) % head_dim
        rolled = tl.load(source + rolled_at).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, axis=0) / head_dim + eps)
        weight = tl.load(weight_ptr + head * head_dim + at).to(tl.float32)
        rolled_weight = tl.load(weight_ptr + head * head_dim + rolled_at).to(tl.float32)
        x = rounded(rounded(x * scale, dtype) * weight, dtype)
        rolled = rounded(rounded(rolled * scale, dtype) * rolled_weight, dtype)
        cos = tl.load(cos_ptr + token * rotary_stride + at).to(tl.float32)
        sin = tl.load(sin_ptr + token * rotary_stride + at).to(tl.float32)
        turned = rounded(rounded(x * cos, dtype) + rounded(rolled * sin, dtype), dtype).to(dtype)
        if head < num_q:
            tl.store(q_ptr + (token * num_q + head) * head_dim + at, turned)
        else:
            k_head = head - num_q
            tl.store(k_rows_ptr + (row * num_kv + k_head) * head_dim + at, turned)


def rotate_and_store(
    qkv: Tensor,
    norm_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    k_rows: Tensor,
    v_rows: Tensor,
    rows: Tensor,
    *,
    eps: float,
) -> Tensor:
    """See `kernels.reference.rotate_and_store`; cos and sin may be one row for all tokens."""
    num_tokens, num_heads, head_dim = qkv.shape
    num_kv = k_rows.shape[1]
    num_q = num_heads - 2 * num_kv
    for tensor in (qkv, norm_weight, cos, sin, k_rows, v_rows, rows):
        assert tensor.is_contiguous()
    q = torch.empty(num_tokens, num_q, head_dim, dtype=qkv.dtype, device=qkv.device)
    _rotate_and_store_kernel[(num_tokens, num_heads)](
        qkv,
        norm_weight,
        cos,
        sin,
        q,
        k_rows,
        v_rows,
        rows,
        head_dim if cos.shape[0] > 1 else 0,
        eps,
        num_q=num_q,
        num_kv=num_kv,
        head_dim=head_dim,
        enable_fp_fusion=False,
        num_warps=1,
    )
    return q
