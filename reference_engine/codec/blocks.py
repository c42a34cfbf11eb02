"""Causal building blocks of the codec decoder, each fed with what it remembers of its stream.

Every function takes new columns [B, C, n] and the slots' remembered ones, and returns the output
of the new columns alone. `Advance` says how far each row really moved, so that rows with fewer
codec frames than the call's width remember the right columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from reference_engine.codec.state import BlockState
from reference_engine.kernels import KernelSet

__all__ = [
    "Advance",
    "BlockWeights",
    "ConvNextWeights",
    "ConvWeights",
    "SnakeWeights",
    "UnitWeights",
    "causal_conv",
    "causal_transposed_conv",
    "convnext",
    "upsampling_block",
]

_LAYER_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class ConvWeights:
    """A convolution's kernel and bias; `groups` is 1 or the number of channels."""

    weight: Tensor
    bias: Tensor
    dilation: int = 1
    groups: int = 1


@dataclass(frozen=True, slots=True)
class SnakeWeights:
    """SnakeBeta parameters [C, 1], stored as logs in the checkpoint, exponentiated here."""

    alpha: Tensor
    inverse_beta: Tensor


@dataclass(frozen=True, slots=True)
class UnitWeights:
    """One residual unit: snake, dilated conv, snake, pointwise conv."""

    snake1: SnakeWeights
    conv1: ConvWeights
    snake2: SnakeWeights
    conv2: ConvWeights


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """One upsampling block."""

    snake: SnakeWeights
    transposed: ConvWeights
    rate: int
    units: tuple[UnitWeights, ...]


@dataclass(frozen=True, slots=True)
class ConvNextWeights:
    """One doubling stage: transposed conv without overlap, then a ConvNeXt layer."""

    transposed: ConvWeights
    rate: int
    depthwise: ConvWeights
    norm: Tensor  # [C]
    norm_bias: Tensor  # [C]
    expand: Tensor  # [4 C, C]
    expand_bias: Tensor
    project: Tensor  # [C, 4 C], the layer's gamma in it
    project_bias: Tensor


@dataclass(frozen=True, slots=True)
class Advance:
    """Which slots a call serves, how many codec frames each row really brings, and the kernels."""

    slots: Tensor  # [B] int64
    num_frames: Tensor  # [B] int64, at most the call's width
    kernels: KernelSet

    def extend(self, columns: Tensor, new: Tensor, *, per_frame: int) -> Tensor:
        """Remembered columns before the new ones; see `kernels.reference.join_columns`."""
        return self.kernels.join_columns(
            columns, new, self.slots, self.num_frames, per_frame=per_frame
        )


def causal_conv(
    x: Tensor, weights: ConvWeights, columns: Tensor, advance: Advance, *, per_frame: int
) -> Tensor:
    """Stride-1 convolution that looks left only: [B, C, n] -> [B, C', n]."""
    joined = advance.extend(columns, x, per_frame=per_frame)
    return F.conv1d(
        joined, weights.weight, weights.bias, dilation=weights.dilation, groups=weights.groups
    )


def causal_transposed_conv(
    x: Tensor,
    weights: ConvWeights,
    columns: Tensor,
    advance: Advance,
    *,
    rate: int,
    per_frame: int,
) -> Tensor:
    """Upsample by `rate` with a kernel of `2 * rate`: [B, C, n] -> [B, C', n * rate].

    An output column needs its own input column and the one before, so one column is remembered;
    its own outputs (the first `rate`) were given by the call before, and the last `rate` lack
    their second half: both ends are cut.
    """
    joined = advance.extend(columns, x, per_frame=per_frame)
    full = F.conv_transpose1d(joined, weights.weight, weights.bias, stride=rate)
    return full[:, :, rate : rate + x.shape[2] * rate]


def convnext(
    x: Tensor, weights: ConvNextWeights, columns: Tensor, advance: Advance, *, per_frame: int
) -> Tensor:
    """Double the rate, then mix: [B, C, n] -> [B, C, n * rate].

    The transposed convolution's kernel equals its stride, so its columns do not overlap and
    nothing of it is remembered.
    """
    x = F.conv_transpose1d(
        x, weights.transposed.weight, weights.transposed.bias, stride=weights.rate
    )
    mixed = causal_conv(
        x, weights.depthwise, columns, advance, per_frame=per_frame * weights.rate
    ).transpose(1, 2)
    normed = F.layer_norm(
        mixed, mixed.shape[-1:], weights.norm, weights.norm_bias, eps=_LAYER_NORM_EPS
    )
    wide = F.gelu(F.linear(normed, weights.expand, weights.expand_bias))
    narrow = F.linear(wide, weights.project, weights.project_bias)
    return x + narrow.transpose(1, 2)


def upsampling_block(
    x: Tensor,
    weights: BlockWeights,
    state: BlockState,
    advance: Advance,
    *,
    per_frame: int,
) -> Tensor:
    """Snake, upsample, three residual units: [B, C, n] -> [B, C / 2, n * rate]."""
    kernels = advance.kernels
    x = kernels.snake_beta(x, weights.snake.alpha, weights.snake.inverse_beta)
    x = causal_transposed_conv(
        x,
        weights.transposed,
        state.transposed,
        advance,
        rate=weights.rate,
        per_frame=per_frame,
    )
    per_frame *= weights.rate
    for unit, columns in zip(weights.units, state.units, strict=True):
        inner = kernels.snake_beta(x, unit.snake1.alpha, unit.snake1.inverse_beta)
        inner = causal_conv(inner, unit.conv1, columns, advance, per_frame=per_frame)
        inner = kernels.snake_beta(inner, unit.snake2.alpha, unit.snake2.inverse_beta)
        x = x + F.conv1d(inner, unit.conv2.weight, unit.conv2.bias)
    return x
