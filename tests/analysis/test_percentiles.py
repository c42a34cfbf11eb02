"""Nearest rank with failures as +inf, and binomial intervals where n allows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.percentiles import (
    MIN_N_FOR_INTERVAL,
    Percentile,
    PercentileStatus,
    interval_ranks,
    nearest_rank,
    percentile,
    sort_values,
)

INF = math.inf
TEN = [100, 110, 120, 130, 140, 150, 160, 170, INF, INF]


def value_of(values, percent) -> float | None:
    return percentile(sort_values(values), percent).value


def test_failures_rank_behind_every_finite_latency():
    """Eight replies and two failures: p50 140, p80 170, p90 and p99 not reached."""
    assert [140, 170, None, None] == [value_of(TEN, q) for q in (50, 80, 90, 99)]


def test_another_failure_pushes_p80_out_of_reach():
    """Of eleven, the ninth is a failure."""
    found = percentile(sort_values([*TEN, INF]), 80)

    assert (None, PercentileStatus.NOT_REACHED) == (found.value, found.status)


def test_nearest_rank_is_always_a_value_that_occurred():
    """p99 of 1..20 is 20 by this rule; linear interpolation would say 19.81."""
    values = list(range(1, 21))

    assert 20 == value_of(values, 99)
    assert 19.81 == pytest.approx(np.percentile(values, 99))


@pytest.mark.parametrize(("num_values", "rank"), [(20, 20), (99, 99), (100, 99), (101, 100)])
def test_p99_is_the_maximum_below_100_values(num_values, rank):
    """From 100 on it is not."""
    assert rank == nearest_rank(num_values, 99)


def test_rank_is_not_moved_by_floating_point():
    """0.95 x 20 is 19, and 0.07 x 100 is 7, although floats say a little more."""
    assert [19, 7, 1] == [nearest_rank(20, 95), nearest_rank(100, 7), nearest_rank(1, 50)]


@pytest.mark.parametrize("percent", sorted(MIN_N_FOR_INTERVAL))
def test_interval_exists_from_its_stated_n(percent):
    """6, 72 and 368; one less and there is none."""
    least = MIN_N_FOR_INTERVAL[percent]

    assert interval_ranks(least, percent) is not None
    assert interval_ranks(least - 1, percent) is None


def test_median_interval_of_ten_is_the_textbook_one():
    """Ranks 2 and 9 of ten enclose the median with 97.9 %."""
    ranks = interval_ranks(10, 50)

    assert (2, 9) == (ranks.lo, ranks.hi)


@pytest.mark.parametrize(("percent", "num_values"), [(50, 6), (50, 31), (95, 72), (95, 200)])
def test_interval_covers_the_true_quantile_as_often_as_it_says(percent, num_values):
    """Exponential samples, fixed seed: at least 95 % of intervals hold the truth."""
    random = np.random.default_rng(7)
    samples = np.sort(random.exponential(size=(4000, num_values)), axis=1)
    ranks = interval_ranks(num_values, percent)
    truth = -math.log(1 - percent / 100)
    is_covered = (samples[:, ranks.lo - 1] <= truth) & (truth <= samples[:, ranks.hi - 1])

    # Three standard errors of 4,000 trials below 95 %.
    assert is_covered.mean() > 0.95 - 3 * math.sqrt(0.95 * 0.05 / 4000)


def test_upper_end_on_a_failure_is_said():
    """The value is finite, its interval is open above."""
    found = percentile(sort_values([1, 2, 3, 4, 5, INF]), 50)

    assert Percentile(3, 1, None, PercentileStatus.UPPER_NOT_REACHED) == found


def test_too_few_values_give_no_interval():
    """Value with status `no_interval`."""
    assert Percentile(2, None, None, PercentileStatus.NO_INTERVAL) == percentile(
        sort_values([1, 2, 3]), 50
    )


def test_no_values_give_no_number():
    """Never 0."""
    assert Percentile(None, None, None, PercentileStatus.NO_DATA) == percentile(sort_values([]), 50)


def test_unmeasured_value_among_measured_ones_is_refused():
    """NaN has no rank."""
    with pytest.raises(ValueError, match="unmeasured"):
        sort_values([1.0, float("nan")])
