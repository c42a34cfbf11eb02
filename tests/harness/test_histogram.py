"""Percentiles of durations in constant memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.histogram import DurationHistogram


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_percentiles_are_nearest_rank_to_four_percent_above(values: list[int]):
    """Never below the true value, and at most one bucket above it."""
    histogram = DurationHistogram()
    for value in values:
        histogram.add(value)
    found = histogram.summary()
    ordered = sorted(values)
    for percent, got in ((50, found.p50_ns), (99, found.p99_ns)):
        true = ordered[-(-len(ordered) * percent // 100) - 1]
        assert got is not None
        assert true <= got <= true * 1.04 + 1
    assert ordered[-1] == found.max_ns
    assert len(values) == found.n


def test_nothing_counted_is_null():
    """Unmeasured is not zero."""
    assert {"n": 0, "p50": None, "p99": None, "max": None} == DurationHistogram().summary().in_ms()


def test_clearing_forgets():
    """The warm-up does not count."""
    histogram = DurationHistogram()
    histogram.add(5_000_000)
    histogram.clear()
    histogram.add(1_000_000)

    assert 1 == histogram.summary().n
    assert 1_000_000 == histogram.summary().max_ns
