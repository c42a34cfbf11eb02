"""Codes to samples: one stateful call for a first chunk, a later chunk or a whole utterance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reference_engine.codec.blocks import (
    Advance,
    BlockWeights,
    ConvNextWeights,
    ConvWeights,
    SnakeWeights,
    causal_conv,
    convnext,
    upsampling_block,
)
from reference_engine.codec.state import CodecState
from reference_engine.codec.transformer import CodecTransformerWeights, run_transformer
from reference_engine.kernels import KernelSet
from reference_engine.model.config import CodecConfig

__all__ = ["CodecModel", "CodecWeights", "codec_step"]


@dataclass(frozen=True, slots=True)
class CodecWeights:
    """Everything the decoder half of the codec holds."""

    # All codebooks stacked, divided by their usage once: [16 * codebook_size, codebook_dim / 2].
    codebooks: Tensor
    code_offsets: Tensor  # [16] int64, first row of each book
    first_projection: Tensor  # [codebook_dim, codebook_dim / 2], semantic book
    rest_projection: Tensor  # the same, sum of the acoustic books
    pre_conv: ConvWeights
    transformer: CodecTransformerWeights
    upsample: tuple[ConvNextWeights, ...]
    first_conv: ConvWeights
    blocks: tuple[BlockWeights, ...]
    final_snake: SnakeWeights
    final_conv: ConvWeights


@dataclass(frozen=True, slots=True)
class CodecModel:
    """The decoder, ready to step; nothing here changes after loading."""

    config: CodecConfig
    kernels: KernelSet
    weights: CodecWeights

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.weights.codebooks.device

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, state and samples."""
        return self.weights.codebooks.dtype


@torch.inference_mode()
def codec_step(
    codec: CodecModel, state: CodecState, slots: Tensor, *, codes: Tensor, num_frames: Tensor
) -> Tensor:
    """Decode the next codec frames of each stream.

    No layer looks ahead, so a frame's samples come out at once and how a stream is cut into calls
    does not change them. Decoding a whole utterance is this call on a fresh slot.

    Args:
        codec: weights.
        state: written in place.
        slots: [B] int64, no slot twice but padding's 0.
        codes: [B, T, 16] int64. Codes beyond a codebook (end of speech, padding) are clamped.
        num_frames: [B] int64 real frames of each row, at most T; 0 for padding rows.

    Returns:
        Samples [B, T * samples_per_frame] in -1..1; those past a row's real frames mean nothing.
    """
    weights, config, kernels = codec.weights, codec.config, codec.kernels
    advance = Advance(slots=slots, num_frames=num_frames, kernels=kernels)
    x = _dequantise(codec, codes)  # [B, T, 16] -> [B, codebook_dim, T]
    x = causal_conv(x, weights.pre_conv, state.pre_conv, advance, per_frame=1)
    x = run_transformer(
        x.transpose(1, 2), weights.transformer, config.stack, state, advance
    ).transpose(1, 2)
    per_frame = 1
    for stage, columns in zip(weights.upsample, state.upsample, strict=True):
        x = convnext(x, stage, columns, advance, per_frame=per_frame)
        per_frame *= stage.rate
    x = causal_conv(x, weights.first_conv, state.first_conv, advance, per_frame=per_frame)
    for block, block_state in zip(weights.blocks, state.blocks, strict=True):
        x = upsampling_block(x, block, block_state, advance, per_frame=per_frame)
        per_frame *= block.rate
    x = kernels.snake_beta(x, weights.final_snake.alpha, weights.final_snake.inverse_beta)
    x = causal_conv(x, weights.final_conv, state.final_conv, advance, per_frame=per_frame)
    # The padding slot's clock stands still, so that it never leaves the window's first frames.
    state.position.index_add_(0, slots, num_frames * (slots != 0))
    return x[:, 0].clamp(-1.0, 1.0)


def _dequantise(codec: CodecModel, codes: Tensor) -> Tensor:
    """Codes [B, T, K] -> latent columns [B, codebook_dim, T].

    Sum the acoustic books, project, then add the semantic book: the official order of rounding.
    """
    weights = codec.weights
    rows = codes.clamp(0, codec.config.codebook_size - 1) + weights.code_offsets
    vectors = weights.codebooks.index_select(0, rows.view(-1)).view(*codes.shape, -1)
    first = F.linear(vectors[:, :, 0], weights.first_projection)
    rest = F.linear(vectors[:, :, 1:].sum(dim=2), weights.rest_projection)
    return (first + rest).transpose(1, 2)
