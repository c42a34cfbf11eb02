"""Barge-in metrics, each worked out by hand."""

from __future__ import annotations

import pytest

from analysis.metrics import registry
from engines.outcomes import TransportOutcome
from harness.records import HUNG_UP_KIND
from tests.builders.audio import tone
from tests.builders.cohorts import point_of
from tests.builders.runs import ms
from tests.builders.views import measure, view


def cancelled(*at_ms: float, kind: str = "session"):
    """A reply in pieces of 100 ms that came at these times, cancelled at 250 ms."""
    return view(
        [(at, tone(100)) for at in at_ms],
        cancel_ns=ms(250),
        transport_outcome=TransportOutcome.CANCELLED,
        error_kind=kind,
    )


@pytest.mark.parametrize(("at_ms", "expected"), [((100, 200, 300, 390), 140), ((100, 200), 0)])
def test_cancel_to_last_byte_is_how_long_the_server_went_on(at_ms, expected):
    """The last piece at 390 came 140 ms after the cancel; none after it is 0."""
    assert expected == measure("cancel_to_last_byte", cancelled(*at_ms))


def test_closing_the_connection_hides_what_the_server_did():
    """Nothing is read after it: null, not 0."""
    assert measure("cancel_to_last_byte", cancelled(100, 200, kind=HUNG_UP_KIND)) is None


def test_request_that_was_not_cancelled_has_no_such_time():
    """Null."""
    assert measure("cancel_to_last_byte", view([(100, tone(100))])) is None


def after_cancel(**columns):
    """Arrivals at 1.0, 1.5, ... s; the first and the second are cancelled at 1.6 and 1.7 s."""
    cancels = [ms(1600), ms(1700), *[None] * 4]
    data = point_of(6, cancel_ns=cancels, **columns)
    return registry()["audible_ttfa_after_cancel"].compute(data)


def test_audible_ttfa_after_cancel_is_that_of_the_next_arrival():
    """Both cancels are followed by the arrival at 2.0 s, which counts once."""
    found = after_cancel(audible_ttfa=[90.0, 90.0, 140.0, 100.0, 100.0, 100.0])

    assert (140.0, 1, 0) == (found.value, found.n, found.missing)


def test_failed_next_arrival_is_never_heard():
    """Not reached, rather than left out."""
    found = after_cancel(outcome=["cancelled", "cancelled", "timeout", "ok", "ok", "ok"])

    assert (None, "not_reached") == (found.value, found.status)


def test_next_arrival_that_was_cancelled_unheard_is_missing():
    """It has no audible moment of its own."""
    found = after_cancel(audible_ttfa=[90.0, 90.0, float("nan"), 100.0, 100.0, 100.0])

    assert (None, 0, 1) == (found.value, found.n, found.missing)


def test_point_without_a_cancel_has_no_such_figure():
    """No data, not 0."""
    found = registry()["audible_ttfa_after_cancel"].compute(point_of(6))

    assert (None, "no_data") == (found.value, found.status)
