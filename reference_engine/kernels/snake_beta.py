"""SnakeBeta, the codec's activation: five small operations of the twin in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_engine.kernels.rounding import rounded

__all__ = ["snake_beta"]

_BLOCK = 1024


@triton.jit
def _snake_beta_kernel(
    x_ptr,
    alpha_ptr,
    inverse_beta_ptr,
    out_ptr,
    num_values,
    num_channels,
    num_columns,
    row_stride,
    channel_stride,
    column_stride,
    block: tl.constexpr,
):
    # 64 bit: a large batch of long chunks has more values than int32 counts.
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    is_inside = at < num_values
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    column, channel_row = at % num_columns, at // num_columns
    channel, row = channel_row % num_channels, channel_row // num_channels
    source = row * row_stride + channel * channel_stride + column * column_stride
    x = tl.load(x_ptr + source, mask=is_inside, other=0.0).to(tl.float32)
    alpha = tl.load(alpha_ptr + channel, mask=is_inside, other=0.0).to(tl.float32)
    inverse = tl.load(inverse_beta_ptr + channel, mask=is_inside, other=0.0).to(tl.float32)
    wave = rounded(tl.sin(rounded(x * alpha, dtype)), dtype)
    bent = rounded(inverse * rounded(wave * wave, dtype), dtype)
    tl.store(out_ptr + at, rounded(x + bent, dtype).to(dtype), mask=is_inside)


def snake_beta(x: Tensor, alpha: Tensor, inverse_beta: Tensor) -> Tensor:
    """See `kernels.reference.snake_beta`; `x` may be a strided view, the result is contiguous."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    assert alpha.is_contiguous()
    assert inverse_beta.is_contiguous()
    _snake_beta_kernel[(triton.cdiv(x.numel(), _BLOCK),)](
        x, alpha, inverse_beta, out, x.numel(), x.shape[1], x.shape[2], *x.stride(),
        block=_BLOCK, enable_fp_fusion=False, num_warps=4,
    )  # fmt: skip
    return out
