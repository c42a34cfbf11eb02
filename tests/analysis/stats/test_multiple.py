"""Holm's correction."""

from __future__ import annotations

import pytest

from analysis.stats.multiple import holm


def test_textbook_example():
    """0.01, 0.04, 0.03, 0.005 become 0.03, 0.06, 0.06, 0.02."""
    assert [0.03, 0.06, 0.06, 0.02] == pytest.approx(holm([0.01, 0.04, 0.03, 0.005]))


def test_adjusted_values_keep_their_order_and_stay_below_one():
    """A larger p-value is never adjusted to a smaller one."""
    assert [1.0, 1.0, 1.0] == holm([0.9, 0.8, 0.5])


def test_single_test_is_not_corrected():
    """There is nothing to correct for."""
    assert [0.04] == holm([0.04])


def test_no_tests_need_nothing():
    """An empty list."""
    assert [] == holm([])
