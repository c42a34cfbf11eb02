"""Intervals of shares against published values."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from analysis.stats.rates import exact_bounds, score_bounds


def test_score_interval_of_a_textbook_case():
    """8 of 10 (Wilson 1927): 0.490 to 0.943."""
    found = score_bounds(8, 10)

    assert (0.4902, 0.9433) == pytest.approx((found.lo, found.hi), abs=1e-4)


def test_exact_interval_of_a_textbook_case():
    """8 of 10 (Clopper and Pearson): 0.444 to 0.975."""
    found = exact_bounds(8, 10)

    assert (0.4439, 0.9748) == pytest.approx((found.lo, found.hi), abs=1e-4)


@pytest.mark.parametrize("bounds", [exact_bounds, score_bounds])
def test_no_hits_is_not_proof_of_zero(bounds):
    """0 of 50: from 0 up to something above 3 / 50."""
    found = bounds(0, 50)

    assert 0.0 == found.lo
    assert 0.06 < found.hi < 0.08


@pytest.mark.parametrize("bounds", [exact_bounds, score_bounds])
def test_all_hits_are_not_proof_of_one(bounds):
    """50 of 50: the mirror of 0 of 50."""
    assert 1.0 == bounds(50, 50).hi
    assert 1 - bounds(0, 50).hi == pytest.approx(bounds(50, 50).lo)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.5])
def test_exact_interval_covers_at_least_95_percent(share):
    """Summed over all outcomes of 60 trials."""
    cover = sum(
        binom.pmf(k, 60, share)
        for k in range(61)
        if exact_bounds(k, 60).lo <= share <= exact_bounds(k, 60).hi
    )

    assert cover >= 0.95
