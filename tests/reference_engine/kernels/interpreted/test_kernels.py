"""Fused kernels against their twins, on the CPU, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from reference_engine.kernels import reference
from reference_engine.kernels.attend_slots import attend_slots
from reference_engine.kernels.fused import FUSED_KERNELS
from reference_engine.kernels.parity import TINY_SHAPES, ParityShapes, check_kernels
from reference_engine.kernels.rms_norm import rms_norm
from reference_engine.kernels.sample_tokens import sample_tokens

# numpy, under the interpreter, says aloud what the tests feed it on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero)")


# One row; a key head each; several blocks of everything, the last of them nearly empty.
LONG_SHAPES = ParityShapes(
    rows=1, hidden=257, intermediate=1030, heads=2, kv_heads=2, head_dim=32, slots=3, positions=100,
    vocabulary=1030, channels=3, columns=2050,
)  # fmt: skip
# Four query heads a key head; powers of two, which fill their blocks.
EVEN_SHAPES = ParityShapes(
    rows=4, hidden=64, intermediate=512, heads=8, kv_heads=2, head_dim=8, slots=6, positions=33,
    vocabulary=512, channels=16, columns=64,
)  # fmt: skip


@pytest.mark.parametrize(
    "shapes", [TINY_SHAPES, LONG_SHAPES, EVEN_SHAPES], ids=["tiny", "long", "even"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_every_kernel_equals_its_twin(dtype: torch.dtype, shapes: ParityShapes):
    """fp32 to 1e-5, bf16 to one rounding; codes, random bits and PCM exactly; poison unread."""
    results = check_kernels(FUSED_KERNELS, shapes=shapes, device="cpu", dtype=dtype, seed=1)

    assert [] == [result for result in results if not result.is_equal]
    assert len(results) == 12


def test_norm_rounds_twice_below_fp32():
    """Bit-equal to the twin in bf16, at a width that fills no block."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 200, generator=generator).to(torch.bfloat16)
    weight = torch.randn(200, generator=generator).to(torch.bfloat16)

    assert torch.equal(reference.rms_norm(x, weight, eps=1e-6), rms_norm(x, weight, eps=1e-6))


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 2.0), (1 << 40, 0.6), (5, 0.6)])
def test_the_kept_set_is_the_twins_ties_included(top_k: int, top_p: float):
    """Each kept code is drawn in the middle of its share, in order; no other is."""
    scores = torch.tensor([[1.0, 3.0, 0.5, 3.0, -0.0, 0.0, 2.0, 1.0, -4.0, float("-inf")]])
    settings = torch.ones(1), torch.tensor([top_k]), torch.tensor([top_p])
    kept = reference.kept_scores(scores, *settings, top_k_cap=None)[0].double()
    codes = (kept.softmax(0) > 0).nonzero()[:, 0]
    share = kept.softmax(0)[codes]
    middles = (share.cumsum(0) - share / 2).float()
    count = len(codes)

    drawn = sample_tokens(
        scores.expand(count, -1).contiguous(),
        middles,
        *(each.expand(count).contiguous() for each in settings),
        top_k_cap=None,
    )

    assert codes.tolist() == drawn.tolist()
    assert 0 < count < 10


def test_the_ends_of_the_random_range_draw_kept_codes():
    """0 draws the first of the largest scores, the largest number the last kept code."""
    scores = torch.tensor([[0.0, 2.0, 1.0, 2.0, -5.0]]).expand(2, -1).contiguous()
    largest = 2147483647.0 * 4.6566127342e-10

    drawn = sample_tokens(
        scores,
        torch.tensor([0.0, largest]),
        torch.ones(2),
        torch.tensor([1, 3]),
        torch.full((2,), 2.0),
        top_k_cap=None,
    )

    assert [1, 3] == drawn.tolist()


def test_a_row_of_nan_stays_within_the_vocabulary():
    """Such a row is flagged elsewhere; its neighbour is not touched by it."""
    scores = torch.stack((torch.full((30,), float("nan")), torch.arange(30.0)))

    drawn = sample_tokens(
        scores,
        torch.tensor([0.3, 0.0]),
        torch.ones(2),
        torch.tensor([5, 1]),
        torch.tensor([0.9, 2.0]),
        top_k_cap=None,
    )

    assert 0 <= int(drawn[0]) < 30
    assert int(drawn[1]) == 29


def test_attention_reads_no_key_at_or_beyond_the_context():
    """A length past the static bound is cut to it, as the twin does."""
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(1, 2, 16, generator=generator)
    k, v = torch.randn(2, 2, 40, 1, 16, generator=generator)
    slots, lengths = torch.tensor([1]), torch.tensor([40])
    expected = reference.attend_slots(q, k, v, slots, lengths, context=33)
    k[:, 33:], v[:, 33:] = float("nan"), float("nan")

    found = attend_slots(q, k, v, slots, lengths, context=33)

    assert float((expected - found).abs().max()) < 1e-5
