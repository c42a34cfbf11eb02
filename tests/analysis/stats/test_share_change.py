"""A changed share has an interval with a width, even where nothing happened."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.bootstrap import PairedSample
from analysis.stats.share_change import share_change


def hits(num: int, n: int, *, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat([1.0, 0.0], [num, n - num]))


def change(first: np.ndarray, second: np.ndarray):
    return share_change([PairedSample(first, second)])


def test_interval_of_a_textbook_case():
    """Newcombe 1998, table II, method 10: 36 both, 12 first, 2 second, 0 neither of 50."""
    first = np.repeat([1.0, 1.0, 0.0, 0.0], [36, 12, 2, 0])
    second = np.repeat([1.0, 0.0, 1.0, 0.0], [36, 12, 2, 0])
    found = share_change([PairedSample(second, first)])
    # In one order of arrival all of a kind stand together; independent is what the table assumes.
    again = type(found)(found.first, found.second, found.both, found.n, 1.0)

    assert 0.20 == pytest.approx(found.value)
    assert (0.0569, 0.3404) == pytest.approx((again.interval.lo, again.interval.hi), abs=5e-4)


def test_none_on_either_side_is_not_known_to_be_equal():
    """0 of 73 twice: a change of up to 5 points on either side stays possible."""
    found = change(np.zeros(73), np.zeros(73)).interval

    assert (-0.05, 0.05) == pytest.approx((found.lo, found.hi), abs=1e-3)


def test_three_more_failures_of_73_are_neither_shown_nor_ruled_out():
    """0 is inside, and so is 11 %."""
    found = change(np.zeros(73), hits(3, 73)).interval

    assert found.lo < 0 < 0.1 < found.hi


def test_seven_more_failures_of_102_are_shown():
    """0 is outside."""
    assert change(np.zeros(102), hits(7, 102)).interval.lo > 0


def test_needed_number_is_the_least_that_tells():
    """Nothing on either side: 73 rule out five points, 72 do not."""
    found = change(np.zeros(41), np.zeros(41))

    assert 73 == found.needed_n(limit=0.0, unseen=0.05)


def test_burst_of_failures_counts_for_less():
    """All at the end of the run, as of an overload."""
    second = np.zeros(183)
    second[-13:] = 1.0
    burst, scattered = change(np.zeros(183), second), change(np.zeros(183), hits(13, 183))

    assert burst.interval.lo < 0 < scattered.interval.lo


def test_nothing_to_compare_has_no_change():
    """None, not 0."""
    assert share_change([PairedSample(np.array([]), np.array([]))]) is None
