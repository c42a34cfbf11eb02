"""Codes and scores equal to those of the official package, request by request."""

from __future__ import annotations

import pytest
import torch

from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import GREEDY_PLAN, SamplingSettings
from tests.builders.checkpoints import admit, slot_vector, speak
from tests.oracle.conftest import Official
from tests.oracle.forced import MAX_POSITIONS, forced_scores, prompt_of
from tests.oracle.spoken import LARGE, SMALL, SpokenRequest

# The first of them waits for the one run of the official package.
pytestmark = [pytest.mark.oracle, pytest.mark.timeout(400)]

REQUESTS = (*LARGE, *SMALL)
TRACED = tuple(request for request in REQUESTS if request.trace)
GREEDY = SamplingSettings.greedy()
# fp32 sums in another order, through two stacks; the scores themselves reach about 10.
SCORE_TOLERANCE = 1e-4


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
        prompt_of(loaded, request_),
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
    talker, predictor = forced_scores(loaded, request_, codes)
    # The official run scores once more, for the code that never gets its fifteen others.
    worst_talker = float((talker - official.array(request_, "talker")[: len(codes)]).abs().max())
    worst_predictor = float((predictor - official.array(request_, "predictor")).abs().max())
    print(f"{request_.key}: talker {worst_talker:.1e}, predictor {worst_predictor:.1e}")

    assert worst_talker <= SCORE_TOLERANCE
    assert worst_predictor <= SCORE_TOLERANCE


def test_a_batch_of_requests_gives_the_official_codes(official: Official):
    """Seven requests of both layouts side by side, joined with a padding row."""
    loaded = official.large
    requests = LARGE[:7]
    state = loaded.state(len(requests) + 1, max_positions=MAX_POSITIONS)
    for slot, request in enumerate(requests, start=1):
        admit(loaded, state, slot, prompt_of(loaded, request), GREEDY)
    batch = slot_vector([*range(1, len(requests) + 1), 0])
    for _ in range(10):
        frame_step(loaded.model, state, batch, sampler=GREEDY_PLAN)

    for slot, request in enumerate(requests, start=1):
        expected = official.array(request, "codes")[:10]
        assert torch.equal(expected, state.codes[slot, : len(expected)])
