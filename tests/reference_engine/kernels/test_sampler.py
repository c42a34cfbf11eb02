"""Random numbers by address, and codes drawn from them."""

from __future__ import annotations

import pytest
import torch

from reference_engine.kernels.reference import (
    greedy_tokens,
    kept_scores,
    penalised_scores,
    philox_uniform,
    sample_tokens,
)


def _uniform_of(word: int) -> float:
    """A Philox word as `triton.language.rand` turns it into a number in [0, 1)."""
    return float(torch.tensor(float(min(word, 0xFFFFFFFF - word))) * 4.6566127342e-10)


def _draw(scores: torch.Tensor, uniforms: list[float], **settings: float) -> list[int]:
    count = len(uniforms)
    cap = settings.get("cap", 64)
    return sample_tokens(
        scores.expand(count, -1),
        torch.tensor(uniforms),
        torch.full((count,), settings.get("temperature", 1.0)),
        torch.full((count,), int(settings.get("top_k", min(64, scores.shape[-1])))),
        torch.full((count,), settings.get("top_p", 2.0)),
        top_k_cap=None if cap is None else min(int(cap), scores.shape[-1]),
    ).tolist()


@pytest.mark.parametrize(
    ("seed", "counter", "word"),
    [
        # Published known answers of Philox4x32-10: the first word at key 0, counter 0.
        (0, 0, 0x6627E8D5),
        # Computed by the scalar loop below, which the first line vouches for.
        (7, 3, None),
        (0x1_0000_0005, 0x2_0000_0001, None),
    ],
)
def test_philox_gives_the_known_words(seed: int, counter: int, word: int | None):
    """Equal to the published vector, and to a scalar re-derivation at 64-bit seeds and offsets."""
    expected = _scalar_philox(seed, counter)
    assert word in (None, expected)

    found = philox_uniform(torch.tensor([seed]), torch.tensor([counter]), num_lanes=1)

    assert _uniform_of(expected) == float(found)


def _scalar_philox(seed: int, offset: int) -> int:
    mask = 0xFFFFFFFF
    c = [offset & mask, offset >> 32, 0, 0]
    k = [seed & mask, seed >> 32]
    for _ in range(10):
        high_b, low_b = divmod(0xCD9E8D57 * c[2], 1 << 32)
        high_a, low_a = divmod(0xD2511F53 * c[0], 1 << 32)
        c = [high_b ^ c[1] ^ k[0], low_b, high_a ^ c[3] ^ k[1], low_a]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c[0]


def test_lanes_are_consecutive_offsets():
    """Codec frame and codebook together address one number."""
    lanes = philox_uniform(torch.tensor([9]), torch.tensor([2]), num_lanes=16)[0]
    singles = philox_uniform(torch.full((16,), 9), torch.arange(32, 48), num_lanes=1)[:, 0]

    assert torch.equal(singles, lanes)


def test_random_numbers_are_even_and_below_one():
    """100,000 of them: in [0, 1), mean and variance as of an even spread."""
    numbers = philox_uniform(torch.arange(6250), torch.arange(6250), num_lanes=16)

    assert 0.0 <= float(numbers.min())
    assert float(numbers.max()) < 1.0
    assert abs(float(numbers.mean()) - 0.5) < 0.005
    assert abs(float(numbers.var()) - 1 / 12) < 0.002


def test_the_draw_walks_the_vocabulary_in_its_own_order():
    """Shares 0.5, 0.25, 0.25 by index: a random number lands in its interval."""
    scores = torch.tensor([0.5, 0.25, 0.25]).log()[None]

    assert [0, 0, 1, 1, 2, 2] == _draw(scores, [0.0, 0.49, 0.51, 0.74, 0.76, 0.9999999])


def test_the_largest_random_number_still_draws_a_code():
    """Rounding never pushes a draw past the vocabulary, whatever the scores."""
    scores = torch.randn(200, 3072, generator=torch.Generator().manual_seed(1)) * 4
    largest = torch.tensor(2147483647.0) * 4.6566127342e-10

    drawn = sample_tokens(
        scores,
        largest.expand(200),
        torch.ones(200),
        torch.full((200,), 50),
        torch.full((200,), 2.0),
        top_k_cap=64,
    )

    assert int(drawn.max()) < 3072
    assert bool((scores.gather(1, drawn[:, None]) > scores.topk(51).values[:, -1:]).all())


@pytest.mark.parametrize("cap", [4, None])
def test_top_k_keeps_ties_at_the_threshold(cap: int | None):
    """Four equal scores and a top-k of two: all four stay."""
    scores = torch.tensor([[1.0, 1.0, 0.0, 1.0, 1.0]])

    kept = kept_scores(scores, torch.ones(1), torch.tensor([2]), torch.tensor([2.0]), top_k_cap=cap)

    assert [True, True, False, True, True] == (kept[0] > float("-inf")).tolist()


@pytest.mark.parametrize("cap", [4, None])
def test_top_p_keeps_the_code_that_crosses_it(cap: int | None):
    """Shares 0.4, 0.3, 0.2, 0.1: 0.65 keeps two, 0.75 keeps three, 0.05 keeps one."""
    scores = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()

    counts = [
        int(
            (
                kept_scores(
                    scores, torch.ones(1), torch.tensor([4]), torch.tensor([p]), top_k_cap=cap
                )
                > float("-inf")
            ).sum()
        )
        for p in (0.65, 0.75, 0.05, 2.0)
    ]

    assert [2, 3, 1, 4] == counts


def test_selection_and_search_keep_the_same_codes():
    """Random scores with bans, infinite gaps and negative values: one kept set."""
    generator = torch.Generator().manual_seed(4)
    scores = torch.randn(64, 512, generator=generator) * 3
    scores[:, 400:] = float("-inf")
    scores[0] = -scores[0].abs()
    temperature = 0.3 + torch.rand(64, generator=generator)
    top_k = torch.randint(1, 60, (64,), generator=generator)
    top_p = torch.rand(64, generator=generator) * 1.4

    selected = kept_scores(scores, temperature, top_k, top_p, top_k_cap=64)
    searched = kept_scores(scores, temperature, top_k, top_p, top_k_cap=None)

    assert torch.equal(selected, searched)


@pytest.mark.parametrize("cap", [8, None])
def test_a_greedy_row_draws_the_first_largest_score(cap: int | None):
    """Top-k 1 with the random number at 0 is the greedy choice, ties included."""
    scores = torch.randn(50, 300, generator=torch.Generator().manual_seed(2))
    scores[:, 200] = scores[:, 100] = 9.0
    drawn = sample_tokens(
        scores,
        torch.zeros(50),
        torch.ones(50),
        torch.ones(50, dtype=torch.int64),
        torch.full((50,), 2.0),
        top_k_cap=cap,
    )

    assert torch.equal(greedy_tokens(scores), drawn)
    assert {100} == set(drawn.tolist())


def test_draws_have_the_shares_of_their_scores():
    """20,000 draws at addressed random numbers: each code within five standard errors."""
    scores = torch.randn(1, 40, generator=torch.Generator().manual_seed(3))
    count = 20_000
    uniforms = philox_uniform(torch.full((count,), 1), torch.arange(count), num_lanes=1)[:, 0]

    drawn = torch.bincount(torch.tensor(_draw(scores, uniforms.tolist())), minlength=40) / count

    share = scores[0].softmax(-1)
    assert bool(((drawn - share).abs() <= 5 * (share * (1 - share) / count).sqrt()).all())


def test_penalty_lowers_only_codes_already_drawn():
    """Positive scores are divided, negative ones multiplied, others untouched."""
    seen = torch.tensor([[False] * 4, [True, True, False, False]])

    scores = penalised_scores(
        torch.tensor([[2.0, -2.0, 2.0, -2.0]]),
        seen,
        torch.tensor([1]),
        torch.tensor([2.0]),
        torch.zeros(2, 4),
        torch.tensor([0]),
    )

    assert [1.0, -4.0, 2.0, -2.0] == scores[0].tolist()


def test_a_row_of_nan_draws_some_code():
    """A poisoned row must not index out of range; it is flagged elsewhere."""
    drawn = _draw(torch.full((1, 30), float("nan")), [0.3])

    assert 0 <= drawn[0] < 30
