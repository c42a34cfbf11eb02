"""Differences between runs: right sign, right width, failures kept, same seed same interval."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.gate_rules import load_gate
from analysis.stats.bootstrap import (
    Difference,
    PairedSample,
    interval_over_seeds,
    paired_difference,
    quantile_statistic,
    unpaired_difference,
)

P50, P95 = quantile_statistic(50), quantile_statistic(95)


def mean(values: np.ndarray) -> np.ndarray:
    return values.mean(axis=-1)


def gamma(seed: int, *, shift: float = 0.0, n: int = 100) -> np.ndarray:
    return np.random.default_rng(seed).gamma(40, 30 / 40, n) + shift


def seeds(shift: float = 0.0, *, num: int = 3, n: int = 100, first: int = 0) -> list[PairedSample]:
    return [
        PairedSample(gamma(first + 2 * i, n=n), gamma(first + 2 * i + 1, n=n, shift=shift))
        for i in range(num)
    ]


def test_percentile_statistic_is_nearest_rank():
    """The 95th of 20 values is the 19th, the median of five the third."""
    assert [19.0] == P95(np.arange(1.0, 21.0)[np.newaxis]).tolist()
    assert [3.0] == P50(np.array([[5.0, 1.0, 3.0, 2.0, 4.0]])).tolist()


def test_clear_difference_is_found_with_its_size():
    """10 ms on an engine of 30 +- 5 ms."""
    found = paired_difference(seeds(10.0), P95)

    assert 10 == pytest.approx(found.value, abs=3)
    assert found.lo > 0
    assert found.p_value < 0.01


def test_pairing_removes_what_both_sides_share():
    """Prompts of very different cost, 1 ms apart: clear when paired, lost when not."""
    common = np.random.default_rng(1).uniform(100, 1000, 80)
    noise = np.random.default_rng(2).normal(0, 0.5, (2, 80))
    first, second = common + noise[0], common + 1.0 + noise[1]

    assert paired_difference([PairedSample(first, second)], mean).is_clear
    assert not unpaired_difference([first], [second], mean).is_clear


def test_seeds_that_disagree_widen_the_interval():
    """The same pooled values: three seeds of +1, +1, +1 or of -9, +1, +11."""
    noise = np.random.default_rng(3).normal(0, 1, (3, 50))
    alike = [PairedSample(each, each + 1.0) for each in noise]
    apart = [
        PairedSample(each, each + shift) for each, shift in zip(noise, (-9, 1, 11), strict=True)
    ]
    narrow, wide = (paired_difference(each, mean) for each in (alike, apart))

    assert narrow.is_clear
    assert not wide.is_clear


def test_failures_on_one_side_are_infinitely_worse():
    """A tenth of the second side failed."""
    second = gamma(1)
    second[::10] = np.inf
    found = paired_difference([PairedSample(gamma(0), second)], P95)

    assert np.inf == found.value == found.hi
    assert found.lo > 0


def test_failures_on_both_sides_cancel():
    """Neither reaches p95: no difference, and no NaN."""
    sides = []
    for seed in (0, 1):
        values = gamma(seed)
        values[::5] = np.inf
        sides.append(values)
    found = paired_difference([PairedSample(*sides)], P95)

    assert (0, 0, 0) == (found.value, found.lo, found.hi)


def test_nothing_to_compare_has_no_figures():
    """Null, not 0."""
    found = paired_difference([PairedSample(np.array([]), np.array([]))], P50)

    assert (None, None, 0) == (found.value, found.p_value, found.num_pairs)


def test_same_seed_gives_the_same_interval():
    """Results can be repeated."""
    first, second = (paired_difference(seeds(1.0), P95, seed=7) for _ in range(2))

    assert first == second


def test_blocks_widen_the_interval_of_queued_requests():
    """The same values in an order in which neighbours are alike."""
    values = np.sort(gamma(5, n=300))
    shuffled = np.random.default_rng(0).permutation(values)
    zeros = np.zeros(300)
    queued, mixed = (
        paired_difference([PairedSample(zeros, each)], mean) for each in (values, shuffled)
    )

    assert queued.hi - queued.lo > 3 * (mixed.hi - mixed.lo)


def test_interval_over_seeds_needs_three():
    """Two seeds cannot tell how far seeds differ."""
    assert interval_over_seeds([gamma(0), gamma(1)], P50) is None
    assert interval_over_seeds([gamma(0), gamma(1), gamma(2)], P50) is not None


def test_interval_over_seeds_holds_the_truth():
    """Mean of a gamma engine of 30 ms: in at least 93 of 100 repeats of three seeds."""
    covered = 0
    for repeat in range(100):
        values = [gamma(1000 + 3 * repeat + i) for i in range(3)]
        found = interval_over_seeds(values, mean, num_resamples=300)
        covered += found.lo <= 30 <= found.hi

    assert covered >= 93


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_false_alarms_and_power_of_a_regression_rule():
    """1,000 pairs of five seeds of 300 requests of a gamma engine of 30 ms (shape 40), p95.

    Threshold 0: at most 8 % of equal pairs raise an alarm; +2 ms is seen in at least 80 %.
    """
    equal = [_five_seeds(0.0, first=100_000 + 10 * i) for i in range(1000)]
    alarms = sum(found.lo > 0 for found in equal)
    passed = sum(found.lo <= 0 and found.hi <= 0.25 * found.first for found in equal)
    seen = sum(_five_seeds(2.0, first=10 * i).lo > 0 for i in range(500))
    print(
        f"false alarms {alarms / 1000:.1%}, equal engines that pass {passed / 1000:.1%},"
        f" power at +2 ms {seen / 500:.1%}"
    )

    assert alarms <= 80
    assert passed >= 900
    assert seen >= 400


def _five_seeds(shift: float, *, first: int) -> Difference:
    return paired_difference(seeds(shift, num=5, n=300, first=first), P95, num_resamples=500)


@pytest.mark.bench
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", [40, 4])
def test_answers_of_the_bundled_regression_rules(shape):
    """Rows of the table of METRICS.md: one seed of 88 requests, as in the README's chapter on CI.

    Equal engines and one that takes a fifth, a half or twice as long, of a narrow (shape 40) and of
    a wide distribution, by the two latency rules of no-regression; 1,000 pairs each.
    """
    alarms = 0.0
    for rule in load_gate("no-regression").rules[:2]:
        for factor in (1.0, 1.2, 1.5, 2.0):
            words = [_answer(rule, i, shape=shape, factor=factor) for i in range(1000)]
            shares = [words.count(word) / 1000 for word in ("pass", "fail", "inconclusive")]
            alarms = max(alarms, shares[1]) if factor == 1.0 else alarms
            cells = " | ".join(f"{each:.1%}" for each in shares)
            print(f"| {shape} | {rule.statistic} | {factor:g} | {cells} |", flush=True)

    assert alarms <= 0.04


def _answer(rule, repeat: int, *, shape: int, factor: float) -> str:
    random = np.random.default_rng([repeat, shape])
    first, second = random.gamma(shape, 1 / shape, (2, 88))
    found = paired_difference(
        [PairedSample(first, factor * second)], quantile_statistic(rule.percent), num_resamples=500
    )
    if found.lo > rule.allowed_change(found.first):
        return "fail"
    return "pass" if found.hi <= rule.unseen_change(found.first) else "inconclusive"
