"""Open-loop load that tries again: one request, however many attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.settings import (
    ConnectionSettings,
    RetrySettings,
    TimeoutSettings,
    WireSettings,
)
from tests.builders.servers import (
    Request,
    ScriptedServer,
    WaitForClose,
    ok,
    refusal,
)
from tests.builders.wire import PlainAdapter, every, run_load

PCM = bytes(480)


def _busy_once() -> Callable[[Request], Any]:
    seen: list[Request] = []

    def script(request: Request) -> Any:
        seen.append(request)
        return refusal(retry_after_s=0) if len(seen) == 1 else ok(PCM)

    return script


def test_without_retries_a_refusal_is_a_refusal():
    """And the server saw exactly one request."""
    with ScriptedServer(_busy_once()) as server:
        ran = run_load(PlainAdapter(server.base_url), every(1, 1))

    assert (["refused"], 1, [1]) == (
        ran.outcomes,
        len(server.requests),
        [record.attempts for record in ran.records],
    )


def test_retry_counts_from_the_first_attempt():
    """Two attempts, the first one's dispatch, the second one's reply."""
    with ScriptedServer(_busy_once()) as server:
        ran = run_load(
            PlainAdapter(server.base_url), every(1, 1), retries=RetrySettings(max_retries=1)
        )
    record = ran.records[0]

    assert (["ok"], 2, 2) == (ran.outcomes, len(server.requests), record.attempts)
    assert record.dispatched_ns < record.sent_ns
    assert (200, None) == (record.http_status, record.error_kind)


def test_retry_waits_as_the_server_asks():
    """Retry-After 1: the reply comes a second after the first dispatch, and the wait is in it."""
    script = iter([refusal(retry_after_s=1), ok(PCM)])
    with ScriptedServer(lambda _: next(script)) as server:
        ran = run_load(
            PlainAdapter(server.base_url),
            every(1, 1),
            drain_s=3.0,
            retries=RetrySettings(max_retries=1),
        )
    record = ran.records[0]

    assert ["ok"] == ran.outcomes
    assert record.first_byte_ns - record.dispatched_ns >= 1_000_000_000


def test_request_between_two_attempts_is_in_flight():
    """It ends with the drain like any other."""
    with ScriptedServer(refusal(retry_after_s=5)) as server:
        ran = run_load(
            PlainAdapter(server.base_url),
            every(1, 1),
            drain_s=0.05,
            retries=RetrySettings(max_retries=3),
        )
    record = ran.records[0]

    assert ("timeout", "drain_end") == (record.transport_outcome.value, record.error_kind)
    assert 1 == len(server.requests)


def test_retry_on_a_kept_connection_has_limits_like_any_request():
    """A server that refuses once and then says nothing is a timeout, not a wait without end."""
    script = iter([refusal(retry_after_s=0), (WaitForClose(),)])
    with ScriptedServer(lambda _: next(script)) as server:
        ran = run_load(
            PlainAdapter(server.base_url),
            every(1, 1),
            wire=WireSettings(
                ConnectionSettings(pool=2), TimeoutSettings(first_audio_s=0.05, total_s=60)
            ),
            retries=RetrySettings(max_retries=1),
        )
    record = ran.records[0]

    assert (True, 2) == (record.connection_reused, record.attempts)
    assert ("timeout", "first_audio") == (record.transport_outcome.value, record.error_kind)


def test_attempts_that_all_fail_are_one_failure():
    """With their number."""
    with ScriptedServer(refusal(retry_after_s=0)) as server:
        ran = run_load(
            PlainAdapter(server.base_url), every(1, 1), retries=RetrySettings(max_retries=2)
        )

    assert (["refused"], 3, 3) == (ran.outcomes, ran.records[0].attempts, len(server.requests))
