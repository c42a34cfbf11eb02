"""One WebSocket session over a stamped byte stream, on the websockets library's sans-IO layer.

A message is one delivery, stamped with the read that completed it. Compression is off (it would
hold bytes back), the reader is always on (so the server's pings are answered), and no limit of the
library can end a session: the message limit is the target's, the only clocks are the user's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from engines.base import Closed, Headers, Message, Send, WebSocketTarget
from engines.outcomes import TransportOutcome
from engines.redact import one_line
from harness.clock import Clock
from harness.pacer import Pacer, Timer
from harness.wire.boundary import FrameBoundary
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
from harness.wire.http_message import origin_of
from harness.wire.resolve import Resolver

__all__ = ["WebSocketConnection", "WebSocketOptions"]

_NS = 1_000_000_000
# How long the closing handshake may take before the socket is dropped.
_CLOSE_WAIT_NS = 1_000_000_000
# Answers to pings that a server may leave unread; one that pings without end never reads them.
_MAX_UNREAD_BYTES = 1024 * 1024
_REFUSED = (429, 503)
_ABNORMAL_CLOSURE = 1006
_BAD_UTF8 = 1007
_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


@dataclass(frozen=True, slots=True)
class WebSocketOptions:
    """What all sessions of one wire share; `running` holds those whose socket is not closed yet."""

    clock: Clock
    pacer: Pacer
    resolver: Resolver
    make_stream: MakeStream
    user_agent: str
    dead_peer_s: float | None
    running: set[WebSocketConnection]


class _State(Enum):
    NEW = auto()
    DIALLING = auto()
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class WebSocketConnection:
    """A `Connection` that is one session; it is never used again."""

    __slots__ = (
        "_boundary", "_close_timer", "_dial", "_fragments", "_info", "_is_text", "_listener",
        "_num_unread", "_options", "_ping_timer", "_protocol", "_read_rate", "_state", "_stream",
        "_target", "_waits_for_pong",
    )  # fmt: skip

    is_warm = False

    def __init__(self, target: WebSocketTarget, options: WebSocketOptions) -> None:
        self._target = target
        self._options = options
        self._state = _State.NEW
        self._listener: Listener | None = None
        self._stream: ByteStream | None = None
        self._dial: Dial | None = None
        self._info: ConnectionInfo | None = None
        self._boundary = FrameBoundary()
        self._fragments: list[bytes] = []
        self._is_text = False
        self._num_unread = 0
        self._waits_for_pong = False
        self._read_rate: int | None = None
        self._ping_timer: Timer | None = None
        self._close_timer: Timer | None = None
        self._protocol = ClientProtocol(
            parse_uri(target.url),
            extensions=None,
            subprotocols=list(target.subprotocols) or None,  # type: ignore[arg-type]
            max_size=target.max_message_bytes,
        )

    # -- from above --------------------------------------------------------------------------

    def open(self, listener: Listener) -> None:
        """Connect and ask for a session."""
        assert self._state is _State.NEW
        self._listener = listener
        self._options.running.add(self)
        self._state = _State.DIALLING
        self._dial = Dial(
            origin_of(self._target.url),
            self,
            clock=self._options.clock,
            resolver=self._options.resolver,
            make_stream=self._options.make_stream,
        )
        self._dial.start()

    def send(self, action: Send, on_sent: OnSent) -> None:
        """One message: text for `str`, else binary."""
        if self._protocol.state is not State.OPEN:
            return  # closing already; what ends it says so
        if isinstance(action.data, str):
            self._protocol.send_text(action.data.encode())
        else:
            self._protocol.send_binary(action.data)
        self._flush(on_sent)

    def end_start(self) -> None:
        """Nothing to do: a session sends what it is told, when it is told."""

    def limit_reading(self, bytes_per_s: int) -> None:
        """Passed down once there is a stream."""
        self._read_rate = bytes_per_s

    def release(self) -> None:
        """The reply is complete: say goodbye, and do not keep anybody waiting for the answer."""
        self._listener = None
        self._say_goodbye(1000, "")

    def close(self, code: int, reason: str) -> None:
        """Close with a code; `on_end` follows when the peer has closed too, or after a second."""
        self._say_goodbye(code, reason)

    def abort(self) -> None:
        """Drop everything now."""
        self._listener = None
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        self._options.running.discard(self)
        for timer in (self._ping_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        if self._dial is not None:
            self._dial.cancel()
        if self._stream is not None:
            self._stream.close()
        self._dial = self._stream = None

    def _say_goodbye(self, code: int, reason: str) -> None:
        if self._state is not _State.OPEN:
            if self._state is not _State.CLOSING:
                self._end(self._gone("closed_by_client", "closed by the client"), None, Closed())
            return
        self._state = _State.CLOSING
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
            self._flush()
        due_ns = self._options.clock.now_ns() + _CLOSE_WAIT_NS
        self._close_timer = self._options.pacer.at(due_ns, self._on_close_late)

    def _on_close_late(self) -> None:
        self._end(self._gone("closed_by_client", "closed by the client"), None, Closed())

    # -- opening -----------------------------------------------------------------------------

    def on_dialled(self, stream: ByteStream, info: ConnectionInfo) -> None:
        """Connected: ask for a session."""
        self._stream, self._info = stream, info
        self._state = _State.OPENING
        if self._read_rate is not None:
            stream.limit_reading(self._read_rate)
        request = self._protocol.connect()
        given = {name.lower() for name, _ in self._target.headers}
        if "user-agent" not in given:
            request.headers["User-Agent"] = self._options.user_agent
        for name, value in self._target.headers:
            if any(c in name + value for c in "\r\n\0"):
                raise ValueError(f"header {name!r} holds a line break")
            request.headers[name] = value
        self._protocol.send_request(request)
        self._flush(stream.mark_drained)

    def on_dial_failed(self, failure: WireFailure, stamp: Stamp) -> None:
        """Nobody answered."""
        self._end(failure, stamp, Closed())

    def on_connected(self, _phases: StreamPhases) -> None:
        """Never called: the dial stands between."""

    def _on_response(self, response: Response, stamp: Stamp) -> None:
        error = self._protocol.handshake_exc
        if error is not None:
            self._end(_handshake_failure(error), stamp, Closed())
            return
        self._state = _State.OPEN
        self._keep_alive()
        listener, info = self._listener, self._info
        if listener is None or info is None:
            return
        listener.on_open(info)
        if self._listener is not None:
            headers = tuple((k.lower(), v) for k, v in response.headers.raw_items())
            self._listener.on_event(Headers(response.status_code, headers), stamp)

    # -- from below --------------------------------------------------------------------------

    def on_bytes(self, data: bytes, stamp: Stamp) -> None:
        """One read: what it completed, each with the read's stamp."""
        self._protocol.receive_data(data)
        events = self._protocol.events_received()
        is_whole = self._boundary.feed(data)
        self._flush()  # pongs, and the answer to a close
        for event in events:
            if self._state is _State.CLOSED:
                return
            is_own = is_whole and event is events[-1]
            if isinstance(event, Response):
                self._on_response(event, stamp if is_own else stamp.merged())
            elif isinstance(event, Frame):
                self._on_frame(event, stamp if is_own else stamp.merged())
        self._check_protocol(stamp)

    def on_eof(self, stamp: Stamp) -> None:
        """The peer is gone, with a closing frame before or without."""
        if self._state is _State.OPENING:
            # A refusal whose body has no length ends here; anything else is an answer cut short.
            self._protocol.receive_eof()
            if isinstance(self._protocol.handshake_exc, InvalidStatus):
                self._end(_handshake_failure(self._protocol.handshake_exc), stamp, Closed())
                return
        self._end(self._gone("closed", "the server closed the connection"), stamp, self._closed())

    def on_error(self, error: OSError, stamp: Stamp) -> None:
        """The connection broke."""
        self._end(read_failure(error, "in the session"), stamp, self._closed())

    def _on_frame(self, frame: Frame, stamp: Stamp) -> None:
        if frame.opcode in _DATA:
            self._waits_for_pong = False
            self._on_data(frame, stamp)
        elif frame.opcode is Opcode.PONG:
            self._waits_for_pong = False
        elif frame.opcode is Opcode.CLOSE:
            # The server speaks its last word; the connection's end need not be waited for.
            self._end(self._gone("closed", "the server closed the session"), stamp, self._closed())

    def _on_data(self, frame: Frame, stamp: Stamp) -> None:
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        data = bytes(frame.data)
        if not frame.fin:
            self._fragments.append(data)
            return
        if self._fragments:
            data = b"".join([*self._fragments, data])
            self._fragments.clear()
        message = Message(data)
        if self._is_text:
            try:
                message = Message(data.decode())
            except UnicodeDecodeError:
                self._protocol.fail(_BAD_UTF8, "invalid UTF-8")
                self._flush()
                failure = WireFailure(
                    TransportOutcome.PROTOCOL_ERROR, "utf8", "a text message is not UTF-8"
                )
                self._end(failure, stamp, Closed(_BAD_UTF8))
                return
        if self._listener is not None:
            self._listener.on_event(message, stamp)

    def _check_protocol(self, stamp: Stamp) -> None:
        """Broken framing, or a handshake that was none."""
        if self._state is _State.CLOSED:
            return
        error = self._protocol.handshake_exc
        if error is not None:
            self._end(_handshake_failure(error), stamp, Closed())
        elif self._protocol.parser_exc is not None:
            text = one_line(f"WebSocket: {self._protocol.parser_exc}")
            failure = WireFailure(TransportOutcome.PROTOCOL_ERROR, "ws_framing", text)
            self._end(failure, stamp, self._closed())
        elif self._num_unread > _MAX_UNREAD_BYTES:
            text = "the server sends pings without end and reads no answer"
            failure = WireFailure(TransportOutcome.PROTOCOL_ERROR, "unread", text)
            self._end(failure, stamp, self._closed())

    # -- is the peer alive? ------------------------------------------------------------------

    def _keep_alive(self) -> None:
        if self._options.dead_peer_s is not None:
            half_ns = round(self._options.dead_peer_s * _NS / 2)
            due_ns = self._options.clock.now_ns() + half_ns
            self._ping_timer = self._options.pacer.at(due_ns, self._ping)

    def _ping(self) -> None:
        """Twice within the limit: ask, and look whether the last question was answered."""
        if self._waits_for_pong:
            limit_s = self._options.dead_peer_s
            text = f"no answer to a ping within {limit_s:g} s (timeouts.dead_peer_s)"
            failure = WireFailure(TransportOutcome.DEAD_PEER, "no_pong", text)
            self._end(failure, None, Closed(_ABNORMAL_CLOSURE))
            return
        if self._protocol.state is State.OPEN:
            self._waits_for_pong = True
            self._protocol.send_ping(b"alive?")
            self._flush()
        self._keep_alive()

    # -- helpers -----------------------------------------------------------------------------

    def _flush(self, on_sent: OnSent | None = None) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data and self._stream is not None:
            self._num_unread = self._num_unread + len(data) if self._stream.has_unsent else 0
            self._stream.write(data, on_sent)

    def _closed(self) -> Closed:
        received = self._protocol.close_rcvd
        if received is None:
            return Closed(_ABNORMAL_CLOSURE)
        return Closed(int(received.code), one_line(received.reason))

    def _gone(self, kind: str, text: str) -> WireFailure:
        received = self._protocol.close_rcvd
        code = "" if received is None else f" (code {int(received.code)})"
        stage = "before_session" if self._state in (_State.DIALLING, _State.OPENING) else "session"
        return WireFailure(
            TransportOutcome.TRUNCATED, f"{kind}_{stage}", f"{text}{code}", is_final=False
        )

    def _end(self, failure: WireFailure, stamp: Stamp | None, closed: Closed) -> None:
        listener = self._listener
        self.abort()
        if listener is not None:
            now_ns = self._options.clock.now_ns()
            listener.on_end(failure, stamp or Stamp(now_ns, now_ns, now_ns, False), closed)


def _handshake_failure(error: Exception) -> WireFailure:
    """A session that was not accepted: by status, or for what is wrong with the answer."""
    if not isinstance(error, InvalidStatus):
        text = one_line(f"WebSocket handshake: {error}")
        return WireFailure(TransportOutcome.PROTOCOL_ERROR, "handshake", text)
    response = error.response
    is_refusal = response.status_code in _REFUSED
    body = one_line(bytes(response.body or b""))
    return WireFailure(
        TransportOutcome.REFUSED if is_refusal else TransportOutcome.HTTP_ERROR,
        "handshake",
        f"HTTP {response.status_code}" + (f": {body}" if body else ""),
        status=response.status_code,
        retry_after=response.headers.get("Retry-After"),
    )
