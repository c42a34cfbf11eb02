"""Whether and when a failed request is tried again: pure, and never unless the scenario says so."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from harness.clock import Clock
from harness.recorder import Recorder
from harness.records import RequestRecord
from harness.settings import RetrySettings, TimeoutSettings

__all__ = ["next_attempt_ns", "reset_for_retry", "retry_after_s"]

_NS = 1_000_000_000


def retry_after_s(value: str | None, *, realtime_ns: int) -> float | None:
    """Seconds to wait by a Retry-After header (a number or a date); None if it says nothing."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    now = datetime.fromtimestamp(realtime_ns / _NS, UTC)
    return max(0.0, (moment - now).total_seconds())


def next_attempt_ns(
    recorder: Recorder, retries: RetrySettings, *, clock: Clock, timeouts: TimeoutSettings
) -> int | None:
    """When to try again, on the run clock; None: this was the last attempt.

    Never after audio was received, nor when the server wants a longer wait than the scenario
    allows, nor when the total limit, which counts from the first attempt, would pass meanwhile.
    """
    record = recorder.record
    if record.attempts > retries.max_retries or record.transport_outcome not in retries.outcomes:
        return None
    if record.chunks or record.dispatched_ns is None:
        return None
    now_ns = clock.now_ns()
    asked_s = retry_after_s(recorder.retry_after, realtime_ns=clock.to_realtime_ns(now_ns))
    wait_s = retries.backoff_s * 2 ** (record.attempts - 1) if asked_s is None else asked_s
    if wait_s > retries.max_wait_s:
        return None
    due_ns = now_ns + round(wait_s * _NS)
    total_s = timeouts.total_s
    if total_s is not None and due_ns >= record.dispatched_ns + round(total_s * _NS):
        return None
    return due_ns


def reset_for_retry(record: RequestRecord) -> None:
    """Forget one attempt, except that it was made and when the first one was dispatched."""
    record.dns_ns = record.connected_ns = record.tls_ns = record.tls_resumed = None
    record.sent_ns = record.last_text_ns = record.headers_ns = record.first_byte_ns = None
    record.finished_ns = record.connection_reused = record.http_status = None
    record.content_type = record.error_kind = record.error_text = record.server_timing = None
    record.format = record.expected_format = None
    record.body_bytes = record.audio_bytes = 0
    record.text_events = []
