"""The transformer stack that talker and code predictor share: weights, rotation, one forward.

Weights are plain tensors in frozen dataclasses, already merged (one matrix for queries, keys and
values, one for gate and up) and transposed for `torch.mm`, so that a step is a flat list of
matrix products with nothing between them but the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_engine.kernels import KernelSet
from reference_engine.model.config import StackConfig

__all__ = [
    "AttendFunction",
    "LayerWeights",
    "RotaryTables",
    "StackWeights",
    "rotary_tables",
    "run_stack",
]

# (queries [N, heads, D], layer number) -> mixed values [N, heads * D].
AttendFunction = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer; matrices are [in, out]."""

    input_norm: Tensor  # [hidden]
    qkv: Tensor  # [hidden, (heads + 2 kv heads) * D]
    qk_norm: Tensor  # [heads + kv heads, D]
    out: Tensor  # [heads * D, hidden]
    post_norm: Tensor  # [hidden]
    gate_up: Tensor  # [hidden, 2 * intermediate]
    down: Tensor  # [intermediate, hidden]


@dataclass(frozen=True, slots=True)
class StackWeights:
    """All layers and the final norm."""

    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [hidden]


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """cos and sin by position, [positions, 1, D]; sin has its first half negated for `rotate`."""

    cos: Tensor
    sin: Tensor

    def at(self, positions: Tensor) -> RotaryTables:
        """Rows of the given positions [N]."""
        return RotaryTables(
            cos=self.cos.index_select(0, positions), sin=self.sin.index_select(0, positions)
        )


def rotary_tables(
    num_positions: int,
    head_dim: int,
    *,
    theta: float,
    device: torch.device | str,
    dtype: torch.dtype,
) -> RotaryTables:
    """Tabulate the rotation: angles in fp32, cast to the activations' dtype only at the end."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (theta**exponents)
    angles = torch.arange(num_positions).float()[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    return RotaryTables(
        cos=torch.cat((cos, cos), dim=-1)[:, None].to(device=device, dtype=dtype),
        sin=torch.cat((-sin, sin), dim=-1)[:, None].to(device=device, dtype=dtype),
    )


def run_stack(
    x: Tensor,
    weights: StackWeights,
    config: StackConfig,
    kernels: KernelSet,
    *,
    rotary: RotaryTables,
    k_caches: Tensor,
    v_caches: Tensor,
    cache_rows: Tensor,
    attend: AttendFunction,
) -> Tensor:
    """Run every layer over N tokens and apply the final norm.

    Args:
        x: [N, hidden] input rows.
        weights: of the stack.
        config: of the stack.
        kernels: implementations to use.
        rotary: cos and sin already chosen for each token, [N, 1, D].
        k_caches: [L, ..., kv heads, D], contiguous: one cache a layer, written in place.
        v_caches: the same.
        cache_rows: [N] flat row of each token in a layer's cache.
        attend: mixes values for the queries of one layer, after the keys are written.

    Returns:
        [N, hidden], normalised.
    """
    eps = config.rms_norm_eps
    num_tokens = x.shape[0]
    residual = x
    normed = kernels.rms_norm(x, weights.layers[0].input_norm, eps=eps)
    for index, layer in enumerate(weights.layers):
        qkv = normed.mm(layer.qkv).view(num_tokens, config.num_qkv_heads, config.head_dim)
        q = kernels.rotate_and_store(
            qkv,
            layer.qk_norm,
            rotary.cos,
            rotary.sin,
            k_caches[index].view(-1, config.num_kv_heads, config.head_dim),
            v_caches[index].view(-1, config.num_kv_heads, config.head_dim),
            cache_rows,
            eps=eps,
        )
        mixed = attend(q, index).mm(layer.out)
        normed, residual = kernels.add_rms_norm(mixed, residual, layer.post_norm, eps=eps)
        fed = kernels.silu_gate(normed.mm(layer.gate_up)).mm(layer.down)
        is_last = index + 1 == len(weights.layers)
        next_norm = weights.norm if is_last else weights.layers[index + 1].input_norm
        normed, residual = kernels.add_rms_norm(fed, residual, next_norm, eps=eps)
    return normed
