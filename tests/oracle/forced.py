"""The scores behind codes that are given: what this engine thinks at each step of another's run."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_engine.model.code_predictor import frame_input, predict_codes
from reference_engine.model.sampling import GREEDY_PLAN, SamplingSettings
from reference_engine.model.talker import talker_logits, talker_step
from reference_engine.model.text.prompts import Prompt
from tests.builders.checkpoints import Loaded, admit, slot_vector
from tests.oracle.spoken import SpokenRequest

__all__ = ["MAX_POSITIONS", "forced_scores", "prompt_of"]

MAX_POSITIONS = 256


def prompt_of(loaded: Loaded, request: SpokenRequest) -> Prompt:
    """The request as this engine lays it out."""
    return loaded.prompt(
        request.text,
        speaker=request.speaker,
        language=request.language,
        layout=request.layout,
        instruct=request.instruct,
    )


def forced_scores(loaded: Loaded, request: SpokenRequest, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of talker [frames, V] and predictor [frames, 15, V] along given codes [frames, 16]."""
    model, slots = loaded.model, slot_vector([1])
    state = loaded.state(2, max_positions=MAX_POSITIONS)
    settings = SamplingSettings.greedy(ignore_eos=True)
    admit(loaded, state, 1, prompt_of(loaded, request), settings)
    talker: list[Tensor] = []
    predictor: list[Tensor] = []
    for forced in codes:
        talker_step(model, state, slots, sampler=GREEDY_PLAN)
        talker.append(talker_logits(model, state.hidden[slots])[0])

        def choose(scores: Tensor, codebook: int, *, forced: Tensor = forced) -> Tensor:
            predictor.append(scores[0])
            return forced[codebook][None]

        predict_codes(
            model, state, hidden=state.hidden[slots], first_codes=forced[:1], choose=choose
        )
        state.next_input[slots] = frame_input(model, forced[None]).clone()
        state.num_frames[slots] += 1
    return torch.stack(talker), torch.stack(predictor).view(len(codes), 15, -1)
