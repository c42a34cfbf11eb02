"""The capacity is an interval: read from a sweep, or searched within a budget."""

from __future__ import annotations

import math
import random
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from analysis.capacity import (
    CapacityStatus,
    Search,
    Trial,
    read_capacity,
    search_capacity,
    trial_of,
)
from analysis.errors import RulesError
from analysis.evidence import load_evidence
from analysis.slo import Slo, load_slo
from analysis.stats.isotonic import falling_fit
from engines.outcomes import TransportOutcome
from tests.builders.queues import poisson_queue, true_quantile
from tests.builders.sweeps import Reply, gamma_engine, sweep

SLO = Slo(audible_ttfa_p95_ms=100.0)


def rising_engine(rate, seed):
    """Twice the rate, twice the wait: 20, 40, 80, 160 ms at 1, 2, 4, 8 per second."""
    return gamma_engine(mean_ms=20 * rate, shape=400, num_requests=30)(rate, seed)


@pytest.fixture(scope="module")
def rising(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rising")
    return load_evidence(
        sweep(folder, {"tts": rising_engine}, rates_rps=(1.0, 2.0, 4.0, 8.0), seeds=(1, 2))
    )


# -- from a sweep ---------------------------------------------------------------------------------


def test_capacity_lies_between_the_last_rate_that_meets_and_the_first_that_misses(rising):
    """About 80 ms at 4/s, 160 at 8/s; the limit is 100."""
    (found,) = read_capacity(rising, SLO)

    assert (4.0, 8.0, CapacityStatus.ENCLOSED) == (found.lo_rps, found.hi_rps, found.status)
    assert [2, 2, 2, 0] == [point.num_met for point in found.curve]
    assert "p95 audible TTFA" in found.curve[-1].misses[0]


def test_listeners_are_those_of_the_highest_rate_that_meets(rising):
    """Achieved rate (20/s in these records) x 1 s of audio."""
    (found,) = read_capacity(rising, SLO)

    assert 20.0 == pytest.approx(found.listeners)


@pytest.mark.parametrize(
    ("limit_ms", "status"), [(1000.0, CapacityStatus.ABOVE_ALL), (5.0, CapacityStatus.BELOW_ALL)]
)
def test_answer_outside_the_sweep_is_said_to_be(rising, limit_ms, status):
    """Every rate meets it, or none does: one end stays open."""
    (found,) = read_capacity(rising, Slo(audible_ttfa_p95_ms=limit_ms))

    assert status is found.status
    assert (found.hi_rps is None) == (status is CapacityStatus.ABOVE_ALL)
    assert (found.lo_rps is None) == (status is CapacityStatus.BELOW_ALL)


def test_invalid_points_say_nothing(rising, tmp_path):
    """Neither met nor missed; without any other the capacity is unknown."""
    run = load_evidence(sweep(tmp_path, {"tts": rising_engine}, rates_rps=(1.0,)))
    for point in run.points:
        point.summary["validity"]["verdict"] = "invalid"
    (found,) = read_capacity(run, SLO)

    assert (CapacityStatus.NO_DATA, None, 1) == (
        found.status, found.best_rps, found.curve[0].num_void
    )  # fmt: skip


def test_overload_and_failures_miss_whatever_the_latency(tmp_path):
    """One in ten timed out."""

    def losing(rate, seed):
        made = list(gamma_engine(num_requests=40)(rate, seed))
        made[::10] = [Reply(0, outcome=TransportOutcome.TIMEOUT)] * 4
        return made

    (point,) = load_evidence(sweep(tmp_path, {"tts": losing})).points
    trial = trial_of(point, Slo(audible_ttfa_p95_ms=1e9))

    assert trial.meets is False
    assert any("failure rate" in miss for miss in trial.misses)
    assert any("overloaded" in miss for miss in trial.misses)
    assert any("p95 audible TTFA not reached" in miss for miss in trial.misses)


def test_a_latency_that_nobody_could_measure_is_not_called_unreached(rising):
    """No audio was kept: the objective is missed for want of a figure, and that is what is said."""
    point = replace(rising.points[0], summary=deepcopy(rising.points[0].summary))
    point.summary["metrics"]["audible_ttfa"]["p95"].update(value=None, status="no_data")

    trial = trial_of(point, SLO)

    assert ("p95 audible TTFA not measured",) == trial.misses


def test_word_errors_miss_only_where_somebody_listened(rising):
    """0.2 against 0.1; None is not held against it."""
    point = rising.points[0]

    assert trial_of(point, SLO, wer=None).meets
    assert trial_of(point, SLO, wer=0.2).misses == ("WER 20 %",)


def test_fitted_shares_only_fall():
    """A lucky higher rate is pooled with an unlucky lower one."""
    assert [1.0, 0.5, 0.5, 0.0] == falling_fit([1.0, 0.25, 0.75, 0.0], [4, 4, 4, 4])


def test_fit_minds_the_number_of_trials():
    """One trial weighs less than three."""
    assert [0.25, 0.25] == falling_fit([0.0, 1.0], [3, 1])


# -- by search ------------------------------------------------------------------------------------


def knife(limit_rps: float, log: list[float] | None = None, *, budget: int = 10_000):
    """An engine that meets the objective up to exactly this rate, for so many measurements."""
    calls = [] if log is None else log

    def measure(rate: float, seed: int) -> Trial | None:
        if len(calls) >= budget:
            return None
        calls.append(rate)
        return Trial(rate, seed, meets=rate <= limit_rps, p95_ms=10 * rate, listeners=2 * rate)

    return measure


@pytest.mark.parametrize("limit_rps", [0.3, 1.0, 7.7, 40.0])
@pytest.mark.parametrize("start_rps", [0.5, 1.0, 30.0])
def test_search_encloses_a_sharp_limit_as_narrowly_as_asked(limit_rps, start_rps):
    """Wherever it starts."""
    search = Search(start_rps, ratio=1.1)
    found = search_capacity(knife(limit_rps), search, engine="x", slo=SLO)

    assert CapacityStatus.ENCLOSED is found.status
    assert found.lo_rps <= limit_rps < found.hi_rps
    assert found.hi_rps <= 1.1 * found.lo_rps * 1.01
    assert 2 * found.lo_rps == found.listeners


def test_search_never_leaves_its_bounds():
    """The engine meets it everywhere: the highest rate is tried and the end stays open."""
    log: list[float] = []
    search = Search(1.0, highest_rps=5.0)
    found = search_capacity(knife(math.inf, log), search, engine="x", slo=SLO)

    assert (CapacityStatus.ABOVE_ALL, 5.0, None) == (found.status, found.lo_rps, found.hi_rps)
    assert max(log) == 5.0


def test_engine_that_meets_it_nowhere_is_said_to():
    """The lowest rate was tried."""
    log: list[float] = []
    search = Search(1.0, lowest_rps=0.2, highest_rps=2.0)
    found = search_capacity(knife(0.0, log), search, engine="x", slo=SLO)

    assert (CapacityStatus.BELOW_ALL, None) == (found.status, found.lo_rps)
    assert min(log) == 0.2


def test_search_that_runs_out_of_time_keeps_what_it_has():
    """Twelve measurements: met at 4, missed at 8, no time to narrow it."""
    found = search_capacity(knife(5.0, budget=12), Search(1.0), engine="x", slo=SLO)

    assert (CapacityStatus.BUDGET, 4.0, 8.0) == (found.status, found.lo_rps, found.hi_rps)


def test_rate_on_which_seeds_differ_stays_inside_the_interval():
    """Between 3 and 5 a coin decides."""

    def coin(rate: float, seed: int) -> Trial:
        meets = rate <= 3 or (rate < 5 and seed % 2 == 0)
        return Trial(rate, seed, meets=meets)

    found = search_capacity(coin, Search(1.0), engine="x", slo=SLO)

    assert found.lo_rps <= 3 < 5 <= found.hi_rps


def test_disagreeing_seeds_end_a_rate_early():
    """The third seed is not spent on it."""
    log: list[float] = []

    def coin(rate: float, seed: int) -> Trial:
        log.append(rate)
        return Trial(rate, seed, meets=rate < 2 or (rate == 2 and seed == 1))

    search_capacity(coin, Search(2.0), engine="x", slo=SLO)

    assert 2 == log.count(2.0)


def test_invalid_measurements_are_repeated_with_other_seeds():
    """Every second point is void; the answer is the same."""

    def measure(rate: float, seed: int) -> Trial:
        return Trial(rate, seed, meets=None if seed % 2 else rate <= 3)

    found = search_capacity(measure, Search(1.0), engine="x", slo=SLO)

    assert found.lo_rps <= 3 < found.hi_rps


def test_nothing_valid_is_no_answer():
    """The client never kept up."""
    found = search_capacity(
        lambda rate, seed: Trial(rate, seed, meets=None), Search(1.0), engine="x", slo=SLO
    )

    assert (CapacityStatus.NO_DATA, None, None) == (found.status, found.lo_rps, found.hi_rps)


@pytest.mark.parametrize(
    "wrong", [{"start_rps": 0}, {"start_rps": 2000}, {"start_rps": 1, "ratio": 1}]
)
def test_impossible_search_is_refused(wrong):
    """Bounds in the wrong order, no ratio."""
    with pytest.raises(ValueError, match="search"):
        Search(**wrong)


def test_true_knee_of_a_simulated_server_is_enclosed():
    """M/D/4, p95 of at most two service times: in at least 18 of 20 searches from random starts."""
    knee = _knee()
    enclosed = sum(_encloses(knee, repeat, num_arrivals=200) for repeat in range(20))

    assert enclosed >= 18


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_true_knee_is_enclosed_by_90_percent_of_searches():
    """50 seeds, 300 requests a point."""
    knee = _knee()
    enclosed = sum(_encloses(knee, repeat, num_arrivals=300) for repeat in range(50))
    print(f"knee {knee:.3f}/s enclosed by {enclosed} of 50 searches")

    assert enclosed >= 45


def _knee() -> float:
    lo, hi = 0.5, 0.99
    for _ in range(8):
        middle = (lo + hi) / 2
        if true_quantile(95, middle, num_servers=4) <= 2.0:
            lo = middle
        else:
            hi = middle
    return 4 * lo


def _encloses(knee: float, repeat: int, *, num_arrivals: int) -> bool:
    def measure(rate: float, seed: int) -> Trial:
        key = hash((repeat, seed, round(rate * 1e6))) % 2**32
        times = poisson_queue(
            min(3.0, rate / 4), 1, num_arrivals, seed=key, num_servers=4, num_before=100
        )
        p95 = float(np.sort(times[0])[math.ceil(0.95 * num_arrivals) - 1])
        return Trial(rate, seed, meets=p95 <= 2.0, p95_ms=p95)

    start = float(f"{random.Random(repeat).uniform(0.3, 6):.3g}")
    found = search_capacity(measure, Search(start), engine="x", slo=SLO)
    return (found.lo_rps or 0) <= knee <= (found.hi_rps or math.inf)


# -- objectives -----------------------------------------------------------------------------------


def test_objective_is_read_from_yaml(tmp_path):
    """What is not named keeps its default."""
    path = tmp_path / "slo.yaml"
    path.write_text("schema: 1\naudible_ttfa_p95_ms: 300\n")

    assert Slo(audible_ttfa_p95_ms=300.0) == load_slo(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema: 1\naudible_ttfa_p95: 3", "did you mean 'audible_ttfa_p95_ms'"),
        ("schema: 1\nunderrun_rate: 2", "underrun_rate"),
        ("schema: 1\naudible_ttfa_p95_ms: .nan", "audible_ttfa_p95_ms"),
        ("schema: 2", "schema"),
        ("", "empty"),
    ],
)
def test_wrong_objective_is_one_line(tmp_path, text, words):
    """File, key, what was found."""
    path = tmp_path / "slo.yaml"
    path.write_text(text)
    with pytest.raises(RulesError, match=r"slo\.yaml") as raised:
        load_slo(path)

    assert words in str(raised.value)
