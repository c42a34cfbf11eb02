"""A raw TCP stream: every read is one delivery."""

from __future__ import annotations

from dataclasses import dataclass

from engines.base import Closed, Send, StreamBytes, TcpTarget
from engines.outcomes import TransportOutcome
from harness.clock import Clock
from harness.wire.connection import (
    ByteStream,
    ConnectionInfo,
    Listener,
    OnSent,
    Stamp,
    StreamPhases,
    WireFailure,
)
from harness.wire.dial import Dial, MakeStream
from harness.wire.failures import read_failure
from harness.wire.http_message import Origin
from harness.wire.resolve import Resolver

__all__ = ["TcpConnection", "TcpOptions"]


@dataclass(frozen=True, slots=True)
class TcpOptions:
    """What all TCP connections of one wire share."""

    clock: Clock
    resolver: Resolver
    make_stream: MakeStream


class TcpConnection:
    """A `Connection` that is one stream; it is never used again."""

    __slots__ = ("_clock", "_dial", "_has_received", "_listener", "_read_rate", "_stream")

    is_warm = False

    def __init__(self, target: TcpTarget, options: TcpOptions) -> None:
        self._clock = options.clock
        self._listener: Listener | None = None
        self._stream: ByteStream | None = None
        self._read_rate: int | None = None
        self._has_received = False
        self._dial: Dial | None = Dial(
            Origin("tcp", target.host, target.port),
            self,
            clock=options.clock,
            resolver=options.resolver,
            make_stream=options.make_stream,
        )

    def open(self, listener: Listener) -> None:
        """Connect."""
        assert self._dial is not None
        self._listener = listener
        self._dial.start()

    def send(self, action: Send, on_sent: OnSent) -> None:
        """Write the bytes as they are."""
        data = action.data.encode() if isinstance(action.data, str) else action.data
        if self._stream is not None:
            self._stream.write(data, on_sent)

    def end_start(self) -> None:
        """Nothing to do: a stream sends what it is told."""

    def limit_reading(self, bytes_per_s: int) -> None:
        """Passed down once there is a stream."""
        self._read_rate = bytes_per_s

    def release(self) -> None:
        """The reply is complete."""
        self.abort()

    def close(self, _code: int, reason: str) -> None:
        """TCP has no closing words, so the listener hears of it at once."""
        text = "closed by the client"
        failure = WireFailure(TransportOutcome.TRUNCATED, "closed_by_client", text, is_final=False)
        self._end(failure, None, Closed(reason=reason))

    def abort(self) -> None:
        """Drop everything now."""
        self._listener = None
        if self._dial is not None:
            self._dial.cancel()
        if self._stream is not None:
            self._stream.close()
        self._dial = self._stream = None

    # -- from below --------------------------------------------------------------------------

    def on_dialled(self, stream: ByteStream, info: ConnectionInfo) -> None:
        """Connected."""
        self._stream = stream
        if self._read_rate is not None:
            stream.limit_reading(self._read_rate)
        if self._listener is not None:
            self._listener.on_open(info)

    def on_dial_failed(self, failure: WireFailure, stamp: Stamp) -> None:
        """Nobody answered."""
        self._end(failure, stamp, Closed())

    def on_connected(self, _phases: StreamPhases) -> None:
        """Never called: the dial stands between."""

    def on_bytes(self, data: bytes, stamp: Stamp) -> None:
        """One read."""
        self._has_received = True
        if self._listener is not None:
            self._listener.on_event(StreamBytes(data), stamp)

    def on_eof(self, stamp: Stamp) -> None:
        """The peer closed: whether that was the end, the exchange knows."""
        kind = "closed" if self._has_received else "closed_before_response"
        text = "the server closed the connection"
        failure = WireFailure(TransportOutcome.TRUNCATED, kind, text, is_final=False)
        self._end(failure, stamp, Closed())

    def on_error(self, error: OSError, stamp: Stamp) -> None:
        """The connection broke."""
        failure = read_failure(error, "in the stream")
        self._end(failure, stamp, Closed(reason=failure.text))

    def _end(self, failure: WireFailure, stamp: Stamp | None, closed: Closed) -> None:
        listener = self._listener
        self.abort()
        if listener is not None:
            now_ns = self._clock.now_ns()
            listener.on_end(failure, stamp or Stamp(now_ns, now_ns, now_ns, False), closed)
