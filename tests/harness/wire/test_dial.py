"""From a name to an open stream, one address after the other."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass, field
from typing import Any

from harness.clock import FakeClock
from harness.wire.connection import ByteStream, ConnectionInfo, Stamp, WireFailure
from harness.wire.dial import Dial
from harness.wire.http_message import Origin
from harness.wire.resolve import Resolver
from tests.builders.wire import FakeStream, Received

ORIGIN = Origin("http", "name", 80)


@dataclass
class _Owner(Received):
    infos: list[ConnectionInfo] = field(default_factory=list)
    failures: list[WireFailure] = field(default_factory=list)

    def on_dialled(self, stream: ByteStream, info: ConnectionInfo) -> None:
        self.infos.append(info)

    def on_dial_failed(self, failure: WireFailure, stamp: Stamp) -> None:
        self.failures.append(failure)


class Rig:
    """A dial whose name has an address of each family, both looked up at 1 ns."""

    def __init__(self) -> None:
        self.clock, self.owner, self.streams = FakeClock(now_ns=1), _Owner(), []
        asyncio.run(self._start())

    async def _start(self) -> None:
        async def lookup(_host: str, port: int) -> list[Any]:
            places = [(socket.AF_INET6, ("::1", port, 0, 0)), (socket.AF_INET, ("127.0.0.1", port))]
            return [(family, 0, 0, "", place) for family, place in places]

        resolver = Resolver(asyncio.get_running_loop(), is_cached=False, lookup=lookup)
        self.dial = Dial(
            ORIGIN, self.owner, clock=self.clock, resolver=resolver, make_stream=self._make_stream
        )
        self.dial.start()
        while not self.streams:
            await asyncio.sleep(0)

    def _make_stream(self, _origin: Origin, receiver: object) -> FakeStream:
        self.streams.append(FakeStream(receiver, self.clock))  # type: ignore[arg-type]
        return self.streams[-1]


def _refused() -> OSError:
    return OSError(errno.ECONNREFUSED, "")


def test_the_next_address_is_tried_where_one_is_refused():
    """`localhost` works where only one of its two addresses listens."""
    rig = Rig()
    rig.streams[0].error(_refused())
    rig.streams[1].accept()

    assert [True, False] == [stream.is_closed for stream in rig.streams]
    assert [("127.0.0.1:80", 1)] == [(info.peer, info.dns_ns) for info in rig.owner.infos]
    assert [] == rig.owner.failures


def test_a_name_all_of_whose_addresses_are_refused_fails_once():
    """With the name that was asked for."""
    rig = Rig()
    rig.streams[0].error(_refused())
    rig.streams[1].error(_refused())

    assert ["connection_refused"] == [failure.kind for failure in rig.owner.failures]
    assert "name:80" in rig.owner.failures[0].text


def test_a_stream_that_breaks_once_it_is_open_is_not_dialled_again():
    """Its error belongs to the request."""
    rig = Rig()
    rig.streams[0].accept()
    rig.streams[0].error(_refused())

    assert 1 == len(rig.streams)
    assert 1 == len(rig.owner.errors)


def test_a_dial_that_was_given_up_calls_nobody():
    """And closes what it had begun."""
    rig = Rig()
    rig.dial.cancel()

    assert rig.streams[0].is_closed
    assert ([], []) == (rig.owner.infos, rig.owner.failures)
