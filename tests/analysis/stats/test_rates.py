"""Intervals of shares against published values."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from analysis.stats.rates import clopper_pearson, rule_of_three, wilson


def test_wilson_interval_of_a_textbook_case():
    """8 of 10 (Wilson 1927): 0.490 to 0.943."""
    found = wilson(8, 10)

    assert (0.8, 0.4902, 0.9433) == (
        found.value, pytest.approx(found.lo, abs=1e-4), pytest.approx(found.hi, abs=1e-4)
    )  # fmt: skip


def test_clopper_pearson_interval_of_a_textbook_case():
    """8 of 10: 0.444 to 0.975."""
    found = clopper_pearson(8, 10)

    assert (0.4439, 0.9748) == (
        pytest.approx(found.lo, abs=1e-4), pytest.approx(found.hi, abs=1e-4)
    )  # fmt: skip


@pytest.mark.parametrize("interval", [wilson, clopper_pearson])
def test_no_hits_is_not_proof_of_zero(interval):
    """0 of 50: from 0 up to something above 3 / 50."""
    found = interval(0, 50)

    assert (0.0, 0.0) == (found.value, found.lo)
    assert 0.06 < found.hi < 0.08


def test_zero_of_n_means_less_than_three_over_n():
    """One-sided at 95 %."""
    assert 3 / 100 == pytest.approx(rule_of_three(100), rel=0.02)


@pytest.mark.parametrize("interval", [wilson, clopper_pearson])
def test_share_of_nothing_has_no_value(interval):
    """Null, not 0."""
    found = interval(0, 0)

    assert (None, None, None) == (found.value, found.lo, found.hi)


@pytest.mark.parametrize("interval", [wilson, clopper_pearson])
@pytest.mark.parametrize(("hits", "n"), [(-1, 5), (6, 5)])
def test_impossible_share_is_refused(interval, hits, n):
    """More hits than trials."""
    with pytest.raises(ValueError, match="is no share"):
        interval(hits, n)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.5])
def test_exact_interval_covers_at_least_95_percent(share):
    """Summed over all outcomes of 60 trials."""
    cover = sum(
        binom.pmf(k, 60, share)
        for k in range(61)
        if clopper_pearson(k, 60).lo <= share <= clopper_pearson(k, 60).hi
    )

    assert cover >= 0.95
