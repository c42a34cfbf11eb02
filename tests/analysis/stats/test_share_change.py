"""A changed share has an interval with a width, even where nothing happened."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.beyond import ClusteredShare
from analysis.stats.bootstrap import PairedSample
from analysis.stats.share_change import ShareChange, share_change, unpaired_share_change


def hits(num: int, n: int, *, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat([1.0, 0.0], [num, n - num]))


def change(first: np.ndarray, second: np.ndarray):
    return share_change([PairedSample(first, second)])


def independent(num_hits: int, n: int) -> ClusteredShare:
    return ClusteredShare(num_hits, n, 1.0, 1.0)


def test_interval_of_the_same_requests_is_that_of_a_textbook_case():
    """Newcombe 1998, table II, method 10: 36 both, 12 first, 2 second, 0 neither of 50."""
    found = ShareChange(independent(38, 50), independent(48, 50), both=36 / 50)

    assert 0.20 == pytest.approx(found.value)
    assert (0.0569, 0.3404) == pytest.approx((found.interval.lo, found.interval.hi), abs=5e-4)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((48, 80), (56, 70), (0.0524, 0.3339)),
        ((3, 10), (9, 10), (0.1705, 0.8090)),
        ((2, 7), (6, 7), (0.0582, 0.8062)),
        ((0, 29), (5, 56), (-0.0381, 0.1926)),
        ((0, 20), (0, 10), (-0.1611, 0.2775)),
        ((0, 10), (0, 10), (-0.2775, 0.2775)),
        ((0, 20), (10, 10), (0.6791, 1.0)),
        ((0, 10), (10, 10), (0.6075, 1.0)),
    ],
)
def test_interval_of_different_requests_is_that_of_a_textbook_case(first, second, expected):
    """Newcombe 1998, eleven methods, table II, method 10."""
    found = ShareChange(independent(*first), independent(*second)).interval

    assert expected == pytest.approx((found.lo, found.hi), abs=1e-4)


@pytest.mark.parametrize("hits", [1, 2, 3, 4, 5, 6, 7, 8, 12])
def test_p_value_is_below_five_percent_where_the_interval_leaves_out_zero(hits):
    """One rule, told twice."""
    found = ShareChange(independent(0, 60), independent(hits, 60))

    assert (found.interval.lo > 0) == (found.p_value < 0.05)


def test_p_value_of_no_change_is_one():
    """Nothing on either side is no evidence."""
    assert 1.0 == change(np.zeros(73), np.zeros(73)).p_value


def test_different_requests_say_less_than_the_same_ones():
    """Where the same requests fail on both sides, the pairs cancel out what they share."""
    first, second = hits(20, 100), hits(30, 100)
    second[first == 1.0] = 1.0
    paired, unpaired = change(first, second), unpaired_share_change([first], [second])

    assert unpaired.interval.lo < paired.interval.lo


def test_different_requests_that_are_missing_on_one_side_have_no_change():
    """None, not 0."""
    assert unpaired_share_change([np.zeros(10)], [np.array([])]) is None


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
