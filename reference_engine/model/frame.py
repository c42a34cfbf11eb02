"""The fused frame: talker, sixteen codes and the next input in one capturable step."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_engine.model.code_predictor import advance_predictor
from reference_engine.model.drawing import frame_uniforms
from reference_engine.model.sampling import DEFAULT_PLAN, SamplerPlan
from reference_engine.model.state import ModelState
from reference_engine.model.talker import advance_talker
from reference_engine.model.tts_model import TtsModel

__all__ = ["frame_step"]


@torch.inference_mode()
def frame_step(
    model: TtsModel,
    state: ModelState,
    slots: Tensor,
    *,
    sampler: SamplerPlan = DEFAULT_PLAN,
    context: int | None = None,
) -> None:
    """One codec frame for each slot: `talker_step` then `predictor_step`, as one step.

    A slot that draws end of speech sets its flag and keeps its frame count: that frame does not
    exist. A slot stepped once more after its end (the host learns one step late) stays as it is.

    Args:
        model: weights.
        state: written in place.
        slots: [B] int64; padding rows name slot 0.
        sampler: static; must serve every slot's settings.
        context: static bound on talker lengths after this step; all a slot holds where None.
    """
    uniforms = frame_uniforms(model.kernels, state, slots, plan=sampler)
    advance_talker(model, state, slots, sampler=sampler, uniforms=uniforms, context=context)
    advance_predictor(model, state, slots, sampler=sampler, uniforms=uniforms)
