"""Connections that are kept, found closed, replaced."""

from __future__ import annotations

import asyncio

from engines.base import HttpTarget
from harness.settings import ConnectionSettings, WireLimits, WireSettings
from harness.wire.http import HttpConnection, HttpOptions
from harness.wire.http_message import Origin
from harness.wire.pool import HttpPool
from harness.wire.resolve import Resolver
from tests.builders.servers import Close, Request, ScriptedServer, Wait, head, ok
from tests.builders.wire import FakeStream, FakeTime, Heard, PlainAdapter, every, run_load

ORIGIN = Origin("http", "127.0.0.1", 80)


class Rig:
    """A pool of two on fake streams."""

    def __init__(self, *, lifetime_ms: float | None = None, size: int = 2) -> None:
        self.time = FakeTime()
        self.streams: list[FakeStream] = []
        options = HttpOptions(
            clock=self.time.clock,
            pacer=self.time.pacer,
            resolver=Resolver(None, is_cached=True),  # type: ignore[arg-type]
            make_stream=self._make_stream,
            limits=WireLimits(),
            user_agent="tool",
            lifetime_ns=None if lifetime_ms is None else round(lifetime_ms * 1e6),
        )
        self.pool = HttpPool(ORIGIN, options, size=size)

    def _make_stream(self, origin: Origin, receiver: object) -> FakeStream:
        self.streams.append(FakeStream(receiver, self.time.clock))  # type: ignore[arg-type]
        return self.streams[-1]

    def fill(self) -> None:
        async def main() -> None:
            filling = asyncio.ensure_future(self.pool.fill(5))
            await asyncio.sleep(0)
            for stream in list(self.streams):
                stream.accept()
            await filling

        asyncio.run(main())

    def use(self, connection: HttpConnection) -> None:
        """One whole request on it."""
        connection.aim(lambda: HttpTarget("http://127.0.0.1/"))
        heard = Heard()
        connection.open(heard)
        if not heard.infos:
            self.streams[-1].accept()
        connection.end_start()
        stream = next(s for s in self.streams if s is connection._stream)
        stream.deliver(head(200, content_length=0))
        connection.release()


def test_filling_opens_the_whole_pool():
    """Before the first request, so that none pays for a connection."""
    rig = Rig()
    rig.fill()

    assert (2, 2) == (rig.pool.num_idle, len(rig.streams))


def test_all_busy_opens_one_more_and_keeps_it():
    """Open loop: nobody waits for a connection."""
    rig = Rig()
    rig.fill()
    taken = [rig.pool.take() for _ in range(3)]

    assert [True, True, False] == [connection.is_warm for connection in taken]
    rig.use(taken[2])
    assert taken[2].is_warm


def test_connection_closed_while_idle_is_replaced():
    """The server's keep-alive limit is not the next request's failure."""
    rig = Rig()
    rig.fill()
    rig.streams[0].eof()
    rig.time.advance(1)

    assert (1, 3) == (rig.pool.num_idle, len(rig.streams))
    rig.streams[2].accept()
    assert 2 == rig.pool.num_idle
    assert 1 == rig.pool.stats.num_closed_idle


def test_server_that_went_away_is_not_knocked_at_for_ever():
    """Three failed replacements in a row end it."""
    rig = Rig()
    rig.fill()
    rig.streams[0].eof()
    for _ in range(10):
        rig.time.advance(1)
        rig.streams[-1].error(ConnectionRefusedError(111, ""))

    assert 2 + 3 == len(rig.streams)
    assert 3 == rig.pool.stats.num_failed


def test_failures_that_do_not_follow_each_other_do_not_add_up():
    """A server that closes now and then keeps its pool full, however long the point."""
    rig = Rig()
    rig.fill()
    for _ in range(5):
        next(s for s in rig.streams if not s.is_closed).eof()
        rig.time.advance(1)
        rig.streams[-1].error(ConnectionRefusedError(111, ""))
        rig.time.advance(1)
        rig.streams[-1].accept()

    assert 2 == rig.pool.num_idle


def test_the_connection_used_last_is_used_next():
    """The others stay idle together, and a server that closes idle ones closes those."""
    rig = Rig()
    rig.fill()
    first = rig.pool.take()
    rig.use(first)

    assert first is rig.pool.take()


def test_connection_past_its_lifetime_is_not_used_again():
    """Neither from the idle ones nor after its response."""
    rig = Rig(lifetime_ms=50)
    rig.fill()
    rig.time.advance(60)

    assert not rig.pool.take().is_warm


def test_closing_the_pool_closes_everything():
    """Busy and idle alike, and replaces nothing."""
    rig = Rig()
    rig.fill()
    rig.pool.take()
    rig.pool.close()
    rig.time.advance(5)

    assert [True, True] == [stream.is_closed for stream in rig.streams]


def test_server_that_cannot_be_reached_is_counted_not_raised():
    """The run begins; its requests will say what is wrong."""
    rig = Rig()

    async def main() -> None:
        filling = asyncio.ensure_future(rig.pool.fill(5))
        await asyncio.sleep(0)
        for stream in list(rig.streams):
            stream.error(ConnectionRefusedError(111, ""))
        await filling

    asyncio.run(main())

    assert (0, 2) == (rig.pool.num_idle, rig.pool.stats.num_failed)
    assert "127.0.0.1:80" in rig.pool.stats.failures[0]


def test_server_that_never_accepts_does_not_hang_the_start():
    """Filling has the connect limit."""
    rig = Rig()
    asyncio.run(rig.pool.fill(0.01))

    assert (0, 2) == (rig.pool.num_idle, rig.pool.stats.num_failed)


def test_idle_close_over_loopback_is_found_before_the_next_request():
    """The server closes after every reply without saying so: the next request gets another
    connection, succeeds, and the server sees each request once."""
    with ScriptedServer([(*ok(b"abcd"), Wait(5), Close())]) as server:
        wire = WireSettings(connections=ConnectionSettings(pool=1))
        ran = run_load(PlainAdapter(server.base_url), every(40, 3), wire=wire)

    assert ["ok"] * 3 == ran.outcomes
    assert 3 == len(server.requests)
    assert ran.point.selfcheck["connections"]["closed_idle"] >= 2


def test_close_in_the_moment_of_reuse_is_its_own_outcome():
    """The server takes the second request and hangs up: stale, and not sent a second time."""

    def script(request: Request) -> object:
        return ok(b"abcd") if not seen.append(request) and len(seen) == 1 else (Close(),)

    seen: list[Request] = []
    with ScriptedServer(script) as server:  # type: ignore[arg-type]
        wire = WireSettings(connections=ConnectionSettings(pool=1))
        ran = run_load(PlainAdapter(server.base_url), every(40, 2), wire=wire)

    assert ["ok", "stale_connection"] == ran.outcomes
    assert 2 == len(server.requests)
    assert [1, 1] == [record.attempts for record in ran.records]
