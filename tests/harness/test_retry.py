"""Whether and when a request is tried again."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from harness.clock import FakeClock
from harness.records import ChunkEvent, Phase, RequestRecord, TextEvent, TransportOutcome
from harness.retry import next_attempt_ns, reset_for_retry, retry_after_s
from harness.settings import RetrySettings, TimeoutSettings
from tests.builders.wire import ms

NOW_S = 1_700_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


@dataclass
class _Ended:
    record: RequestRecord
    retry_after: str | None = None


def _ended(outcome: TransportOutcome = TransportOutcome.REFUSED, **values: object) -> _Ended:
    record = RequestRecord("r", "p", 0, 0, Phase.MEASURE, "x", "t", 0, dispatched_ns=0)
    record.transport_outcome, record.attempts = outcome, 1
    retry_after = values.pop("retry_after", None)
    for name, value in values.items():
        setattr(record, name, value)
    return _Ended(record, retry_after)  # type: ignore[arg-type]


def _next_ms(ended: _Ended, *, total_s: float | None = 120.0, **settings: object) -> float | None:
    clock = FakeClock(now_ns=ms(100))
    due_ns = next_attempt_ns(
        ended,  # type: ignore[arg-type]
        RetrySettings(**({"max_retries": 2} | settings)),  # type: ignore[arg-type]
        clock=clock,
        timeouts=TimeoutSettings(total_s=total_s),
    )
    return None if due_ns is None else due_ns / 1e6


def test_nothing_is_tried_again_by_default():
    """A hidden retry changes what is measured."""
    assert None is _next_ms(_ended(), max_retries=0)


def test_backoff_doubles():
    """1 s, then 2 s."""
    assert 1100 == _next_ms(_ended())
    assert 2100 == _next_ms(_ended(attempts=2))


def test_attempts_have_an_end():
    """Two retries are three attempts."""
    assert None is _next_ms(_ended(attempts=3))


def test_server_says_when():
    """Retry-After goes before our own backoff, shorter or longer."""
    assert 7100 == _next_ms(_ended(retry_after="7"))
    assert 100 == _next_ms(_ended(retry_after="0"))


def test_longer_wait_than_allowed_is_not_waited_for():
    """An hour is the server's way to say no."""
    assert None is _next_ms(_ended(retry_after="3600"))
    assert 30_100 == _next_ms(_ended(retry_after="30"))


def test_no_retry_past_the_total_limit():
    """It counts from the first attempt, so a retry could only time out."""
    assert None is _next_ms(_ended(retry_after="7"), total_s=5.0)
    assert None is _next_ms(_ended(retry_after="2", dispatched_ns=-ms(4000)), total_s=5.0)
    assert 600 == _next_ms(_ended(dispatched_ns=-ms(4000)), total_s=5.0, backoff_s=0.5)


@pytest.mark.parametrize(
    "outcome",
    [
        TransportOutcome.TRUNCATED,
        TransportOutcome.TIMEOUT,
        TransportOutcome.HTTP_ERROR,
        TransportOutcome.CLIENT_ERROR,
        TransportOutcome.OK,
    ],
)
def test_only_failures_to_begin_are_tried_again(outcome: TransportOutcome):
    """The rest would be paid for twice."""
    assert None is _next_ms(_ended(outcome))


def test_never_after_audio_was_received():
    """The listener has heard it."""
    assert None is _next_ms(_ended(chunks=[ChunkEvent(0, 1, 1, 1, 0, 2)]))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("3", 3.0),
        (" 3 ", 3.0),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("1.5", None),
        ("٣", None),
        ("", None),
        ("9" * 400, float("inf")),
        ("Tue, 14 Nov 99999 22:13:30 GMT", None),
        ("Tue, 14 Nov 2023 22:13:30 +99999999999999", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str | None, expected: float | None):
    """Anything else says nothing."""
    assert expected == retry_after_s(value, realtime_ns=NOW_S * 1_000_000_000)


def test_reset_keeps_the_first_dispatch_and_the_count():
    """Latency counts from the first attempt."""
    record = RequestRecord("r", "p", 0, 0, Phase.MEASURE, "x", "t", 5, dispatched_ns=7)
    record.attempts, record.sent_ns, record.http_status, record.error_kind = 1, 8, 429, "headers"
    record.body_bytes, record.text_events = 40, [TextEvent(0, 7, 8, None)]
    reset_for_retry(record)

    assert (5, 7, 1) == (record.scheduled_ns, record.dispatched_ns, record.attempts)
    assert (None, None, None) == (record.sent_ns, record.http_status, record.error_kind)
    assert (0, []) == (record.body_bytes, record.text_events)


def test_reset_clears_every_stamp_of_the_attempt():
    """A field added later must not leak from one attempt into the next: all optional ones are
    cleared but those that are about the request."""
    record = RequestRecord("r", "p", 0, 0, Phase.MEASURE, "x", "t", 5, dispatched_ns=7)
    kept = {"dispatched_ns", "audio_file", "audio_offset", "known_onset_sample", "cancel_ns"}
    optional = [f for f in _optional_fields() if f not in kept]
    for name in optional:
        setattr(record, name, 1)
    reset_for_retry(record)

    assert [] == [name for name in optional if getattr(record, name) is not None]


def _optional_fields() -> list[str]:
    return [f.name for f in fields(RequestRecord) if f.default is None]
