"""The kernels a model runs on, one callable a job; the plain twins unless told otherwise."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from reference_engine.kernels import reference

__all__ = ["FUSED_NAMES", "LAUNCHES_EACH", "REFERENCE_KERNELS", "KernelSet", "kernels_for"]


@dataclass(frozen=True, slots=True)
class KernelSet:
    """One implementation of every fused job; signatures are those of `kernels/reference.py`.

    Put a fused kernel in by `dataclasses.replace(REFERENCE_KERNELS, rms_norm=fused)`.
    """

    rms_norm: Callable[..., Tensor] = reference.rms_norm
    add_rms_norm: Callable[..., tuple[Tensor, Tensor]] = reference.add_rms_norm
    silu_gate: Callable[..., Tensor] = reference.silu_gate
    rotate_and_store: Callable[..., Tensor] = reference.rotate_and_store
    attend_slots: Callable[..., Tensor] = reference.attend_slots
    attend_prompt: Callable[..., Tensor] = reference.attend_prompt
    attend_rows: Callable[..., Tensor] = reference.attend_rows
    snake_beta: Callable[..., Tensor] = reference.snake_beta
    join_columns: Callable[..., Tensor] = reference.join_columns
    penalised_scores: Callable[..., Tensor] = reference.penalised_scores
    greedy_tokens: Callable[..., Tensor] = reference.greedy_tokens
    sample_tokens: Callable[..., Tensor] = reference.sample_tokens
    philox_uniform: Callable[..., Tensor] = reference.philox_uniform
    to_pcm16: Callable[..., Tensor] = reference.to_pcm16


REFERENCE_KERNELS = KernelSet()

# What `fused.py` has a kernel for. Known without importing Triton, so that launches can be counted
# anywhere.
FUSED_NAMES = (
    "rms_norm",
    "add_rms_norm",
    "silu_gate",
    "rotate_and_store",
    "attend_slots",
    "attend_rows",
    "snake_beta",
    "join_columns",
    "penalised_scores",
    "sample_tokens",
    "philox_uniform",
    "to_pcm16",
)
# Those of them that launch more than once.
LAUNCHES_EACH: Mapping[str, int] = MappingProxyType({"join_columns": 2})


def kernels_for(device: torch.device | str) -> KernelSet:
    """The set of a device: Triton's on CUDA where Triton is installed, else the plain twins."""
    is_cuda = torch.device(device).type == "cuda"
    if not is_cuda or importlib.util.find_spec("triton") is None:
        return REFERENCE_KERNELS
    from reference_engine.kernels.fused import FUSED_KERNELS

    return FUSED_KERNELS
