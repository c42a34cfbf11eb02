"""Intervals stay honest where requests queue behind each other."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.percentiles import (
    MIN_N_FOR_INTERVAL,
    PercentileStatus,
    interval_ranks,
    nearest_rank,
    percentile,
)
from analysis.stats.dependence import variance_inflation
from tests.builders.queues import poisson_queue, true_quantile

# name -> what sets the queue apart
QUEUES = {
    "M/D/1": {},
    "M/G/1, service CV 0.5": {"service_cv": 0.5},
    "M/D/4": {"num_servers": 4},
}


def judged(values: np.ndarray, percent: int):
    """One run's percentile as the aggregation gives it."""
    ordered = np.sort(values)
    at = float(ordered[nearest_rank(len(ordered), percent) - 1])
    return percentile(ordered, percent, inflation=variance_inflation(values, at))


def honesty(runs: np.ndarray, percent: int, truth: float) -> tuple[float, float]:
    """Shares of runs that print an interval, and that do not print one that misses the truth."""
    found = [judged(run, percent) for run in runs]
    printed = [p for p in found if p.lo is not None and p.hi is not None]
    missed = sum(not p.lo <= truth <= p.hi for p in printed)
    return len(printed) / len(found), 1 - missed / len(found)


def test_independent_values_mostly_keep_the_plain_interval():
    """Five in six runs show no autocorrelation and are not widened."""
    random = np.random.default_rng(2)
    plain = sum(variance_inflation(random.exponential(size=200), 0.7) == 1.0 for _ in range(200))

    assert plain >= 150


def test_values_that_are_all_alike_are_not_widened():
    """There is nothing to hang together."""
    assert 1.0 == variance_inflation(np.ones(50), 1.0)


def test_failures_among_the_values_do_no_harm():
    """Ranks, not numbers, are correlated."""
    values = np.where(np.arange(200) % 2, np.inf, 1.0)

    assert np.isfinite(variance_inflation(values, 1.0))


def test_plain_interval_misses_the_truth_under_load():
    """What this is for: at 70 % load it covers p95 in fewer than 6 of 10 runs."""
    runs = poisson_queue(0.7, 200, 300, seed=4)
    ranks = interval_ranks(300, 95)
    ordered = np.sort(runs, axis=1)
    truth = true_quantile(95, 0.7)
    cover = (ordered[:, ranks.lo - 1] <= truth) & (truth <= ordered[:, ranks.hi - 1])

    assert cover.mean() < 0.6


@pytest.mark.parametrize("percent", [50, 95])
def test_printed_intervals_are_honest_under_load(percent):
    """The same runs: at most 7 % print an interval that misses the truth."""
    runs = poisson_queue(0.7, 200, 300, seed=4)
    _, honest = honesty(runs, percent, true_quantile(percent, 0.7))

    assert honest >= 0.93


def test_run_too_short_for_its_queue_is_not_estimable():
    """300 requests at 90 % load say nothing sure about p95."""
    found = [judged(run, 95).status for run in poisson_queue(0.9, 50, 300, seed=5)]

    assert found.count(PercentileStatus.NOT_ESTIMABLE) >= 48


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_coverage_table():
    """The table of METRICS.md: 2,000 runs of each queue, load and length."""
    worst = 1.0
    for name, queue in QUEUES.items():
        for utilisation in (0.3, 0.7, 0.9):
            truths = {p: true_quantile(p, utilisation, **queue) for p in MIN_N_FOR_INTERVAL}
            for n in (60, 300, 1000):
                runs = poisson_queue(utilisation, 2000, n, seed=n, **queue)
                cells = []
                for percent, least in MIN_N_FOR_INTERVAL.items():
                    if n < least:
                        continue
                    printed, honest = honesty(runs, percent, truths[percent])
                    worst = min(worst, honest)
                    cells.append(f"p{percent} {printed:.0%} / {honest:.1%}")
                print(f"| {name} | {utilisation:.0%} | {n} | {' | '.join(cells)} |")

    assert worst >= 0.93
