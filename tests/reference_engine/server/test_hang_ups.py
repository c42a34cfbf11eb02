"""Clients that hang up, at every moment: all is as it was, and the next one starts at once."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from reference_engine.batch import Stage
from tests.builders.checkpoints import Loaded
from tests.builders.reference_server import (
    NOTHING_HELD,
    PATH,
    Served,
    Session,
    body,
    served,
    session,
    start,
)

NUM_ROUNDS = 50
LONG = {"max_new_tokens": 100}
MOMENTS = ("queued", "before the first chunk", "mid-stream", "after the end of text")
HangUp = Callable[[Served, str, str], Awaitable[None]]


async def _http_hang_up(server: Served, request_id: str, moment: str) -> None:
    """Ask for a long text and drop the connection at a moment."""
    host, port = server.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body(**LONG)).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        f"X-Request-Id: {request_id}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    await server.until(lambda: _is_submitted(server, request_id))
    if moment in ("mid-stream", "after the end of text"):
        await reader.readuntil(b"\r\n\r\n")
        await reader.read(1)
    writer.transport.abort()


async def _websocket_hang_up(server: Served, request_id: str, moment: str) -> None:
    async with (
        aiohttp.ClientSession(headers={"X-Request-Id": request_id}) as client,
        session(client, server, start_with=start(**LONG)) as talk,
    ):
        await _speak_until(talk, server, request_id, moment)
        assert talk.socket._response.connection is not None
        transport = talk.socket._response.connection.transport
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


async def _speak_until(talk: Session, server: Served, request_id: str, moment: str) -> None:
    await talk.append(0, "hello the user said one more of these ")
    if moment == "after the end of text":
        await talk.end(1)
    await server.until(lambda: _is_submitted(server, request_id))
    if moment in ("mid-stream", "after the end of text"):
        await talk.hear_audio()


def _is_submitted(server: Served, request_id: str) -> bool:
    entry = server.service.ledger.get(request_id)
    return entry is not None and entry.stats is not None


async def _round(server: Served, number: int, hang_up: HangUp) -> float:
    """Two leave (a third one queued where it is its turn), and the next asks; its wait in ms."""
    moment = MOMENTS[number % len(MOMENTS)]
    if moment == "queued":
        holding = "mid-stream"
        leaving = [hang_up(server, f"{number}-{n}", holding) for n in range(2)]
        queued = hang_up(server, f"{number}-q", moment)
        await asyncio.gather(*leaving, queued)
    else:
        await asyncio.gather(*(hang_up(server, f"{number}-{n}", moment) for n in range(2)))
    headers = {"X-Request-Id": f"{number}-next"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(
            server.base_url + PATH, json=body("no", max_new_tokens=3), headers=headers
        ) as reply,
    ):
        assert 200 == reply.status
        await reply.read()
    entry = server.service.ledger.get(f"{number}-next")
    assert entry is not None
    assert entry.stats is not None
    assert entry.stats.admitted_ns is not None
    return (entry.stats.admitted_ns - entry.stats.submitted_ns) / 1e6


def _num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0


async def _storm(micro: Loaded, hang_up: HangUp) -> None:
    async with served(micro) as server:
        for number in range(4):  # what is made once is there before it is counted
            await _round(server, 1_000 + number, hang_up)
        await server.until_idle()
        await server.until(lambda: len(asyncio.all_tasks()) <= 2)
        before = (_num_descriptors(), len(asyncio.all_tasks()))

        waits_ms = [await _round(server, number, hang_up) for number in range(NUM_ROUNDS)]
        await server.until_idle()
        with suppress(TimeoutError):  # what is left then fails below, with its number
            await server.until(lambda: (_num_descriptors(), len(asyncio.all_tasks())) <= before)
        meters = server.service.assembled.engine.meters
        frames = meters.stage(Stage.FRAME)
        step_ms = frames.busy_ns / frames.num_steps / 1e6
        print(f"next one waits p50 {statistics.median(waits_ms):.2f} ms, a step {step_ms:.2f} ms")

        assert NOTHING_HELD == server.held()
        assert before >= (_num_descriptors(), len(asyncio.all_tasks()))
        # A hundred codec frames were asked for by each that left, and 99 steps take far longer.
        assert statistics.median(waits_ms) < 5 * step_ms
        assert all(entry.ended_ns is not None for entry in server.service.ledger._entries.values())


@pytest.mark.slow
def test_fifty_rounds_of_hang_ups_over_http_leave_nothing_behind(micro):
    """Slots, positions, streams, tasks and descriptors are as before; who comes next starts."""
    asyncio.run(_storm(micro, _http_hang_up))


@pytest.mark.slow
def test_fifty_rounds_of_hang_ups_over_websocket_leave_nothing_behind(micro):
    """The same with sessions, before and after the end of their text."""
    asyncio.run(_storm(micro, _websocket_hang_up))
