"""A request's codes depend on the request: not on batch size, row, neighbours, padding or slot.

Matrix products round differently at another batch size, so hidden states move by about 1e-6. A
code can only flip where two scores are closer than that: such a near-tie (below 1e-5 between the
two best) is counted and printed, and nothing else is forgiven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from reference_engine.kernels import REFERENCE_KERNELS, reference
from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import (
    DEFAULT_PLAN,
    GREEDY_PLAN,
    SamplerKind,
    SamplerPlan,
    SamplingSettings,
)
from tests.builders.checkpoints import Loaded, admit, codes_of, slot_vector, speak

NUM_FRAMES = 8
NEAR_TIE = 1e-5
TEXTS = ("hello the user", "another one", "and all the others", "to be")


def _settings(loaded: Loaded, kind: str, index: int) -> SamplingSettings:
    if kind == "greedy":
        return SamplingSettings.greedy(ignore_eos=True)
    return SamplingSettings.from_defaults(
        loaded.model.config.generation, seed=1000 + index, ignore_eos=True
    )


@pytest.fixture(scope="module", params=["greedy", "sampled"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@dataclass(frozen=True)
class Solo:
    """A request by itself: its codes, and how close each was to being another."""

    codes: Tensor  # [frames, 16]
    margins: Tensor  # [frames, 16]

    def same(self, found: Tensor) -> bool:
        """Whether codes agree up to the first near-tie, which is printed."""
        if torch.equal(self.codes, found):
            return True
        assert self.codes.shape == found.shape
        frame, book = (int(n) for n in (self.codes != found).nonzero()[0])
        margin = float(self.margins[frame, book])
        print(f"near-tie at codec frame {frame}, codebook {book}: margin {margin:.1e}")
        return margin < NEAR_TIE


def _run_solo(loaded: Loaded, text: str, settings: SamplingSettings) -> Solo:
    """Run one request alone, noting the margin of every draw."""
    margins: list[float] = []

    def greedy(scores: Tensor) -> Tensor:
        first, second = scores.topk(2, dim=-1).values[0].tolist()
        margins.append(first - second)
        return reference.greedy_tokens(scores)

    def sample(
        scores: Tensor, uniforms: Tensor, temperature: Tensor, top_k: Tensor, *rest, **options
    ) -> Tensor:
        # A draw is close where its number is near a step of the summed mass, or where the last
        # score kept is near the first one dropped.
        best = scores[0].topk(int(top_k) + 1).values
        kept = scores[0].masked_fill(scores[0] < best[-2], float("-inf")) / temperature[0]
        mass = kept.softmax(-1).cumsum(-1)
        to_step = float((mass - uniforms[0]).abs().min())
        margins.append(min(to_step, float(best[-2] - best[-1])))
        return reference.sample_tokens(scores, uniforms, temperature, top_k, *rest, **options)

    kernels = replace(REFERENCE_KERNELS, greedy_tokens=greedy, sample_tokens=sample)
    noting = replace(loaded, model=replace(loaded.model, kernels=kernels))
    codes = speak(noting, loaded.prompt(text), settings, num_frames=NUM_FRAMES)
    return Solo(codes, torch.tensor(margins).view(NUM_FRAMES, 16))


@pytest.fixture(scope="module")
def solo(tiny: Loaded, kind: str) -> list[Solo]:
    """Each request in a batch of one."""
    return [_run_solo(tiny, text, _settings(tiny, kind, n)) for n, text in enumerate(TEXTS)]


@pytest.mark.parametrize(
    ("slots", "batch"),
    [
        ((1, 2, 3, 4), (1, 2, 3, 4)),
        ((4, 3, 2, 1), (1, 2, 3, 4)),
        ((3, 1, 4, 2), (0, 4, 0, 1, 3, 2, 0, 0)),
        ((2, 5, 6, 7), (7, 2, 0, 6, 5)),
    ],
    ids=["together", "other slots", "padded and shuffled", "sparse"],
)
def test_codes_do_not_depend_on_the_company(
    tiny: Loaded, kind: str, solo: list[Solo], slots: Sequence[int], batch: Sequence[int]
):
    """Same request, other slot, row, batch size and neighbours: the same codes."""
    state = tiny.state(8)
    for n, slot in enumerate(slots):
        admit(tiny, state, slot, tiny.prompt(TEXTS[n]), _settings(tiny, kind, n))
    plan = GREEDY_PLAN if kind == "greedy" else DEFAULT_PLAN
    for _ in range(NUM_FRAMES):
        frame_step(tiny.model, state, slot_vector(batch), sampler=plan)

    changed = [n for n, slot in enumerate(slots) if not solo[n].same(codes_of(state, slot))]
    assert [] == changed


def test_requests_that_join_and_leave_do_not_disturb_a_third(
    tiny: Loaded, kind: str, solo: list[Solo]
):
    """The batch grows and shrinks around a request that runs throughout."""
    plan = GREEDY_PLAN if kind == "greedy" else DEFAULT_PLAN
    state = tiny.state(4)
    admit(tiny, state, 2, tiny.prompt(TEXTS[0]), _settings(tiny, kind, 0))
    for step in range(NUM_FRAMES):
        if step == 2:
            admit(tiny, state, 1, tiny.prompt(TEXTS[1]), _settings(tiny, kind, 1))
        if step == 5:
            admit(tiny, state, 3, tiny.prompt(TEXTS[2]), _settings(tiny, kind, 2))
        batch = [2] if step < 2 else [1, 2] if step < 5 else [2, 3]
        frame_step(tiny.model, state, slot_vector(batch), sampler=plan)

    assert solo[0].same(codes_of(state, 2))


def test_greedy_and_sampled_requests_share_a_batch(tiny: Loaded):
    """A greedy row under a sampling plan draws its greedy codes."""
    greedy, sampled = _settings(tiny, "greedy", 0), _settings(tiny, "sampled", 1)
    state = tiny.state(3)
    admit(tiny, state, 1, tiny.prompt(TEXTS[0]), greedy)
    admit(tiny, state, 2, tiny.prompt(TEXTS[1]), sampled)
    for _ in range(NUM_FRAMES):
        frame_step(tiny.model, state, slot_vector([1, 2]))

    alone = speak(tiny, tiny.prompt(TEXTS[0]), greedy, num_frames=NUM_FRAMES, sampler=GREEDY_PLAN)
    assert torch.equal(alone, codes_of(state, 1))


def test_every_sampler_draws_the_same_codes(tiny: Loaded):
    """Partial selection and bit search are two ways to one kept set."""
    settings = _settings(tiny, "sampled", 3)
    capped = speak(tiny, tiny.prompt(), settings, num_frames=4)
    searched = speak(
        tiny, tiny.prompt(), settings, num_frames=4, sampler=SamplerPlan(SamplerKind.ANY)
    )

    assert torch.equal(capped, searched)


def test_another_seed_draws_other_codes(tiny: Loaded):
    """The seed matters, and the first frame already shows it."""
    first, second = (
        speak(tiny, tiny.prompt(), _settings(tiny, "sampled", n), num_frames=1) for n in (0, 1)
    )

    assert not torch.equal(first, second)
