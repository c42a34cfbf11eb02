"""One small HTTP call read whole: probes before a run, side requests within one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engines.base import Closed, EndOfBody, Event, Headers, HttpTarget, Send, StreamBytes
from harness.clock import Clock
from harness.pacer import Pacer, Timer
from harness.wire.connection import Connection, ConnectionInfo, OnSent, Stamp, WireFailure
from harness.wire.context import Wire

__all__ = ["Call", "CallReply"]

_MAX_REPLY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CallReply:
    """The whole reply. `status` None: there was none, and `body` says why."""

    status: int | None
    headers: tuple[tuple[str, str], ...]
    body: bytes
    stamp: Stamp


class Call:
    """A `Listener` that collects one reply and hands it to `on_reply`, whatever happens."""

    def __init__(
        self,
        target: HttpTarget,
        *,
        wire: Wire,
        clock: Clock,
        pacer: Pacer,
        on_reply: Callable[[CallReply], None],
        body: bytes = b"",
        on_sent: OnSent | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self._target = target
        self._body = body
        self._wire = wire
        self._clock = clock
        self._pacer = pacer
        self._on_reply: Callable[[CallReply], None] | None = on_reply
        self._on_sent = on_sent
        self._timeout_s = timeout_s
        self._timer: Timer | None = None
        self._connection: Connection | None = None
        self._headers = Headers(0)
        self._pieces: list[bytes] = []
        self._num_bytes = 0

    def start(self) -> Call:
        """Connect and send."""
        if self._timeout_s is not None:
            due_ns = self._clock.now_ns() + round(self._timeout_s * 1e9)
            self._timer = self._pacer.at(due_ns, self._on_timeout)
        try:
            self._connection = self._wire.connect(lambda: self._target)
            self._connection.open(self)
        except (ValueError, OSError) as error:
            self._fail(str(error))
        return self

    def cancel(self) -> None:
        """Forget it; `on_reply` is not called."""
        self._on_reply = None
        self._finish(None)

    def on_open(self, _info: ConnectionInfo) -> None:
        """Send."""
        assert self._connection is not None
        if self._body or self._on_sent is not None:
            self._connection.send(Send(self._body), self._on_sent or (lambda _: None))
        else:
            self._connection.end_start()

    def on_event(self, event: Event, stamp: Stamp) -> None:
        """Collect."""
        if isinstance(event, Headers):
            self._headers = event
        elif isinstance(event, StreamBytes):
            self._num_bytes += len(event.data)
            if self._num_bytes > _MAX_REPLY_BYTES:
                self._fail(f"the reply passed {_MAX_REPLY_BYTES} bytes")
                return
            self._pieces.append(bytes(event.data))
        elif isinstance(event, EndOfBody):
            body = b"".join(self._pieces)
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.release()
            self._finish(CallReply(self._headers.status, self._headers.headers, body, stamp))

    def on_end(self, failure: WireFailure, _stamp: Stamp, _closed: Closed) -> None:
        """No whole reply."""
        self._fail(failure.text)

    def _on_timeout(self) -> None:
        self._fail(f"no reply within {self._timeout_s:.3g} s")

    def _fail(self, reason: str) -> None:
        now_ns = self._clock.now_ns()
        self._finish(CallReply(None, (), reason.encode(), Stamp(now_ns, now_ns, now_ns)))

    def _finish(self, reply: CallReply | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        on_reply, self._on_reply = self._on_reply, None
        if on_reply is not None and reply is not None:
            on_reply(reply)
