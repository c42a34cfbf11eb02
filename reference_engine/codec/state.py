"""What the codec decoder remembers of every stream: inputs it will need again, in fixed slots.

A causal layer needs the last few columns of its own input and nothing else. Keeping exactly those
makes any cutting of a stream into calls give the samples of one whole call, and a whole decode is
the same call from fresh state. Slot 0 is padding, as in the model's state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_engine.model.config import CodecConfig

__all__ = [
    "RESIDUAL_DILATIONS",
    "RESIDUAL_KERNEL",
    "BlockState",
    "CodecState",
    "allocate",
    "reset_slot",
    "reset_slots",
]

# Kernel sizes are architecture, not configuration: the official decoder hard-codes them.
PRE_CONV_KERNEL = 3
CONVNEXT_KERNEL = 7
EDGE_KERNEL = 7
RESIDUAL_KERNEL = 7
RESIDUAL_DILATIONS = (1, 3, 9)


@dataclass(frozen=True, slots=True)
class BlockState:
    """One upsampling block: the column before the transposed convolution, then three units."""

    transposed: Tensor  # [S, C_in, 1]
    units: tuple[Tensor, ...]  # each [S, C_out, 6 * dilation]


@dataclass(frozen=True, slots=True)
class CodecState:
    """Input columns and attention window of every stream; S slots, L layers, W window - 1."""

    position: Tensor  # [S] int64, codec frames decoded
    pre_conv: Tensor  # [S, codebook_dim, 2]
    window_k: Tensor  # [L, S, heads, W, head_dim], newest last, keys already rotated
    window_v: Tensor  # [L, S, heads, W, head_dim]
    upsample: tuple[Tensor, ...]  # each [S, latent, 6]: the ConvNeXt inputs
    first_conv: Tensor  # [S, latent, 6]
    blocks: tuple[BlockState, ...]
    final_conv: Tensor  # [S, C_last, 6]

    @property
    def num_slots(self) -> int:
        """Slots allocated, the padding slot included."""
        return self.position.shape[0]

    def columns(self) -> Iterator[Tensor]:
        """Every convolution's remembered columns, each `[S, C, n]`."""
        yield self.pre_conv
        yield from self.upsample
        yield self.first_conv
        for block in self.blocks:
            yield block.transposed
            yield from block.units
        yield self.final_conv


def allocate(
    config: CodecConfig, num_slots: int, *, device: torch.device | str, dtype: torch.dtype
) -> CodecState:
    """Allocate fresh state for `num_slots` streams, slot 0 included.

    Raises:
        ValueError: fewer than two slots.
    """
    if num_slots < 2:
        raise ValueError("num_slots counts the padding slot: at least 2")
    stack = config.stack

    def columns(channels: int, count: int) -> Tensor:
        return torch.zeros(num_slots, channels, count, dtype=dtype, device=device)

    def window() -> Tensor:
        return torch.zeros(
            stack.num_layers,
            num_slots,
            stack.num_kv_heads,
            config.sliding_window - 1,
            stack.head_dim,
            dtype=dtype,
            device=device,
        )

    channels = config.block_channels
    blocks = tuple(
        BlockState(
            transposed=columns(channels[n], 1),
            units=tuple(
                columns(channels[n + 1], (RESIDUAL_KERNEL - 1) * dilation)
                for dilation in RESIDUAL_DILATIONS
            ),
        )
        for n in range(len(config.upsample_rates))
    )
    return CodecState(
        position=torch.zeros(num_slots, dtype=torch.int64, device=device),
        pre_conv=columns(config.codebook_dim, PRE_CONV_KERNEL - 1),
        window_k=window(),
        window_v=window(),
        upsample=tuple(
            columns(config.latent_size, CONVNEXT_KERNEL - 1) for _ in config.upsampling_ratios
        ),
        first_conv=columns(config.latent_size, EDGE_KERNEL - 1),
        blocks=blocks,
        final_conv=columns(channels[-1], EDGE_KERNEL - 1),
    )


def reset_slots(state: CodecState, mask: Tensor) -> None:
    """Make the streams under `mask` [S] bool new: silence before them, position 0.

    The attention window is cleared too: a NaN left there would spoil the next stream's sum even
    under an attention mask.
    """
    state.position.masked_fill_(mask, 0)
    for columns in state.columns():
        columns.masked_fill_(mask[:, None, None], 0)
    for window in (state.window_k, state.window_v):
        window.masked_fill_(mask[None, :, None, None, None], 0)


def reset_slot(state: CodecState, slot: int) -> None:
    """`reset_slots` for one stream, touching its memory alone: under a mask the windows of all
    slots are read and written, which at the real shape are gigabytes."""
    state.position[slot].zero_()
    for columns in state.columns():
        columns[slot].zero_()
    for window in (state.window_k, state.window_v):
        window[:, slot].zero_()
