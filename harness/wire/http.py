"""One HTTP/1.1 connection: a request at a time, its response as stamped engine events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from engines.base import Closed, HttpTarget, Send
from engines.outcomes import TransportOutcome
from harness.clock import Clock
from harness.pacer import Pacer, Timer
from harness.settings import WireLimits
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
from harness.wire.http_message import Origin, ResponseParser, ResponseStage, request_head
from harness.wire.resolve import Resolver

__all__ = ["HttpConnection", "HttpOptions"]

# A reply whose protocol ended before its framing (an SSE stream's last event) gets this long to
# end its framing too, so that the connection can be used again.
_LINGER_NS = 250_000_000
_WHERE = {
    ResponseStage.NOTHING: "before_response",
    ResponseStage.HEADERS: "in_headers",
    ResponseStage.BODY: "in_body",
    ResponseStage.COMPLETE: "after_response",
}


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What all HTTP connections of one wire share."""

    clock: Clock
    pacer: Pacer
    resolver: Resolver
    make_stream: MakeStream
    limits: WireLimits
    user_agent: str
    keep_alive: bool = True
    lifetime_ns: int | None = None


class _State(Enum):
    NEW = auto()
    DIALLING = auto()
    IDLE = auto()
    BUSY = auto()
    LINGERING = auto()
    CLOSED = auto()


class HttpConnection:
    """A `Connection` over a byte stream.

    `on_idle` is called when it can take another request, `on_gone` once when it is closed.
    """

    __slots__ = (
        "_dial", "_has_sent", "_info", "_linger", "_listener", "_on_gone", "_on_idle", "_opened_ns",
        "_options", "_parser", "_read_rate", "_state", "_stream", "_target", "_was_reused",
        "origin",
    )  # fmt: skip

    def __init__(
        self,
        origin: Origin,
        options: HttpOptions,
        *,
        on_idle: Callable[[HttpConnection], None],
        on_gone: Callable[[HttpConnection], None],
    ) -> None:
        self.origin = origin
        self._options = options
        self._on_idle = on_idle
        self._on_gone = on_gone
        self._state = _State.NEW
        self._stream: ByteStream | None = None
        self._dial: Dial | None = None
        self._info: ConnectionInfo | None = None
        self._opened_ns = 0
        self._target: Callable[[], HttpTarget] | None = None
        self._listener: Listener | None = None
        self._parser = ResponseParser(options.limits)
        self._has_sent = False
        self._was_reused = False
        self._linger: Timer | None = None
        self._read_rate: int | None = None

    # -- from above --------------------------------------------------------------------------

    @property
    def is_warm(self) -> bool:
        """Open and free: the next system call is the send."""
        return self._state is _State.IDLE

    @property
    def is_expired(self) -> bool:
        """Past the lifetime that the scenario gives a connection."""
        lifetime_ns = self._options.lifetime_ns
        if lifetime_ns is None:
            return False
        return self._options.clock.now_ns() - self._opened_ns > lifetime_ns

    @property
    def _is_closed(self) -> bool:
        return self._state is _State.CLOSED

    def aim(self, target: Callable[[], HttpTarget]) -> HttpConnection:
        """Say where the next request goes; asked again when its head is written."""
        self._target = target
        return self

    def open(self, listener: Listener) -> None:
        """Connect, or take over the open connection."""
        self._listener = listener
        if self._state is _State.IDLE:
            assert self._info is not None
            self._state = _State.BUSY
            self._parser = ResponseParser(self._options.limits)
            self._has_sent = False
            self._was_reused = True
            listener.on_open(ConnectionInfo(is_reused=True, peer=self._info.peer))
            return
        assert self._state is _State.NEW
        self._state = _State.DIALLING
        self._dial = Dial(
            self.origin,
            self,
            clock=self._options.clock,
            resolver=self._options.resolver,
            make_stream=self._options.make_stream,
        )
        self._dial.start()

    def send(self, action: Send, on_sent: OnSent) -> None:
        """Write head and body; an HTTP exchange sends once."""
        body = action.data.encode() if isinstance(action.data, str) else action.data
        self._write_request(body, on_sent)

    def end_start(self) -> None:
        """A request without a body goes now."""
        if not self._has_sent and self._state is _State.BUSY:
            self._write_request(b"", None)

    def limit_reading(self, bytes_per_s: int) -> None:
        """Read slowly from now on; such a connection is not kept."""
        self._read_rate = bytes_per_s
        if self._stream is not None:
            self._stream.limit_reading(bytes_per_s)

    def release(self) -> None:
        """Free the connection once its response has ended."""
        self._listener = None
        if self._state is not _State.BUSY:
            return
        if self._parser.stage is ResponseStage.COMPLETE:
            self._settle()
        elif self._parser.stage is ResponseStage.BODY:
            self._state = _State.LINGERING
            due_ns = self._options.clock.now_ns() + _LINGER_NS
            self._linger = self._options.pacer.at(due_ns, self.abort)
        else:
            self.abort()

    def close(self, _code: int, reason: str) -> None:
        """Close; HTTP has no closing words, so the listener hears of it at once."""
        listener = self._listener
        self.abort()
        if listener is not None:
            now_ns = self._options.clock.now_ns()
            failure = WireFailure(
                TransportOutcome.TRUNCATED, "closed_by_client", "closed by the client", False
            )
            listener.on_end(failure, Stamp(now_ns, now_ns, now_ns), Closed(reason=reason))

    def abort(self) -> None:
        """Drop everything now."""
        self._listener = None
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        if self._linger is not None:
            self._linger.cancel()
        if self._dial is not None:
            self._dial.cancel()
        if self._stream is not None:
            self._stream.close()
        self._dial = self._stream = self._target = None
        self._parser.drop()
        self._on_gone(self)

    def _write_request(self, body: bytes, on_sent: OnSent | None) -> None:
        assert self._target is not None
        assert self._stream is not None
        if self._has_sent:
            raise ValueError("an HTTP exchange sends one body, and this one sent a second")
        head = request_head(
            self._target(),
            self.origin,
            num_body_bytes=len(body),
            user_agent=self._options.user_agent,
            keep_alive=self._options.keep_alive,
        )
        self._has_sent = True
        self._stream.write(head + body, partial(self._on_sent, on_sent))

    def _on_sent(self, on_sent: OnSent | None, sent_ns: int) -> None:
        if self._stream is not None:
            self._stream.mark_drained(sent_ns)
        if on_sent is not None:
            on_sent(sent_ns)

    def _settle(self) -> None:
        """The response has ended: keep the connection, or not."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self._listener = self._target = None
        is_clean = self._stream is not None and not self._stream.has_unsent
        can_keep = self._options.keep_alive and self._read_rate is None and not self.is_expired
        if can_keep and self._parser.can_reuse and is_clean:
            self._state = _State.IDLE
            self._on_idle(self)
        else:
            self.abort()

    # -- from below --------------------------------------------------------------------------

    def on_dialled(self, stream: ByteStream, info: ConnectionInfo) -> None:
        """Connected: the request may go."""
        self._stream, self._info = stream, info
        self._opened_ns = self._options.clock.now_ns()
        self._state = _State.BUSY
        if self._read_rate is not None:
            stream.limit_reading(self._read_rate)
        if self._listener is not None:
            self._listener.on_open(info)

    def on_dial_failed(self, failure: WireFailure, stamp: Stamp) -> None:
        """Nobody answered."""
        self._fail(failure, stamp)

    def on_connected(self, _phases: StreamPhases) -> None:
        """Never called: the dial stands between."""

    def make_idle(self) -> None:
        """Keep a connection that was opened ahead of any request."""
        self._listener = None
        self._state = _State.IDLE
        self._on_idle(self)

    def on_bytes(self, data: bytes, stamp: Stamp) -> None:
        """One read: its events, all with its stamp."""
        if self._state not in (_State.BUSY, _State.LINGERING) or not self._has_sent:
            self._unasked(stamp)
            return
        parser = self._parser
        events = parser.feed(data)
        owner = parser.owner(events, data)
        for index, event in enumerate(events):
            listener = self._listener
            if listener is not None:
                listener.on_event(event, stamp if index >= owner else stamp.merged())
        # The listener may have released or dropped the connection meanwhile.
        if parser is not self._parser or self._is_closed:
            return
        if parser.error is not None:
            failure = WireFailure(
                TransportOutcome.PROTOCOL_ERROR, parser.error.kind, str(parser.error)
            )
            self._fail(failure, stamp)
        elif self._state is _State.LINGERING and parser.stage is ResponseStage.COMPLETE:
            self._settle()

    def on_eof(self, stamp: Stamp) -> None:
        """The server closed: the end of a body without a length, else an ending too early."""
        events = self._parser.feed_eof() if self._state is _State.BUSY else None
        if events is None:
            self._fail(self._closed_early("closed", "the server closed the connection"), stamp)
            return
        for event in events:
            if self._listener is not None:
                self._listener.on_event(event, stamp)
        if not self._is_closed:
            self.abort()

    def on_error(self, error: OSError, stamp: Stamp) -> None:
        """The connection broke."""
        failure = read_failure(error, self._parser.stage)
        if failure.outcome is TransportOutcome.TRUNCATED:
            failure = self._closed_early(failure.kind, failure.text)
        self._fail(failure, stamp)

    def _unasked(self, stamp: Stamp) -> None:
        """Bytes nobody asked for: a request that is not yet sent cannot be answered."""
        failure = WireFailure(
            TransportOutcome.PROTOCOL_ERROR, "unasked_bytes", "bytes came before any request"
        )
        self._fail(failure, stamp)

    def _closed_early(self, kind: str, text: str) -> WireFailure:
        stage = self._parser.stage
        if stage is ResponseStage.NOTHING and self._was_reused:
            return WireFailure(
                TransportOutcome.STALE_CONNECTION,
                kind,
                "the server closed a kept connection as it was used again",
            )
        return WireFailure(
            TransportOutcome.TRUNCATED, f"{kind}_{_WHERE[stage]}", f"{text}, {stage}", False
        )

    def _fail(self, failure: WireFailure, stamp: Stamp) -> None:
        listener = self._listener
        self.abort()
        if listener is not None:
            listener.on_end(failure, stamp, Closed(reason=failure.text))
