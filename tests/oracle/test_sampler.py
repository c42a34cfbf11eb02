"""The sampler keeps what transformers' processors keep, and weighs it alike."""

from __future__ import annotations

import pytest
import torch

from reference_engine.kernels.reference import kept_scores, penalised_scores
from tests.oracle.conftest import WARPERS, Official, WarperCase

# The first of them waits for the one run of the official package.
pytestmark = [pytest.mark.oracle, pytest.mark.timeout(400)]


# A partial selection needs a top-k; the search serves every case.
KINDS = [(case, None) for case in WARPERS] + [(case, case.top_k) for case in WARPERS if case.top_k]


@pytest.mark.parametrize(
    ("case", "cap"),
    KINDS,
    ids=[f"{case.key}-{'selected' if cap else 'searched'}" for case, cap in KINDS],
)
def test_kept_codes_have_the_official_shares(official: Official, case: WarperCase, cap: int | None):
    """Penalty, temperature, top-k and top-p leave the probabilities that transformers leaves."""
    # Row 0 holds ties. A nucleus cut inside them is arbitrary there (sort order); here they stay.
    rows = slice(0 if case.top_p == 1 else 1, None)
    expected = torch.from_numpy(official.arrays[f"{case.key}/probabilities"])[rows]
    scores = torch.from_numpy(official.warper_inputs["scores"])
    seen = torch.zeros(4, 2048, dtype=torch.bool)
    seen.scatter_(1, torch.from_numpy(official.warper_inputs["history"]), True)
    scores = penalised_scores(
        scores,
        seen,
        torch.arange(4),
        torch.full((4,), case.penalty),
        torch.zeros(2, 2048),
        torch.ones(4, dtype=torch.int64),
    )

    kept = kept_scores(
        scores,
        torch.full((4,), case.temperature),
        torch.full((4,), case.top_k or 2048),
        torch.full((4,), case.top_p if case.top_p < 1 else 2.0),
        top_k_cap=cap,
    )

    found = kept.softmax(-1)[rows]
    assert torch.equal(expected > 0, found > 0)
    assert float((found - expected).abs().max()) <= 1e-6
