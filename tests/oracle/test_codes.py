"""Codes and scores equal to those of the official package, request by request."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reference_engine.model.code_predictor import frame_input, predict_codes
from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import GREEDY_PLAN, SamplingSettings
from reference_engine.model.talker import talker_logits, talker_step
from tests.builders.checkpoints import Loaded, admit, slot_vector, speak
from tests.oracle.conftest import Official
from tests.oracle.spoken import LARGE, SMALL, SpokenRequest

# The first of them waits for the one run of the official package.
pytestmark = [pytest.mark.oracle, pytest.mark.timeout(400)]

REQUESTS = (*LARGE, *SMALL)
TRACED = tuple(request for request in REQUESTS if request.trace)
GREEDY = SamplingSettings.greedy()
# fp32 sums in another order, through two stacks; the scores themselves reach about 10.
SCORE_TOLERANCE = 1e-4
MAX_POSITIONS = 256


def _prompt(loaded: Loaded, request: SpokenRequest):
    return loaded.prompt(
        request.text,
        speaker=request.speaker,
        language=request.language,
        layout=request.layout,
        instruct=request.instruct,
    )


def _key(request: SpokenRequest) -> str:
    return request.key


def test_at_least_24_prompts_are_compared():
    """The set covers what it says."""
    assert len(LARGE) >= 24
    assert {"streaming", "whole"} == {request.layout for request in LARGE}


@pytest.mark.parametrize("request_", REQUESTS, ids=_key)
def test_codes_equal_the_official_run(official: Official, request_: SpokenRequest):
    """Greedy, fp32: the same codes, the same stop, the same meaning of the limit."""
    loaded = official.loaded(request_)
    expected = official.array(request_, "codes")

    # A limit of n counts first codes; the last one never gets its fifteen others.
    found = speak(
        loaded,
        _prompt(loaded, request_),
        GREEDY,
        num_frames=request_.max_new_tokens - 1,
        max_positions=MAX_POSITIONS,
    )

    assert torch.equal(expected, found)


@pytest.mark.parametrize("request_", REQUESTS, ids=_key)
def test_tokens_equal_the_official_tokenizer(official: Official, request_: SpokenRequest):
    """The same ids for the whole string, of which the text is the middle."""
    loaded = official.loaded(request_)
    expected = tuple(official.array(request_, "ids").tolist())

    framed = f"<|im_start|>assistant\n{request_.text}<|im_end|>\n<|im_start|>assistant\n"

    assert expected == loaded.tokenizer.encode(framed)
    assert expected[3:-5] == loaded.prompt(request_.text).text_rows[:-1]


def test_some_runs_end_by_end_of_speech_and_some_by_the_limit(official: Official):
    """Both kinds of stop are among the runs compared."""
    by_limit = [
        len(official.array(request, "codes")) == request.max_new_tokens - 1 for request in REQUESTS
    ]

    assert 0 < sum(by_limit) < len(REQUESTS)


@pytest.mark.parametrize("request_", TRACED, ids=_key)
def test_teacher_forced_scores_equal_the_official_ones(official: Official, request_: SpokenRequest):
    """Fed with the official codes, every score of every step and codebook is within 1e-4."""
    loaded = official.loaded(request_)
    codes = official.array(request_, "codes")
    worst_talker, worst_predictor = _forced_differences(
        loaded,
        request_,
        codes,
        talker=official.array(request_, "talker"),
        predictor=official.array(request_, "predictor"),
    )
    print(f"{request_.key}: talker {worst_talker:.1e}, predictor {worst_predictor:.1e}")

    assert worst_talker <= SCORE_TOLERANCE
    assert worst_predictor <= SCORE_TOLERANCE


def _forced_differences(
    loaded: Loaded,
    request: SpokenRequest,
    codes: Tensor,
    *,
    talker: Tensor,
    predictor: Tensor,
) -> tuple[float, float]:
    """Largest score differences of talker and predictor along given codes [frames, 16]."""
    model, slots = loaded.model, slot_vector([1])
    state = loaded.state(2, max_positions=MAX_POSITIONS)
    admit(loaded, state, 1, _prompt(loaded, request), SamplingSettings.greedy(ignore_eos=True))
    worst_talker = worst_predictor = 0.0
    for frame, forced in enumerate(codes):
        talker_step(model, state, slots, sampler=GREEDY_PLAN)
        scores = talker_logits(model, state.hidden[slots])[0]
        worst_talker = max(worst_talker, float((scores - talker[frame]).abs().max()))
        seen: list[Tensor] = []

        def choose(
            scores: Tensor, codebook: int, *, seen: list[Tensor] = seen, forced: Tensor = forced
        ) -> Tensor:
            seen.append(scores[0])
            return forced[codebook][None]

        predict_codes(
            model, state, hidden=state.hidden[slots], first_codes=forced[:1], choose=choose
        )
        difference = (torch.stack(seen) - predictor[frame]).abs().max()
        worst_predictor = max(worst_predictor, float(difference))
        state.next_input[slots] = frame_input(model, forced[None]).clone()
        state.num_frames[slots] += 1
    return worst_talker, worst_predictor


def test_a_batch_of_requests_gives_the_official_codes(official: Official):
    """Seven requests of both layouts side by side, joined with a padding row."""
    loaded = official.large
    requests = LARGE[:7]
    state = loaded.state(len(requests) + 1, max_positions=MAX_POSITIONS)
    for slot, request in enumerate(requests, start=1):
        admit(loaded, state, slot, _prompt(loaded, request), GREEDY)
    batch = slot_vector([*range(1, len(requests) + 1), 0])
    for _ in range(10):
        frame_step(loaded.model, state, batch, sampler=GREEDY_PLAN)

    for slot, request in enumerate(requests, start=1):
        expected = official.array(request, "codes")[:10]
        assert torch.equal(expected, state.codes[slot, : len(expected)])
