"""The client judges itself: each finding at its limit, with a remedy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from analysis.checks import Load, RunFacts, ValidityVerdict, judge_point, run_facts
from analysis.load import in_flight_over
from harness.arrivals import Stream, poisson_of_count_ns, random_stream
from harness.records import RunKind, StampSource
from tests.builders.cohorts import GOOD_SELFCHECK, frame, point_of
from tests.builders.runs import ms, point

FACTS = RunFacts(process="constant", base_urls={"fake": "http://tts.example:8000"})


def judged(data, facts=FACTS):
    return judge_point(data, facts)


def codes(data, facts=FACTS):
    return {reason.code: reason.verdict.value for reason in judged(data, facts).reasons}


def with_selfcheck(**values):
    return point_of(point_fields={"selfcheck": {**GOOD_SELFCHECK, **values}})


def test_undisturbed_point_is_valid_and_sustained():
    """No reason at all."""
    found = judged(point_of())

    assert (ValidityVerdict.VALID, (), Load.SUSTAINED) == (found.verdict, found.reasons, found.load)


@pytest.mark.parametrize(
    ("rate_rps", "lag_ms", "verdict"),
    [
        (100.0, 1.2, None),
        (100.0, 1.3, "suspect"),
        (100.0, 4.9, "suspect"),
        (100.0, 5.1, "invalid"),
        (2.0, 12.0, None),  # at 2/s a tenth of the mean gap is 50 ms
        (2.0, 13.0, "suspect"),
        (2.0, 51.0, "invalid"),
    ],
)
def test_dispatch_lag_is_judged_against_the_gap_between_arrivals(rate_rps, lag_ms, verdict):
    """5 ms, or a tenth of the mean inter-arrival time; a quarter of it is suspect."""
    data = point_of(dispatch_lag=lag_ms, point_fields={"rate_rps": rate_rps})

    assert verdict == codes(data).get("dispatch_lag_p99_ms")


@pytest.mark.parametrize(
    ("from_schedule_ms", "verdict"),
    [(101.0, None), (104.0, None), (106.0, "suspect"), (119.0, "suspect"), (121.0, "invalid")],
)
def test_latency_from_the_plan_must_agree_with_that_from_dispatch(from_schedule_ms, verdict):
    """Beside 100 ms: more than 20 % and 5 ms is invalid, more than 5 % and 1.25 ms suspect."""
    data = point_of(audible_ttfa=100.0, audible_ttfa_from_schedule=from_schedule_ms)

    assert verdict == codes(data).get("from_schedule_excess_p95_ms")


def test_small_excess_of_a_small_latency_is_no_finding():
    """50 % of 2 ms is 1 ms: below both absolute limits."""
    data = point_of(audible_ttfa=2.0, audible_ttfa_from_schedule=3.0)

    assert "from_schedule_excess_p95_ms" not in codes(data)


def test_client_error_is_invalid():
    """One is enough."""
    outcomes = ["client_error", *["ok"] * 19]

    assert "invalid" == codes(point_of(outcome=outcomes)).get("client_error")


def test_arrivals_in_bursts_are_no_poisson_arrivals():
    """Twenty requests that all left in the first second of ten; even spacing passes."""
    facts = RunFacts(process="poisson", base_urls=FACTS.base_urls)
    burst = point_of(dispatched_ns=ms(1000) + ms(50) * np.arange(20))

    assert "invalid" == codes(burst, facts).get("arrival_distribution_p")
    assert {} == codes(point_of(), facts)


def test_true_poisson_plans_are_hardly_ever_called_wrong():
    """None of 100 seeds."""
    facts = RunFacts(process="poisson", base_urls=FACTS.base_urls)
    wrong = 0
    for seed in range(100):
        times = np.sort(np.random.default_rng(seed).uniform(1000, 11_000, 20))
        data = point_of(dispatched_ns=(times * 1e6).astype(np.int64))
        wrong += "arrival_distribution_p" in codes(data, facts)

    assert 0 == wrong


def test_arrivals_of_a_given_number_are_poisson_arrivals():
    """The test is exact for them: of 500 plans 5 % lie below p = 0.05, and none is called wrong."""
    facts = RunFacts(process="poisson", base_urls=FACTS.base_urls)
    plans = [
        poisson_of_count_ns(20, 0, ms(10_000), rng=random_stream(Stream.MEASURE_ARRIVALS, seed=n))
        for n in range(500)
    ]
    p_values = [kstest(plan / ms(10_000), "uniform").pvalue for plan in plans]
    judged_plans = [point_of(dispatched_ns=ms(1000) + plan) for plan in plans[:50]]

    assert 25 == pytest.approx(sum(p < 0.05 for p in p_values), abs=15)  # three sigma
    assert not any("arrival_distribution_p" in codes(data, facts) for data in judged_plans)


def test_point_that_was_cut_short_is_invalid():
    """20 of 25 planned."""
    assert "invalid" == codes(point_of(num_planned=25)).get("incomplete")
    assert "invalid" == codes(point_of(point_fields={"is_complete": False})).get("incomplete")


def test_point_without_requests_is_invalid():
    """Nothing measured is nothing good."""
    found = judged(point_of(0))

    assert ValidityVerdict.INVALID is found.verdict
    assert Load.UNKNOWN is found.load


@pytest.mark.parametrize(
    ("code", "values"),
    [
        (
            "loop_stall_ms",
            {"num_stalls": 1, "stalls": [{"end_ns": 1, "length_ms": 31.0, "cause": "gc"}]},
        ),
        ("client_cpu_share", {"cpu": {"loop_thread": 0.9}}),
        (
            "wall_clock_step_ms",
            {"wall_clock_steps": [{"after_ns": 1, "detected_ns": 2, "size_ms": -40.0}]},
        ),
    ],
)
def test_disturbance_that_the_client_recorded_is_suspect(code, values):
    """With its size, its limit and what to do."""
    found = judged(with_selfcheck(**values))
    (reason,) = found.reasons

    assert (ValidityVerdict.SUSPECT, code) == (found.verdict, reason.code)
    assert reason.remedy
    assert reason.value is not None


def test_cause_of_the_longest_stall_is_named():
    """A stall by garbage collection."""
    stalls = [
        {"end_ns": 1, "length_ms": 25.0, "cause": "disk"},
        {"end_ns": 2, "length_ms": 80.0, "cause": "gc"},
    ]
    (reason,) = judged(with_selfcheck(num_stalls=2, stalls=stalls)).reasons

    assert 80.0 == reason.value
    assert "'gc'" in reason.remedy


def test_client_that_recorded_nothing_about_itself_is_suspect():
    """Unmeasured is not good."""
    data = point_of(point_fields={"selfcheck": {}})

    assert {"self_check_missing": "suspect"} == codes(data)


def test_late_reads_matter_only_without_kernel_stamps():
    """The same loop lag of 30 ms."""
    data = with_selfcheck(
        loop_lag_ms={"n": 10, "p50": 1.0, "p99": 30.0, "max": 31.0},
        self_delay_ms={"n": 0, "p50": None, "p99": None, "max": None},
    )
    user = RunFacts(process="constant", stamp_source=StampSource.USER, base_urls=FACTS.base_urls)

    assert {} == codes(data)
    assert {"self_delay_p99_ms": "suspect"} == codes(data, user)


@pytest.mark.parametrize(
    ("url", "is_shared"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost:8000", True),
        ("http://[::1]:8000", True),
        ("https://tts.example", False),
        (None, False),
    ],
)
def test_server_on_the_clients_machine_shares_its_cores(url, is_shared):
    """Loopback, by any of its names."""
    facts = RunFacts(process="constant", base_urls={"fake": url})

    assert is_shared == ("shared_cores" in codes(point_of(), facts))


@pytest.mark.parametrize(("transport", "is_shared"), [("process", True), ("http", False)])
def test_command_that_the_client_starts_shares_its_cores(transport, is_shared):
    """It has no address, and nowhere else to run."""
    engine = {"name": "fake", "base_url": "", "capabilities": {"transport": transport}}
    facts = run_facts(kind=RunKind.MEASURED, scenario={}, clock={}, engines=[engine])

    assert is_shared == ("shared_cores" in codes(point_of(), facts))


@pytest.mark.parametrize(("num_undecided", "is_found"), [(1, False), (2, True)])
def test_stalls_that_stamps_cannot_prove_are_suspect_above_1_percent(num_undecided, is_found):
    """Of a hundred replies."""
    counts = [1.0] * num_undecided + [0.0] * (100 - num_undecided)

    assert is_found == ("undecided_share" in codes(point_of(100, num_undecided=counts)))


def test_simulated_point_is_not_judged_as_a_client():
    """It has none; the plan and its completeness still count."""
    facts = RunFacts(kind=RunKind.SIMULATED, process="constant")

    assert {} == codes(point_of(point_fields={"selfcheck": {}}), facts)
    assert "incomplete" in codes(point_of(num_planned=99, point_fields={"selfcheck": {}}), facts)


# -- load -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_late", "load"), [(1, Load.SUSTAINED), (2, Load.OVERLOADED)])
@pytest.mark.parametrize("outcome", ["timeout", "refused"])
def test_load_is_sustained_while_95_percent_finish(num_late, load, outcome):
    """Of 20: 19 pass, 18 do not."""
    outcomes = [outcome] * num_late + ["ok"] * (20 - num_late)

    assert load is judged(point_of(outcome=outcomes)).load


def test_cap_on_requests_in_flight_is_overload_and_not_invalid():
    """The client was healthy; the server could not take more."""
    found = judged(point_of(100, outcome=["not_sent", *["ok"] * 99]))

    assert (ValidityVerdict.VALID, Load.OVERLOADED) == (found.verdict, found.load)


def test_queue_that_grows_is_overload_although_everything_finishes():
    """Each request takes 300 ms longer than the one before."""
    at = ms(1000) + ms(500) * np.arange(40)
    data = point_of(40, finished_ns=at + ms(300) * np.arange(40))
    found = judged(data)

    assert Load.OVERLOADED is found.load
    assert "grew" in found.load_reason


def test_requests_in_flight_are_counted_over_the_measurement():
    """Two requests of 300 ms each second for two seconds, one of them from the warm-up."""
    cohort = frame(
        3, dispatched_ns=[ms(900), ms(1500), ms(2500)], finished_ns=[ms(1200), ms(1800), ms(2800)]
    )
    curve = in_flight_over(cohort, point(measure_end_ns=ms(3000)))

    assert 0.4 == pytest.approx(curve.mean)
    assert (1, 1) == (int(curve.counts[0]), int(curve.counts.max()))
