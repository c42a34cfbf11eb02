"""RMSNorm, alone and with the residual added in the same pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_engine.kernels.rounding import rounded

__all__ = ["add_rms_norm", "rms_norm"]


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    normed_ptr,
    total_ptr,
    size,
    num_weight_rows,
    eps,
    has_residual: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    is_inside = at < size
    dtype: tl.constexpr = normed_ptr.dtype.element_ty
    start = row.to(tl.int64) * size
    x = tl.load(x_ptr + start + at, mask=is_inside, other=0.0).to(tl.float32)
    if has_residual:
        residual = tl.load(residual_ptr + start + at, mask=is_inside, other=0.0).to(tl.float32)
        x = rounded(residual + x, dtype)
        tl.store(total_ptr + start + at, x.to(dtype), mask=is_inside)
    weight_row = row % num_weight_rows
    weight = tl.load(weight_ptr + weight_row * size + at, mask=is_inside, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / size
    # Rounded before the weight is applied, as the official layer does.
    normed = rounded(x * tl.rsqrt(mean_square + eps), dtype) * weight
    tl.store(normed_ptr + start + at, rounded(normed, dtype).to(dtype), mask=is_inside)


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """See `kernels.reference.rms_norm`; `weight` has the last dimensions of `x`."""
    rows = x.contiguous()
    normed = torch.empty_like(rows)
    _launch(rows, None, weight, normed, None, eps=eps)
    return normed


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    """See `kernels.reference.add_rms_norm`."""
    rows, residual = x.contiguous(), residual.contiguous()
    normed, total = torch.empty_like(rows), torch.empty_like(rows)
    _launch(rows, residual, weight, normed, total, eps=eps)
    return normed, total


def _launch(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    normed: Tensor,
    total: Tensor | None,
    *,
    eps: float,
) -> None:
    """One program a row: a row of the widths served here fits into registers."""
    size = x.shape[-1]
    assert weight.is_contiguous()
    assert weight.shape[-1] == size
    block = triton.next_power_of_2(size)
    _rms_norm_kernel[(x.numel() // size,)](
        x,
        x if residual is None else residual,
        weight,
        normed,
        normed if total is None else total,
        size,
        weight.numel() // size,
        eps,
        has_residual=residual is not None,
        block=block,
        enable_fp_fusion=False,
        num_warps=max(1, min(8, block // 256)),
    )
