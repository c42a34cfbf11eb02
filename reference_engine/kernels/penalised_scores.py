"""Repetition penalty and bans over the vocabulary in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["penalised_scores"]

_BLOCK = 512


@triton.jit
def _penalised_scores_kernel(
    logits_ptr,
    seen_ptr,
    slots_ptr,
    penalty_ptr,
    bans_ptr,
    eos_legal_ptr,
    out_ptr,
    size,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    is_inside = at < size
    slot = tl.load(slots_ptr + row)
    penalty = tl.zeros((block,), tl.float32) + tl.load(penalty_ptr + row)
    ban_row = tl.load(eos_legal_ptr + row)
    score = tl.load(logits_ptr + row * size + at, mask=is_inside, other=0.0).to(tl.float32)
    is_seen = tl.load(seen_ptr + slot * size + at, mask=is_inside, other=0) != 0
    ban = tl.load(bans_ptr + ban_row * size + at, mask=is_inside, other=0.0)
    # Rounded division, not the faster one: a last bit could make or break a tie.
    damped = tl.where(score < 0, score * penalty, tl.div_rn(score, penalty))
    tl.store(out_ptr + row * size + at, tl.where(is_seen, damped, score) + ban, mask=is_inside)


def penalised_scores(
    logits: Tensor,
    seen: Tensor,
    slots: Tensor,
    penalty: Tensor,
    bans: Tensor,
    eos_legal: Tensor,
) -> Tensor:
    """See `kernels.reference.penalised_scores`."""
    num_rows, size = logits.shape
    for tensor in (logits, seen, slots, penalty, bans, eos_legal):
        assert tensor.is_contiguous()
    out = torch.empty(num_rows, size, dtype=torch.float32, device=logits.device)
    block = min(_BLOCK, triton.next_power_of_2(size))
    _penalised_scores_kernel[(num_rows, triton.cdiv(size, block))](
        logits, seen.view(torch.uint8), slots, penalty, bans, eos_legal, out, size,
        block=block, enable_fp_fusion=False, num_warps=4,
    )  # fmt: skip
    return out
