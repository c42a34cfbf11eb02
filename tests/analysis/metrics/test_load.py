"""Metrics of a whole point: rates, requests in flight, failures, listeners."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.metrics import PointMetric, registry
from harness.records import INTERRUPTED_KIND
from tests.builders.cohorts import point_of
from tests.builders.runs import ms


def of_point(name: str, data):
    metric = registry()[name]
    assert isinstance(metric, PointMetric)
    return metric.compute(data)


def test_achieved_rate_is_requests_sent_per_second():
    """20 requests in 10 s."""
    assert 2.0 == of_point("achieved_rate", point_of(20)).value


def test_failure_rate_leaves_out_what_the_scenario_cancelled():
    """One failure among nine that count, with the exact interval of 1 of 9."""
    found = of_point("failure_rate", point_of(10, outcome=["timeout", "cancelled", *["ok"] * 8]))

    assert (1 / 9, 9, 1) == (found.value, found.n, found.missing)
    assert (0.0028, 0.4825) == pytest.approx((found.lo, found.hi), abs=1e-4)


def test_failures_in_one_burst_say_less_than_as_many_scattered():
    """Ten of a hundred, all at once or every tenth: the burst's interval is the wider one."""
    burst, scattered = (
        of_point("failure_rate", point_of(100, outcome=outcomes))
        for outcomes in (
            [*["ok"] * 60, *["timeout"] * 10, *["ok"] * 30],
            [*["ok"] * 9, "timeout"] * 10,
        )
    )

    assert burst.value == scattered.value
    assert burst.hi > scattered.hi + 0.1


@pytest.mark.parametrize(
    ("name", "value"),
    [("failure_rate", 2 / 3), ("first_try_failure_rate", 2 / 3), ("finished_share", 2 / 4)],
)
def test_what_the_runs_interrupt_ended_has_not_ended_well(name: str, value: float):
    """One timed out, one interrupted, one well; one that the scenario cancelled does not count."""
    outcomes = ["timeout", "cancelled", "cancelled", "ok"]
    data = point_of(
        4,
        outcome=outcomes,
        transport_outcome=outcomes,
        error_kind=["total", INTERRUPTED_KIND, "hung_up", None],
    )

    assert value == of_point(name, data).value


def test_first_try_failure_rate_counts_what_a_retry_saved():
    """One failed, one needed two attempts, of four."""
    data = point_of(4, outcome=["timeout", "ok", "ok", "ok"], attempts=[1, 2, 1, 1])

    assert 0.5 == of_point("first_try_failure_rate", data).value
    assert 0.25 == of_point("failure_rate", data).value


def test_finished_share_counts_clean_endings():
    """Three of four, whatever their audio was."""
    data = point_of(4, transport_outcome=["ok", "ok", "cancelled", "truncated"])

    assert 0.75 == of_point("finished_share", data).value


def test_in_flight_is_averaged_over_time():
    """Two requests of 1.5 s in a phase of 2 s that begin at 0 and at 0.5 s: 2.0 s x 1 + overlap."""
    data = point_of(
        2,
        dispatched_ns=[ms(1000), ms(1500)],
        finished_ns=[ms(2500), ms(3000)],
        point_fields={"measure_end_ns": ms(3000)},
    )

    assert 1.5 == of_point("in_flight_mean", data).value
    assert 2 == of_point("in_flight_max", data).value


def test_client_that_sent_the_plan_late_sent_it_slower():
    """20 requests in a phase of 10 s, the last of which left 2 s after its end."""
    at = ms(1000) + ms(500) * np.arange(20)
    at[-1] = ms(13_000)
    data = point_of(20, dispatched_ns=at, finished_ns=at + ms(200))

    assert 20 / 12 == of_point("achieved_rate", data).value


def test_nobody_listens_to_a_request_that_failed():
    """Half of 2 requests a second are refused; the rest last 3 s."""
    failing = {"outcome": ["ok", "refused"] * 10, "audio_duration": [3.0, None] * 10}

    assert 3.0 == of_point("concurrent_listeners", point_of(20, **failing)).value


def test_concurrent_listeners_are_rate_times_duration():
    """2 replies a second of 3 s each are heard by six people at once."""
    assert 6.0 == of_point("concurrent_listeners", point_of(20, audio_duration=3.0)).value


@pytest.mark.parametrize("name", ["achieved_rate", "in_flight_mean", "concurrent_listeners"])
def test_phase_that_never_ended_has_no_rate(name):
    """Null, not 0."""
    data = point_of(4, point_fields={"measure_end_ns": None})

    assert (None, "no_data") == (of_point(name, data).value, of_point(name, data).status)


@pytest.mark.parametrize("name", ["failure_rate", "first_try_failure_rate", "finished_share"])
def test_share_of_nothing_is_null(name):
    """No requests are not 0 % failures."""
    assert of_point(name, point_of(0)).value is None
