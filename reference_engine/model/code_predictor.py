"""The code predictor: fifteen more codes for each codec frame, then the talker's next input."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from reference_engine.model.drawing import draw_codes, frame_uniforms, predictor_draws
from reference_engine.model.layers import RotaryTables, run_stack
from reference_engine.model.sampling import DEFAULT_PLAN, SamplerPlan
from reference_engine.model.state import PADDING_SLOT, ModelState
from reference_engine.model.tts_model import TtsModel

__all__ = ["ChooseCodes", "advance_predictor", "frame_input", "predict_codes", "predictor_step"]

# (scores [B, codebook] in the model's dtype, codebook number 1..15) -> codes [B].
ChooseCodes = Callable[[Tensor, int], Tensor]


@torch.inference_mode()
def predictor_step(
    model: TtsModel, state: ModelState, slots: Tensor, *, sampler: SamplerPlan = DEFAULT_PLAN
) -> None:
    """Complete the codec frame whose first code `talker_step` has drawn.

    Writes `codes`, `next_input` and `num_frames`. A slot whose speech has ended keeps its count.

    Args:
        model: weights.
        state: written in place.
        slots: [B] int64, B at most `state.max_rows`; padding rows name slot 0.
        sampler: static; must serve every slot's settings.
    """
    uniforms = frame_uniforms(model.kernels, state, slots, plan=sampler)
    advance_predictor(model, state, slots, sampler=sampler, uniforms=uniforms)


def advance_predictor(
    model: TtsModel,
    state: ModelState,
    slots: Tensor,
    *,
    sampler: SamplerPlan,
    uniforms: Tensor | None,
) -> None:
    """`predictor_step` with the frame's random numbers [B, K] already drawn."""
    rows = predictor_draws(state.sampling, slots, plan=sampler, uniforms=uniforms)

    def choose(scores: Tensor, codebook: int) -> Tensor:
        return draw_codes(model.kernels, scores, rows, plan=sampler, lane=codebook)

    frame = predict_codes(
        model,
        state,
        hidden=state.hidden.index_select(0, slots),
        first_codes=state.first_code.index_select(0, slots),
        choose=choose,
    )
    state.next_input.index_copy_(0, slots, frame_input(model, frame))
    goes_on = (slots != PADDING_SLOT) & ~state.status.index_select(1, slots).any(dim=0)
    # Frames of padding and of ended slots land in the padding slot: a full slot's last frame stays.
    owners = slots * goes_on
    frame_rows = state.num_frames.index_select(0, owners).clamp(max=state.max_frames - 1)
    state.codes.view(-1, frame.shape[1]).index_copy_(
        0, owners * state.max_frames + frame_rows, frame
    )
    state.num_frames.index_add_(0, slots, goes_on.to(torch.int64))


def frame_input(model: TtsModel, codes: Tensor) -> Tensor:
    """Codec side of the talker row that follows a frame: codes [B, 16] -> [B, hidden].

    All sixteen embeddings in one sum, hence one rounding, as in the official model.
    """
    rows = model.code_table.index_select(0, (codes + model.code_offsets).view(-1))
    return rows.view(*codes.shape, -1).sum(dim=1)


def predict_codes(
    model: TtsModel,
    state: ModelState,
    *,
    hidden: Tensor,
    first_codes: Tensor,
    choose: ChooseCodes,
) -> Tensor:
    """Run the fifteen passes of one codec frame over a fresh context of sixteen positions.

    The first pass takes two tokens (the talker's hidden state, then the first code); every later
    one takes the code just drawn.

    Args:
        model: weights.
        state: lends its scratch KV; row n serves batch row n.
        hidden: [B, talker hidden], after the talker's final norm.
        first_codes: [B] int64.
        choose: draws a code from the scores of a codebook.

    Returns:
        [B, 16] int64.
    """
    weights = model.predictor
    num_rows = hidden.shape[0]
    num_codebooks = model.config.num_codebooks
    start = hidden
    if weights.projection is not None and weights.projection_bias is not None:
        start = torch.addmm(weights.projection_bias, hidden, weights.projection)
    tokens = torch.stack((start, weights.inputs.index_select(0, first_codes)), dim=1)
    # Cache row of each batch row by position [16, B]: the scratch is [rows, 16] flat.
    cache_rows = torch.arange(num_rows * num_codebooks, device=hidden.device)
    cache_rows = cache_rows.view(num_rows, num_codebooks).t().contiguous()
    out = _pass(model, state, tokens, cache_rows=cache_rows[:2].t().reshape(-1), start=0)
    codes = [first_codes]
    for codebook in range(1, num_codebooks):
        code = choose(out.mm(weights.heads[codebook - 1]), codebook)
        codes.append(code)
        if codebook + 1 < num_codebooks:
            # A view of the codebook's own rows: adding its first row to the code is one launch.
            rows = weights.inputs[_first_row(model, codebook) :]
            row = rows.index_select(0, code)
            at = codebook + 1
            out = _pass(model, state, row[:, None], cache_rows=cache_rows[at], start=at)
    return torch.stack(codes, dim=1)


def _first_row(model: TtsModel, codebook: int) -> int:
    """First row of codebook 1..15 in the code tables: the same figure as `code_offsets` holds."""
    vocabulary = model.config.talker.vocab_size
    return vocabulary + 1 + (codebook - 1) * model.config.predictor.vocab_size


def _pass(
    model: TtsModel, state: ModelState, tokens: Tensor, *, cache_rows: Tensor, start: int
) -> Tensor:
    """One forward of tokens [B, N, hidden] at positions `start ..` -> last token's [B, hidden].

    Cache rows are [B * N].
    """
    config = model.config.predictor.stack
    num_rows, num_tokens, width = tokens.shape
    tables = model.predictor_rotary

    def at(table: Tensor) -> Tensor:
        # [N, 1, D] repeated for each row -> [B * N, 1, D]; one token needs no copy.
        chosen = table[start : start + num_tokens]
        return chosen if num_tokens == 1 else chosen.repeat(num_rows, 1, 1)

    def attend(q: Tensor, layer: int) -> Tensor:
        return model.kernels.attend_rows(
            q.view(num_rows, num_tokens, config.num_heads, config.head_dim),
            state.predictor_k[layer],
            state.predictor_v[layer],
            num_keys=start + num_tokens,
        )

    out = run_stack(
        tokens.view(num_rows * num_tokens, width),
        model.predictor.stack,
        config,
        model.kernels,
        rotary=RotaryTables(cos=at(tables.cos), sin=at(tables.sin)),
        k_caches=state.predictor_k,
        v_caches=state.predictor_v,
        cache_rows=cache_rows,
        attend=attend,
    )
    return out if num_tokens == 1 else out.view(num_rows, num_tokens, width)[:, -1]
