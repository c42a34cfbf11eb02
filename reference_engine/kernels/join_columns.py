"""The codec's memory: remembered columns before new ones, and the newest of them kept.

Two launches: the second writes what the first has read. The twin takes seven, for every layer that
remembers anything.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["join_columns"]

_TILE = 1024
# Numbers of a tile along a row of numbers: most rows are either long or a few columns.
_LONG, _SHORT = 1024, 64
# Not worth a kernel of their own for each divisor.
_SIZES = ["num_channels", "num_kept", "num_new"]


@triton.jit(do_not_specialize=[*_SIZES, "row_stride", "channel_stride"])
def _join_columns_kernel(
    columns_ptr,
    new_ptr,
    slots_ptr,
    out_ptr,
    num_channels,
    num_kept,
    num_new,
    row_stride,
    channel_stride,
    column_stride,
    depth: tl.constexpr,
    channel_block: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(2).to(tl.int64)
    channels = (tl.program_id(1) * channel_block + tl.arange(0, channel_block))[:, None]
    at = (tl.program_id(0) * block + tl.arange(0, block))[None, :]
    size = num_kept + num_new
    is_inside = (channels < num_channels) & (at < size)
    is_kept = at < num_kept
    slot = tl.load(slots_ptr + row)
    kept_at = (slot * num_channels + channels) * num_kept + at
    kept = tl.load(columns_ptr + kept_at, mask=is_inside & is_kept, other=0.0)
    new = at - num_kept
    new_at = row * row_stride + channels * channel_stride
    new_at += (new // depth) * column_stride + new % depth
    added = tl.load(new_ptr + new_at, mask=is_inside & (at >= num_kept), other=0.0)
    joined = tl.where(is_kept, kept, added)
    tl.store(out_ptr + (row * num_channels + channels) * size + at, joined, mask=is_inside)


@triton.jit(do_not_specialize=[*_SIZES, "shift"])
def _keep_columns_kernel(
    columns_ptr,
    joined_ptr,
    slots_ptr,
    num_frames_ptr,
    num_channels,
    num_kept,
    num_new,
    shift,
    channel_block: tl.constexpr,
    block: tl.constexpr,
):
    row = tl.program_id(2).to(tl.int64)
    channels = (tl.program_id(1) * channel_block + tl.arange(0, channel_block))[:, None]
    at = (tl.program_id(0) * block + tl.arange(0, block))[None, :]
    is_inside = (channels < num_channels) & (at < num_kept)
    slot = tl.load(slots_ptr + row)
    moved = tl.load(num_frames_ptr + row) * shift
    joined_at = (row * num_channels + channels) * (num_kept + num_new) + moved + at
    newest = tl.load(joined_ptr + joined_at, mask=is_inside, other=0.0)
    kept_at = (slot * num_channels + channels) * num_kept + at
    tl.store(columns_ptr + kept_at, newest, mask=is_inside)


def join_columns(
    columns: Tensor, new: Tensor, slots: Tensor, num_frames: Tensor, *, per_frame: int
) -> Tensor:
    """See `kernels.reference.join_columns`; a column's own numbers lie side by side in `new`."""
    for tensor in (columns, slots, num_frames):
        assert tensor.is_contiguous()
    num_rows, num_channels, count, *depths = new.shape
    depth = depths[0] if depths else 1
    assert depth == 1 or new.stride(3) == 1
    out = torch.empty(
        num_rows, num_channels, columns.shape[2] + count, *depths,
        dtype=new.dtype, device=new.device,
    )  # fmt: skip
    num_kept, num_new = columns.shape[2] * depth, count * depth
    grid, blocks = _tiles(num_kept + num_new, num_channels, num_rows)
    _join_columns_kernel[grid](
        columns, new, slots, out, num_channels, num_kept, num_new, *new.stride()[:3],
        depth=depth, **blocks, num_warps=4,
    )  # fmt: skip
    grid, blocks = _tiles(num_kept, num_channels, num_rows)
    _keep_columns_kernel[grid](
        columns, out, slots, num_frames, num_channels, num_kept, num_new, per_frame * depth,
        **blocks, num_warps=4,
    )  # fmt: skip
    return out


def _tiles(
    size: int, num_channels: int, num_rows: int
) -> tuple[tuple[int, int, int], dict[str, int]]:
    """Grid and blocks for rows of `size` numbers, a row a channel."""
    block = _LONG if size > _LONG // 2 else _SHORT
    channel_block = _TILE // block
    grid = triton.cdiv(size, block), triton.cdiv(num_channels, channel_block), num_rows
    return grid, {"channel_block": channel_block, "block": block}
