"""The Triton kernels as a set. Importing this needs Triton; `kernels.kernels_for` chooses."""

from __future__ import annotations

from reference_engine.kernels import KernelSet
from reference_engine.kernels.attend_rows import attend_rows
from reference_engine.kernels.attend_slots import attend_slots
from reference_engine.kernels.join_columns import join_columns
from reference_engine.kernels.pcm16 import to_pcm16
from reference_engine.kernels.penalised_scores import penalised_scores
from reference_engine.kernels.philox_uniform import philox_uniform
from reference_engine.kernels.rms_norm import add_rms_norm, rms_norm
from reference_engine.kernels.rotate_and_store import rotate_and_store
from reference_engine.kernels.sample_tokens import sample_tokens
from reference_engine.kernels.silu_gate import silu_gate
from reference_engine.kernels.snake_beta import snake_beta

__all__ = ["FUSED_KERNELS"]

# Prompt attention stays PyTorch's own (a prompt is read once), and so does the plain argmax.
FUSED_KERNELS = KernelSet(
    rms_norm=rms_norm,
    add_rms_norm=add_rms_norm,
    silu_gate=silu_gate,
    rotate_and_store=rotate_and_store,
    attend_slots=attend_slots,
    attend_rows=attend_rows,
    snake_beta=snake_beta,
    join_columns=join_columns,
    penalised_scores=penalised_scores,
    sample_tokens=sample_tokens,
    philox_uniform=philox_uniform,
    to_pcm16=to_pcm16,
)
