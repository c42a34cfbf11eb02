"""The seam between transports and whoever uses one: a connection delivers stamped engine events.

HTTP, WebSocket, TCP and process transports all look like this to the recorder; it never learns
which one it drives. Calls go down (`Connection`), events come up (`Listener`), both on the loop's
thread. Under the protocols lie byte streams (`ByteStream`, `ByteReceiver`): a plain stamped socket
or TLS over one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from engines.base import Closed, Event, Send
from engines.outcomes import TransportOutcome

__all__ = [
    "Address",
    "ByteReceiver",
    "ByteStream",
    "Connection",
    "ConnectionInfo",
    "Listener",
    "OnSent",
    "Stamp",
    "StreamPhases",
    "WireFailure",
]

# Called with the moment just before the system call that carries the first byte.
OnSent = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Stamp:
    """When something was received; all on the run clock.

    `arrival_ns` is the kernel's stamp of the last byte of the read. Where there is none, or where
    the wall clock was set in between, it is the user stamp, `read_ns`. `floor_ns` is the latest
    moment before it at which nothing was waiting in the socket. `is_exact` is True for what the
    kernel's stamp belongs to; anything else of the same read came between floor and arrival,
    unless `is_single` says that the whole read came in one segment.
    """

    arrival_ns: int
    read_ns: int
    floor_ns: int
    is_exact: bool = True
    is_single: Callable[[], bool] | None = field(default=None, compare=False, repr=False)

    def merged(self) -> Stamp:
        """The stamp of something that came in the same read before its last byte."""
        if not self.is_exact or (self.is_single is not None and self.is_single()):
            return self
        return Stamp(self.arrival_ns, self.read_ns, self.floor_ns, False)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect: an address family and what `connect` takes."""

    family: int
    sockaddr: tuple[str | int, ...]

    def __str__(self) -> str:
        host, port = self.sockaddr[0], self.sockaddr[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class StreamPhases:
    """When a byte stream passed its phases of opening."""

    connected_ns: int
    tls_ns: int | None = None
    tls_resumed: bool | None = None


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """How a request came by its connection. Phases are None on a warm one."""

    is_reused: bool
    peer: str
    dns_ns: int | None = None
    connected_ns: int | None = None
    tls_ns: int | None = None
    tls_resumed: bool | None = None


@dataclass(frozen=True, slots=True)
class WireFailure:
    """How a connection ended a request that had not ended itself.

    `kind` is one word for statistics. With `is_final` the exchange has no say: it was a failure of
    connecting or framing, not of the protocol above. `status` and `retry_after` are those of a
    session that an HTTP status refused.
    """

    outcome: TransportOutcome
    kind: str
    text: str
    is_final: bool = True
    status: int | None = None
    retry_after: str | None = None


class Listener(Protocol):
    """Who a connection belongs to for the time of one request."""

    def on_open(self, info: ConnectionInfo, /) -> None:
        """The connection is there: now `start()` the exchange and send."""
        ...

    def on_event(self, event: Event, stamp: Stamp, /) -> None:
        """Something was received."""
        ...

    def on_end(self, failure: WireFailure, stamp: Stamp, closed: Closed, /) -> None:
        """The connection is gone; nothing more will come."""
        ...


class Connection(Protocol):
    """One transport under one request."""

    @property
    def is_warm(self) -> bool:
        """Open already: the next system call is the send."""
        ...

    def open(self, listener: Listener) -> None:
        """Connect, or take over a warm connection; leads to `on_open` or `on_end`.

        On a warm connection `on_open` is called before this returns, and no system call is made.
        """
        ...

    def send(self, action: Send, on_sent: OnSent) -> None:
        """Write what the exchange asked for."""
        ...

    def end_start(self) -> None:
        """The exchange has no more to send for now: a request without a body may go."""
        ...

    def limit_reading(self, bytes_per_s: int) -> None:
        """Read no faster than this until the request is over: a listener on a thin line."""
        ...

    def release(self) -> None:
        """The request ended well; keep the connection for another if it can be kept."""
        ...

    def close(self, code: int, reason: str, /) -> None:
        """Close by the protocol's own rules (WebSocket: with this code); `on_end` follows."""
        ...

    def abort(self) -> None:
        """Drop everything now; no more calls to the listener."""
        ...


class ByteReceiver(Protocol):
    """Who a byte stream reports to."""

    def on_connected(self, phases: StreamPhases, /) -> None:
        """Bytes can be written."""
        ...

    def on_bytes(self, data: bytes, stamp: Stamp, /) -> None:
        """One delivery."""
        ...

    def on_eof(self, stamp: Stamp, /) -> None:
        """The peer will write no more."""
        ...

    def on_error(self, error: OSError, stamp: Stamp, /) -> None:
        """The stream is dead (before `on_connected`: could not be opened)."""
        ...


class ByteStream(Protocol):
    """A connected pair of byte queues whose reads carry stamps."""

    def connect(self, address: Address) -> None:
        """Begin to connect; leads to `on_connected` or `on_error`."""
        ...

    def write(self, data: bytes, on_sent: OnSent | None = None) -> None:
        """Write now as far as the system takes it, and the rest when it does."""
        ...

    @property
    def has_unsent(self) -> bool:
        """Whether bytes are still waiting to be written."""
        ...

    def mark_drained(self, now_ns: int) -> None:
        """Nothing received so far can belong to what comes next (the request is not sent yet)."""
        ...

    def limit_reading(self, bytes_per_s: int | None) -> None:
        """Read no faster than this; None: as fast as bytes come."""
        ...

    def close(self) -> None:
        """Give the descriptor back; no more calls to the receiver."""
        ...
