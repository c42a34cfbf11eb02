"""Where a series has settled."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.steady import mser5


def noise(n: int) -> np.ndarray:
    return np.random.default_rng(4).normal(0, 1, n)


def test_high_beginning_is_cut_off():
    """40 slow requests, then 160 at the level: cut within 10 of the change."""
    found = mser5(np.concatenate([np.full(40, 20.0), np.full(160, 5.0)]) + noise(200))

    assert 40 == pytest.approx(found.start, abs=10)
    assert found.is_reached


def test_steady_series_keeps_nearly_everything():
    """Only noise."""
    assert mser5(5 + noise(200)).start <= 50


def test_series_that_keeps_rising_has_not_settled():
    """A growing queue."""
    assert not mser5(np.linspace(0, 100, 200) + noise(200)).is_reached


def test_failures_count_as_the_largest_finite_value():
    """They do not turn sums into NaN."""
    values = 5 + noise(100)
    values[:3] = np.inf

    assert mser5(values).start <= 50


@pytest.mark.parametrize("values", [np.ones(19), np.full(40, np.inf)])
def test_too_little_to_tell_is_null(values):
    """Fewer than 20 values, or no finite one."""
    assert mser5(values) is None
