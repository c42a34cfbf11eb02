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
    num_channels,
    num_columns,
    row_stride,
    channel_stride,
    column_stride,
    channel_block: tl.constexpr,
    column_block: tl.constexpr,
):
    # A tile of channels and columns, so that nobody divides to learn which channel a value is of.
    row = tl.program_id(2).to(tl.int64)
    channels = tl.program_id(1) * channel_block + tl.arange(0, channel_block)
    columns = tl.program_id(0) * column_block + tl.arange(0, column_block)
    is_channel = channels < num_channels
    is_inside = is_channel[:, None] & (columns < num_columns)[None, :]
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    source = (
        row * row_stride + channels[:, None] * channel_stride + columns[None, :] * column_stride
    )
    x = tl.load(x_ptr + source, mask=is_inside, other=0.0).to(tl.float32)
    alpha = tl.load(alpha_ptr + channels, mask=is_channel, other=0.0).to(tl.float32)[:, None]
    inverse = tl.load(inverse_beta_ptr + channels, mask=is_channel, other=0.0)
    inverse = inverse.to(tl.float32)[:, None]
    wave = rounded(tl.sin(rounded(x * alpha, dtype)), dtype)
    bent = rounded(inverse * rounded(wave * wave, dtype), dtype)
    at = (row * num_channels + channels[:, None]) * num_columns + columns[None, :]
    tl.store(out_ptr + at, rounded(x + bent, dtype).to(dtype), mask=is_inside)


def snake_beta(x: Tensor, alpha: Tensor, inverse_beta: Tensor) -> Tensor:
    """See `kernels.reference.snake_beta`; `x` may be a strided view, the result is contiguous."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    assert alpha.is_contiguous()
    assert inverse_beta.is_contiguous()
    num_rows, num_channels, num_columns = x.shape
    column_block = min(_BLOCK, triton.next_power_of_2(num_columns))
    channel_block = _BLOCK // column_block
    grid = (triton.cdiv(num_columns, column_block), triton.cdiv(num_channels, channel_block))
    _snake_beta_kernel[(*grid, num_rows)](
        x, alpha, inverse_beta, out, num_channels, num_columns, *x.stride(),
        channel_block=channel_block, column_block=column_block,
        enable_fp_fusion=False, num_warps=4,
    )  # fmt: skip
    return out
