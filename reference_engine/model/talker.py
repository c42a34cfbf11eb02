"""The talker: prompt rows in, then one position a codec frame, drawing the first codebook."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from reference_engine.kernels.reference import prompt_bias
from reference_engine.model.drawing import draw_codes, frame_uniforms, talker_draws
from reference_engine.model.layers import run_stack
from reference_engine.model.sampling import DEFAULT_PLAN, SamplerPlan
from reference_engine.model.state import PADDING_SLOT, ModelState
from reference_engine.model.tts_model import TtsModel

__all__ = [
    "advance_talker",
    "embed_text",
    "first_input",
    "prefill_step",
    "talker_logits",
    "talker_step",
]


def embed_text(model: TtsModel, ids: Tensor) -> Tensor:
    """Text rows as the talker reads them: ids [N] -> [N, hidden]."""
    weights = model.talker
    rows = weights.text_embedding.index_select(0, ids)
    rows = F.silu(torch.addmm(weights.text_fc1_bias, rows, weights.text_fc1))
    return torch.addmm(weights.text_fc2_bias, rows, weights.text_fc2)


def talker_logits(model: TtsModel, hidden: Tensor) -> Tensor:
    """Scores of the first codebook in the model's dtype: [B, hidden] -> [B, vocabulary]."""
    return hidden.mm(model.talker.head)


@torch.inference_mode()
def prefill_step(
    model: TtsModel,
    state: ModelState,
    slots: Tensor,
    *,
    text_ids: Tensor,
    codec_ids: Tensor,
    num_rows: Tensor,
    context: int | None = None,
) -> None:
    """Write the KV of prompt rows, and point each slot at its first codec frame.

    Rows are appended at the slot's length, so a long prompt may come in pieces and a copied prefix
    may be continued. The prompt's last row is not among them: its codec side (`codec_bos`) becomes
    `next_input` and its text side is text row 0, so the first frame is an ordinary frame step.

    Args:
        model: weights.
        state: written in place.
        slots: [B] int64; padding rows name slot 0.
        text_ids: [B, N] int64, right-padded with any valid id.
        codec_ids: [B, N] int64; `model.no_code` where a row has no codec side.
        num_rows: [B] int64 real rows of each request; 0 for padding.
        context: static bound on positions after this step; all a slot holds where None.
    """
    starts = state.lengths.index_select(0, slots)
    offsets = torch.arange(text_ids.shape[1], device=slots.device)
    # Padding may run past the end of a slot: clamp, for it is never read.
    positions = (starts[:, None] + offsets).clamp(max=state.max_positions - 1)
    # Padding tokens write to the padding slot, so that they cannot spoil a full slot's last row.
    owners = torch.where(offsets < num_rows[:, None], slots[:, None], PADDING_SLOT)
    rows = embed_text(model, text_ids.reshape(-1))
    rows = rows + model.code_table.index_select(0, codec_ids.reshape(-1))
    _write_prompt(
        model,
        state,
        slots,
        rows=rows,
        positions=positions,
        owners=owners,
        context=context or state.max_positions,
    )
    state.lengths.index_add_(0, slots, num_rows * (slots != PADDING_SLOT))
    state.next_input.index_copy_(0, slots, first_input(model).expand(slots.shape[0], -1))


def _write_prompt(
    model: TtsModel,
    state: ModelState,
    slots: Tensor,
    *,
    rows: Tensor,
    positions: Tensor,
    owners: Tensor,
    context: int,
) -> None:
    """Run prompt rows [B * N, hidden] through the talker, only for the KV they leave.

    Token positions and the slots they are written to are [B, N].
    """
    stack = model.config.talker.stack
    group = stack.num_heads // stack.num_kv_heads
    bias = prompt_bias(positions, context=context, group=group, dtype=rows.dtype)

    def attend(q: Tensor, layer: int) -> Tensor:
        return model.kernels.attend_prompt(
            q.view(*positions.shape, stack.num_heads, stack.head_dim),
            state.talker_k[layer],
            state.talker_v[layer],
            slots,
            bias,
        )

    run_stack(
        rows,
        model.talker.stack,
        stack,
        model.kernels,
        rotary=model.talker_rotary.at(positions.view(-1)),
        k_caches=state.talker_k,
        v_caches=state.talker_v,
        cache_rows=(owners * state.max_positions + positions).view(-1),
        attend=attend,
    )


def first_input(model: TtsModel) -> Tensor:
    """The codec side of a prompt's last row [hidden]: what a slot's first frame is fed."""
    return model.code_table[model.config.ids.codec_bos]


@torch.inference_mode()
def talker_step(
    model: TtsModel,
    state: ModelState,
    slots: Tensor,
    *,
    sampler: SamplerPlan = DEFAULT_PLAN,
    context: int | None = None,
) -> None:
    """Run the talker one position and draw each slot's first code.

    The caller has seen to it that the text row of this frame is known, or the text has ended.
    Writes KV, `hidden`, `first_code`, `seen`, `status` and `lengths`.

    Args:
        model: weights.
        state: written in place.
        slots: [B] int64; padding rows name slot 0.
        sampler: static; must serve every slot's settings.
        context: static bound on lengths after this step; all a slot holds where None.
    """
    uniforms = frame_uniforms(model.kernels, state, slots, plan=sampler)
    advance_talker(model, state, slots, sampler=sampler, uniforms=uniforms, context=context)


def advance_talker(
    model: TtsModel,
    state: ModelState,
    slots: Tensor,
    *,
    sampler: SamplerPlan,
    uniforms: Tensor | None,
    context: int | None,
) -> None:
    """`talker_step` with the frame's random numbers [B, K] already drawn."""
    hidden = _next_hidden(model, state, slots, context=context or state.max_positions)
    state.hidden.index_copy_(0, slots, hidden)
    num_tokens = state.num_frames.index_select(0, slots)
    scores = model.kernels.penalised_scores(
        talker_logits(model, hidden),
        state.seen,
        slots,
        state.sampling.repetition_penalty.index_select(0, slots),
        model.bans,
        (num_tokens >= state.sampling.min_tokens.index_select(0, slots)).to(torch.int64),
    )
    rows = talker_draws(state.sampling, slots, plan=sampler, uniforms=uniforms)
    codes = draw_codes(model.kernels, scores, rows, plan=sampler, lane=0)
    _record(model, state, slots, hidden=hidden, codes=codes)


def _next_hidden(model: TtsModel, state: ModelState, slots: Tensor, *, context: int) -> Tensor:
    """Feed each slot's next row, text side added, through the talker -> [B, hidden]."""
    stack = model.config.talker.stack
    positions = state.lengths.index_select(0, slots).clamp(max=state.max_positions - 1)
    keys = positions + 1
    # The codec side was rounded when it was summed; the text side is a second rounding, as in the
    # official model.
    rows = state.next_input.index_select(0, slots) + embed_text(
        model, _next_text_ids(model, state, slots)
    )

    def attend(q: Tensor, layer: int) -> Tensor:
        return model.kernels.attend_slots(
            q, state.talker_k[layer], state.talker_v[layer], slots, keys, context=context
        )

    return run_stack(
        rows,
        model.talker.stack,
        stack,
        model.kernels,
        rotary=model.talker_rotary.at(positions),
        k_caches=state.talker_k,
        v_caches=state.talker_v,
        cache_rows=slots * state.max_positions + positions,
        attend=attend,
    )


def _next_text_ids(model: TtsModel, state: ModelState, slots: Tensor) -> Tensor:
    """Text id of each slot's next row: from its ring, or tts_pad once the text is used up."""
    step = state.num_frames.index_select(0, slots)
    ring = state.text_ids.view(-1).index_select(0, slots * state.max_text + step % state.max_text)
    is_known = step < state.text_length.index_select(0, slots)
    return ring.masked_fill(~is_known, model.config.ids.tts_pad)


def _record(
    model: TtsModel, state: ModelState, slots: Tensor, *, hidden: Tensor, codes: Tensor
) -> None:
    """Store what was drawn, and advance the slots that are neither padding nor over."""
    is_request = slots != PADDING_SLOT
    before = state.status.index_select(1, slots)
    is_eos = codes == model.config.ids.codec_eos
    # A sum is non-finite where any element is; overflow of finite ones is out of reach.
    is_broken = ~torch.isfinite(hidden.float().sum(dim=-1))
    state.status.index_copy_(1, slots, before | (torch.stack((is_eos, is_broken)) & is_request))
    state.first_code.index_copy_(0, slots, codes * is_request)
    state.seen.index_put_((slots, codes), is_request)
    state.lengths.index_add_(0, slots, (is_request & ~before.any(dim=0)).to(torch.int64))
