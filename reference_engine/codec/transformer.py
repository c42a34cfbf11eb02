"""The codec's sliding-window transformer, between the codebooks and the upsampling."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reference_engine.codec.blocks import Advance
from reference_engine.codec.state import CodecState
from reference_engine.kernels.reference import rotate
from reference_engine.model.config import StackConfig

__all__ = ["CodecLayerWeights", "CodecTransformerWeights", "run_transformer"]


@dataclass(frozen=True, slots=True)
class CodecLayerWeights:
    """One layer; matrices are [out, in], layer scales in those that give what they scale."""

    input_norm: Tensor
    qkv: Tensor
    out: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class CodecTransformerWeights:
    """Latent width in and out, layers between."""

    input: Tensor  # [hidden, latent]
    input_bias: Tensor
    layers: tuple[CodecLayerWeights, ...]
    norm: Tensor
    output: Tensor  # [latent, hidden]
    output_bias: Tensor
    frequencies: Tensor  # [head_dim / 2] fp32


@dataclass(frozen=True, slots=True)
class _Window:
    """What a call's queries may look at, and how its tokens are rotated."""

    bias: Tensor  # [B, 1, n, W + n], 0 where a query sees a key and -inf elsewhere
    cos: Tensor  # [B, 1, n, D]
    sin: Tensor


def run_transformer(
    x: Tensor,
    weights: CodecTransformerWeights,
    config: StackConfig,
    state: CodecState,
    advance: Advance,
) -> Tensor:
    """Mix codec frames with the 71 before each: [B, n, latent] -> [B, n, latent].

    Reads the position counter but does not advance it: the decoder does, once a call.
    """
    eps, kernels = config.rms_norm_eps, advance.kernels
    window = _look_back(x, weights, state, advance)
    residual = F.linear(x, weights.input, weights.input_bias)
    normed = kernels.rms_norm(residual, weights.layers[0].input_norm, eps=eps)
    for index, layer in enumerate(weights.layers):
        mixed = _attend(normed, layer, config, state, advance, window, index=index)
        normed, residual = kernels.add_rms_norm(mixed, residual, layer.post_norm, eps=eps)
        fed = F.linear(kernels.silu_gate(F.linear(normed, layer.gate_up)), layer.down)
        is_last = index + 1 == len(weights.layers)
        next_norm = weights.norm if is_last else weights.layers[index + 1].input_norm
        normed, residual = kernels.add_rms_norm(fed, residual, next_norm, eps=eps)
    return F.linear(normed, weights.output, weights.output_bias)


def _look_back(
    x: Tensor, weights: CodecTransformerWeights, state: CodecState, advance: Advance
) -> _Window:
    """Mask and rotation of this call's tokens."""
    count, past = x.shape[1], state.window_k.shape[3]
    position = state.position.index_select(0, advance.slots)
    query = torch.arange(count, device=x.device)
    num_keys = past + count
    # In rows of a multiple of 16: what a GPU's fused attention asks for, and else copies them to.
    key = torch.arange(-(-num_keys // 16) * 16, device=x.device)
    # Key j stands `past + i - j` frames before query i: visible from the same frame to `past`
    # frames back, if the stream had begun by then.
    distance = past + query[:, None] - key
    is_near = (distance >= 0) & (distance <= past)
    has_begun = key >= past - position[:, None]  # [B, keys]
    is_hidden = ~(is_near & has_begun[:, None])
    bias = torch.zeros_like(is_hidden, dtype=x.dtype).masked_fill(is_hidden, float("-inf"))
    angles = (position[:, None] + query).float()[:, :, None] * weights.frequencies
    cos, sin = angles.cos(), angles.sin()
    return _Window(
        bias=bias[:, None, :, :num_keys],
        cos=torch.cat((cos, cos), dim=-1)[:, None].to(x.dtype),
        sin=torch.cat((-sin, sin), dim=-1)[:, None].to(x.dtype),
    )


def _attend(
    x: Tensor,
    layer: CodecLayerWeights,
    config: StackConfig,
    state: CodecState,
    advance: Advance,
    window: _Window,
    *,
    index: int,
) -> Tensor:
    """One layer's attention over remembered and new keys: [B, n, hidden] -> [B, n, hidden]."""
    num_rows, count, _ = x.shape
    merged = F.linear(x, layer.qkv).view(num_rows, count, config.num_qkv_heads, config.head_dim)
    # [B, n, heads, D] -> [B, heads, n, D]; queries and keys are rotated in one go.
    qk, v = merged.transpose(1, 2).split_with_sizes(
        [config.num_heads + config.num_kv_heads, config.num_kv_heads], dim=1
    )
    q, k = rotate(qk, window.cos, window.sin).split_with_sizes(
        [config.num_heads, config.num_kv_heads], dim=1
    )
    keys = advance.extend(state.window_k[index], k, per_frame=1)
    values = advance.extend(state.window_v[index], v, per_frame=1)
    mixed = F.scaled_dot_product_attention(
        q,
        keys,
        values,
        attn_mask=window.bias,
        enable_gqa=config.num_heads != config.num_kv_heads,
    )
    return F.linear(mixed.transpose(1, 2).reshape(num_rows, count, -1), layer.out)
