"""From scores to codes: gather a batch's settings and random numbers, then draw."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from reference_engine.kernels import KernelSet
from reference_engine.model.sampling import SamplerKind, SamplerPlan
from reference_engine.model.state import ModelState, SamplingState

__all__ = ["DrawRows", "draw_codes", "frame_uniforms", "predictor_draws", "talker_draws"]


@dataclass(frozen=True, slots=True)
class DrawRows:
    """One stage's settings for the rows of a batch."""

    temperature: Tensor  # [B]
    top_k: Tensor  # [B]
    top_p: Tensor  # [B]
    uniforms: Tensor  # [B, codebooks], 0 in greedy rows


def frame_uniforms(
    kernels: KernelSet, state: ModelState, slots: Tensor, *, plan: SamplerPlan
) -> Tensor | None:
    """Random numbers of every row's current codec frame, [B, codebooks]; None if all is greedy.

    Addressed by (request seed, codec frame, codebook): neighbours, row and batch size do not
    enter, and the split stages find the same numbers as the fused frame.
    """
    if plan.kind is SamplerKind.GREEDY:
        return None
    return kernels.philox_uniform(
        state.sampling.seed.index_select(0, slots),
        state.num_frames.index_select(0, slots),
        num_lanes=state.codes.shape[2],
    )


def talker_draws(
    sampling: SamplingState, slots: Tensor, *, plan: SamplerPlan, uniforms: Tensor | None
) -> DrawRows | None:
    """Settings of the first codebook for the slots of a batch; None if all is greedy."""
    if uniforms is None:
        return None
    return DrawRows(
        temperature=sampling.temperature.index_select(0, slots),
        top_k=_within(sampling.top_k.index_select(0, slots), plan),
        top_p=sampling.top_p.index_select(0, slots),
        uniforms=uniforms * sampling.draws.index_select(0, slots)[:, None],
    )


def predictor_draws(
    sampling: SamplingState, slots: Tensor, *, plan: SamplerPlan, uniforms: Tensor | None
) -> DrawRows | None:
    """Settings of the other codebooks for the slots of a batch; None if all is greedy."""
    if uniforms is None:
        return None
    return DrawRows(
        temperature=sampling.predictor_temperature.index_select(0, slots),
        top_k=_within(sampling.predictor_top_k.index_select(0, slots), plan),
        top_p=sampling.predictor_top_p.index_select(0, slots),
        uniforms=uniforms * sampling.predictor_draws.index_select(0, slots)[:, None],
    )


def _within(top_k: Tensor, plan: SamplerPlan) -> Tensor:
    # A slot whose settings the plan does not serve must not index out of range: padding rows and
    # slots left over from another plan pass through here.
    return top_k.clamp(max=plan.top_k_cap) if plan.kind is SamplerKind.CAPPED else top_k


def draw_codes(
    kernels: KernelSet, scores: Tensor, rows: DrawRows | None, *, plan: SamplerPlan, lane: int
) -> Tensor:
    """Draw one code a row: scores [B, V] -> [B] int64.

    Args:
        kernels: implementations to use.
        scores: penalties and bans applied.
        rows: settings; None draws the largest score.
        plan: of the batch.
        lane: codebook, which chooses the random number.
    """
    if rows is None:
        return kernels.greedy_tokens(scores)
    return kernels.sample_tokens(
        scores,
        rows.uniforms[:, lane],
        rows.temperature,
        rows.top_k,
        rows.top_p,
        top_k_cap=plan.top_k_cap if plan.kind is SamplerKind.CAPPED else None,
    )
