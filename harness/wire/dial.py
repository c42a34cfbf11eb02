"""From a host to an open byte stream: look up, try each address in turn, stamp each phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from harness.clock import Clock
from harness.wire.connection import (
    Address,
    ByteReceiver,
    ByteStream,
    ConnectionInfo,
    Stamp,
    StreamPhases,
    WireFailure,
)
from harness.wire.failures import connect_failure
from harness.wire.http_message import Origin
from harness.wire.resolve import Resolver

__all__ = ["Dial", "DialOwner", "MakeStream"]

# A fresh byte stream (TLS or plain, by the origin) that reports to the receiver given.
MakeStream = Callable[[Origin, ByteReceiver], ByteStream]


class DialOwner(ByteReceiver, Protocol):
    """Who is calling: gets the bytes once connected, and how the dialling went."""

    def on_dialled(self, stream: ByteStream, info: ConnectionInfo, /) -> None:
        """Connected."""
        ...

    def on_dial_failed(self, failure: WireFailure, stamp: Stamp, /) -> None:
        """No address answered."""
        ...


class Dial:
    """One attempt to reach an origin. After `on_dialled` it only passes calls through.

    Addresses are tried in the system's order, the next one when one is refused, so that
    `localhost` works where only one of its two addresses listens.
    """

    __slots__ = ("_addresses", "_clock", "_dns_ns", "_is_over", "_make_stream", "_origin",
                 "_owner", "_resolver", "_stream")  # fmt: skip

    def __init__(
        self,
        origin: Origin,
        owner: DialOwner,
        *,
        clock: Clock,
        resolver: Resolver,
        make_stream: MakeStream,
    ) -> None:
        self._origin = origin
        self._owner = owner
        self._clock = clock
        self._resolver = resolver
        self._make_stream = make_stream
        self._addresses: list[Address] = []
        self._dns_ns: int | None = None
        self._stream: ByteStream | None = None
        self._is_over = False

    def start(self) -> None:
        """Look up and connect."""
        known = self._resolver.known(self._origin.host, self._origin.port)
        if known is not None:
            self._try_all(known)
        else:
            self._resolver.resolve(self._origin.host, self._origin.port, self._on_resolved)

    def cancel(self) -> None:
        """Give up; no more calls to the owner."""
        self._is_over = True
        if self._stream is not None:
            self._stream.close()

    def _on_resolved(self, found: Sequence[Address] | OSError) -> None:
        if self._is_over:
            return
        self._dns_ns = self._clock.now_ns()
        if isinstance(found, OSError):
            self._fail(found)
        else:
            self._try_all(found)

    def _try_all(self, addresses: Sequence[Address]) -> None:
        self._addresses = list(addresses)
        self._try_next()

    def _try_next(self) -> None:
        self._stream = self._make_stream(self._origin, self)
        self._stream.connect(self._addresses[0])

    def _fail(self, error: OSError) -> None:
        self._is_over = True
        now_ns = self._clock.now_ns()
        self._owner.on_dial_failed(
            connect_failure(error, str(self._origin)), Stamp(now_ns, now_ns, now_ns)
        )

    # -- from the stream ---------------------------------------------------------------------

    def on_connected(self, phases: StreamPhases) -> None:
        """The first address that answered."""
        assert self._stream is not None
        self._is_over = True
        info = ConnectionInfo(
            is_reused=False,
            peer=str(self._addresses[0]),
            dns_ns=self._dns_ns,
            connected_ns=phases.connected_ns,
            tls_ns=phases.tls_ns,
            tls_resumed=phases.tls_resumed,
        )
        self._owner.on_dialled(self._stream, info)

    def on_bytes(self, data: bytes, stamp: Stamp) -> None:
        """Pass through."""
        self._owner.on_bytes(data, stamp)

    def on_eof(self, stamp: Stamp) -> None:
        """Pass through."""
        self._owner.on_eof(stamp)

    def on_error(self, error: OSError, stamp: Stamp) -> None:
        """Try the next address, or pass through."""
        if self._is_over:
            self._owner.on_error(error, stamp)
            return
        assert self._stream is not None
        self._stream.close()
        if len(self._addresses) > 1:
            del self._addresses[0]
            self._try_next()
        else:
            self._fail(error)
