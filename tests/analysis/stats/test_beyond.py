"""A percentile is judged by a count of requests, honestly where they queue behind each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.stats.beyond import clustered_share, share_above
from analysis.stats.rates import exact_bounds
from tests.builders.queues import poisson_queue

QUEUES = {"M/D/1": 0.0, "M/G/1, service CV 0.5": 0.5}


def values(num_below: int, num_above: int) -> np.ndarray:
    """In a mixed order, around a limit of 500 ms."""
    made = np.array([100.0] * num_below + [900.0] * num_above)
    return np.random.default_rng(1).permutation(made)


def word_of(run: np.ndarray, limit: float) -> str:
    """What a rule on p95 says of one run."""
    found = share_above([run], limit, allowed=0.05)
    if found.lo > 0.05:
        return "fail"
    return "pass" if found.hi <= 0.05 else "neither"


def words_of(runs: np.ndarray, limit: float) -> tuple[float, float]:
    """Shares of runs that pass and that fail."""
    words = [word_of(run, limit) for run in runs]
    return words.count("pass") / len(words), words.count("fail") / len(words)


def test_few_requests_refute_what_no_interval_could():
    """11 of 41 above the limit are not 5 %."""
    assert "fail" == word_of(values(30, 11), 500.0)


def test_72_requests_below_the_limit_are_enough_and_71_are_not():
    """0.95^72 is the first power below 2.5 %."""
    assert ("neither", "pass") == (word_of(values(71, 0), 500.0), word_of(values(72, 0), 500.0))


@pytest.mark.parametrize(("num_below", "num_above"), [(41, 0), (86, 2), (95, 7)])
def test_number_that_would_tell_is_the_least_one_that_does(num_below, num_above):
    """At the same share: one fewer would not."""
    found = share_above([values(num_below, num_above)], 500.0, allowed=0.05)
    needed = found.needed_n(0.05)

    effective = [n / found.inflation for n in (needed - 1, needed)]
    ends = [exact_bounds(found.value * n, n) for n in effective]

    assert needed > found.n
    assert [False, True] == [end.lo > 0.05 or end.hi <= 0.05 for end in ends]


def test_share_at_the_limit_is_never_told():
    """5 of 100 may be and are."""
    assert share_above([values(95, 5)], 500.0, allowed=0.05).needed_n(0.05) is None


def test_failures_are_above_every_limit():
    """However high it is."""
    run = values(80, 0)
    run[::4] = math.inf

    assert 20 == share_above([run], 1e9, allowed=0.05).num_hits


def test_value_on_the_limit_is_within_it():
    """As nearest rank has it."""
    assert 0 == share_above([np.full(100, 500.0)], 500.0, allowed=0.05).num_hits


def test_nothing_is_no_share():
    """Null, not 0."""
    assert clustered_share([np.array([])]) is None
    assert share_above([np.array([])], 1.0, allowed=0.05) is None


def test_clustered_hits_count_for_less():
    """The same 20 of 200 in one burst say less than 20 scattered ones."""
    burst = np.zeros(200)
    burst[90:110] = 1.0
    scattered = np.random.default_rng(3).permutation(burst)
    of_burst, of_scattered = clustered_share([burst]), clustered_share([scattered])

    assert of_scattered.inflation == 1.0
    assert of_burst.lo < of_scattered.lo < 0.1 < of_scattered.hi < of_burst.hi


def test_seeds_that_differ_are_a_cluster():
    """One seed in which half of the requests hit, three in which none does."""
    mixed = np.random.default_rng(4).permutation(np.repeat([0.0, 1.0], 25))
    seeds = [mixed, *[np.zeros(50)] * 3]

    assert clustered_share(seeds).inflation > 3


def test_lull_of_a_busy_queue_is_no_pass():
    """At 70 % load, 75 requests, the limit at the true p95: hardly any run may pass."""
    runs = poisson_queue(0.7, 200, 75, seed=4)
    limit = float(np.quantile(poisson_queue(0.7, 200, 2000, seed=9), 0.95))
    passed, failed = words_of(runs, limit)

    assert passed <= 0.08
    assert failed <= 0.08


def test_limit_far_out_of_reach_is_met_although_requests_queue():
    """Five times the true p95, which no lull of this load explains."""
    runs = poisson_queue(0.3, 100, 150, seed=4)
    limit = 5 * float(np.quantile(poisson_queue(0.3, 100, 2000, seed=9), 0.95))

    assert words_of(runs, limit)[0] >= 0.9


@pytest.mark.bench
@pytest.mark.timeout(600)
@pytest.mark.parametrize("load", [0.0, 0.3, 0.7, 0.9])
def test_false_answers_and_power_table(load):
    """Rows of the table of METRICS.md: 400 runs of each queue and length at one load."""
    worst = 0.0
    for name, service_cv in QUEUES.items() if load else [("independent", 0.0)]:
        long = _run(load, 400, 4000, seed=99, service_cv=service_cv).ravel()
        edge, fine, bad, worse = (float(np.quantile(long, q)) for q in (0.95, 0.99, 0.85, 0.7))
        for n in (75, 150, 300, 1000):
            runs = _run(load, 400, n, seed=n, service_cv=service_cv)
            at_edge = words_of(runs, edge)
            worst = max(worst, *at_edge)
            cells = (
                *at_edge,
                words_of(runs, fine)[0],
                words_of(runs, 5 * edge)[0],
                words_of(runs, bad)[1],
                words_of(runs, worse)[1],
            )
            shares = " | ".join(f"{cell:.1%}" for cell in cells)
            print(f"| {name} | {load:.0%} | {n} | {shares} |", flush=True)

    assert worst <= 0.09


def _run(load: float, num: int, n: int, *, seed: int, service_cv: float) -> np.ndarray:
    if not load:
        return np.random.default_rng(seed).gamma(4, 1, (num, n))
    return poisson_queue(load, num, n, seed=seed, service_cv=service_cv)
