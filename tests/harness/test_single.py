"""One request outside a run."""

from __future__ import annotations

import asyncio

import pytest

from engines import registry
from engines.base import SpeechRequest
from harness.clock import RunClock
from harness.loop import FaultTrap, run
from harness.records import TransportOutcome
from harness.settings import WireSettings
from harness.single import single
from harness.wire.http import HttpConnection
from tests.builders.servers import ScriptedServer, WaitForClose, ok
from tests.builders.wire import say


def test_single_request_leaves_record_and_payload():
    """On a connection of its own."""
    with ScriptedServer(ok(b"abcd")) as server:
        result = say(server.base_url)

    assert ("ok", b"abcd", "single") == (
        result.record.transport_outcome.value,
        result.payload,
        result.record.point_id,
    )
    assert 0 <= result.record.dispatched_ns - result.record.scheduled_ns


def test_cancelled_task_hangs_up():
    """The server sees the connection go, and the task ends as cancelled."""

    async def main(base_url: str) -> None:
        adapter = registry.create("generic", base_url=base_url)
        request = SpeechRequest("r1", "Hello.")
        task = asyncio.ensure_future(
            single(adapter, request, settings=WireSettings(), clock=RunClock())
        )
        while not server.requests:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while server.num_open:
            await asyncio.sleep(0.005)

    with ScriptedServer((WaitForClose(),)) as server:
        run(main(server.base_url))


def test_bug_in_a_callback_is_raised_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    """Bytes that our own code cannot take end the request at once, with the bug's own name, and
    the socket that still holds them is not asked again and again."""
    num_calls = []

    def broken(self: HttpConnection, data: bytes, stamp: object) -> None:
        num_calls.append(1)
        raise AttributeError("a bug")

    monkeypatch.setattr(HttpConnection, "on_bytes", broken)
    with ScriptedServer(ok(b"abcd")) as server, pytest.raises(AttributeError, match="a bug"):
        say(server.base_url)

    assert 1 == len(num_calls)


def test_trap_gives_the_handler_back():
    """What was there before is there again."""

    async def main() -> tuple[list[Exception], object]:
        loop, caught = asyncio.get_running_loop(), []
        with FaultTrap(caught.append):
            loop.call_soon(lambda: 1 / 0)
            await asyncio.sleep(0.01)
        return caught, loop.get_exception_handler()

    caught, handler = run(main())

    assert [ZeroDivisionError] == [type(error) for error in caught]
    assert handler is None


def test_outcomes_are_the_words_of_the_records():
    """A record of a single request reads like any other."""
    with ScriptedServer(ok(b"no", status=500, content_type="text/plain")) as server:
        record = say(server.base_url).record

    assert TransportOutcome.HTTP_ERROR is record.transport_outcome
