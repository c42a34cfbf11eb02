"""One recorder per request: carries out what the exchange asks, stamps, writes down how it ended.

It is the only writer of its `RequestRecord`. Every path out of here is one outcome, an exception
of our own code included (`client_error`). On the receive path it stamps and appends; decoding,
hashing, joining and the disk come after the request is over, elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson

from engines.base import (
    Action,
    Audio,
    Buffer,
    CancelDue,
    Close,
    Closed,
    Done,
    EndOfBody,
    Event,
    Exchange,
    Fail,
    Format,
    Headers,
    Message,
    Send,
    SideReply,
    SideRequest,
    StreamBytes,
    TextAccepted,
    TextDue,
)
from engines.redact import one_line, secret_values, short_fact, written
from harness.clock import Clock
from harness.deadlines import Deadlines
from harness.pacer import Pacer, Timer
from harness.records import HUNG_UP_KIND, ChunkEvent, RequestRecord, TextEvent, TransportOutcome
from harness.settings import CancelFrom, CancelSettings, TimeoutSettings, WireLimits
from harness.text_source import TextPiece
from harness.wire.call import Call, CallReply
from harness.wire.connection import Connection, ConnectionInfo, Stamp, WireFailure
from harness.wire.context import Wire

__all__ = ["Recorder", "RecorderSettings", "RecorderTools"]

_NS = 1_000_000_000
_NO_LIMIT = 2**63
# Two arrivals closer than this were one delivery somewhere on the way.
COALESCED_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class RecorderTools:
    """What every recorder of a point works with."""

    clock: Clock
    pacer: Pacer
    wire: Wire


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """What the scenario wants from one request; `cancel` is None for those left to finish."""

    timeouts: TimeoutSettings
    limits: WireLimits = field(default_factory=WireLimits)
    pieces: tuple[TextPiece, ...] = ()
    cancel: CancelSettings | None = None
    read_bytes_per_s: int | None = None


@dataclass(slots=True)
class _TextState:
    planned_ns: int
    sent_ns: int | None = None
    ack_ns: int | None = None


@dataclass(slots=True)
class _Side:
    requests: deque[SideRequest] = field(default_factory=deque)
    call: Call | None = None


class Recorder:
    """Drives one attempt of one request. `on_finished` is called exactly once.

    After it, `record` is complete and `payload` holds the audio bytes in order of arrival.
    `retry_after` is what the server asked for, as it was written, if it did. `num_short_gaps`
    counts chunks that came within 1 ms of the one before.
    """

    def __init__(
        self,
        record: RequestRecord,
        exchange: Exchange,
        *,
        tools: RecorderTools,
        settings: RecorderSettings,
        on_finished: Callable[[Recorder], None],
    ) -> None:
        self.record = record
        self.payload: list[Buffer] = []
        self.retry_after: str | None = None
        self.num_short_gaps = 0
        self.is_finished = False
        self._exchange = exchange
        self._clock = tools.clock
        self._pacer = tools.pacer
        self._wire = tools.wire
        self._settings = settings
        self._on_finished = on_finished
        self._connection: Connection | None = None
        self._is_open = False
        self._is_dispatched = False
        self._is_started = False
        self._num_payload = 0
        self._last_arrival_ns = 0
        self._deadlines = Deadlines(
            settings.timeouts, clock=tools.clock, pacer=tools.pacer, on_missed=self._expire
        )
        self._text_timer: Timer | None = None
        self._cancel_timer: Timer | None = None
        self._is_cancelling = False
        self._text: dict[int, _TextState] = {}
        self._waiting: deque[TextPiece] = deque()
        self._side = _Side()
        self._first_send_ns: int | None = None
        self._secrets: tuple[str, ...] = ()

    # -- life --------------------------------------------------------------------------------

    def launch(self) -> None:
        """Send, or connect and then send. Never raises: what goes wrong is the outcome."""
        self.record.attempts += 1
        try:
            self._launch()
        except Exception as error:
            self._client_error(error)

    def _launch(self) -> None:
        self._secrets = secret_values(self._exchange.target)
        connection = self._connection = self._wire.connect(lambda: self._exchange.target)
        if self._settings.read_bytes_per_s is not None:
            connection.limit_reading(self._settings.read_bytes_per_s)
        if not connection.is_warm:
            self._note_dispatched(self._clock.now_ns())
        connection.open(self)
        if not self._is_dispatched and not self.is_finished:
            # A warm connection and nothing sent yet: a side request goes first.
            self._note_dispatched(self._clock.now_ns())

    def _expire(self, kind: str, text: str) -> None:
        self._finish(TransportOutcome.TIMEOUT, kind, text, self._clock.now_ns())

    def end(self, outcome: TransportOutcome, kind: str, text: str) -> None:
        """End it from outside: the drain is over, or the whole run is."""
        self._finish(outcome, kind, text, self._clock.now_ns())

    def _note_dispatched(self, now_ns: int) -> None:
        """The first system call is about to be made: all limits and text times count from now,
        but for the total of a further attempt."""
        record = self.record
        self._is_dispatched = True
        if record.dispatched_ns is None:
            record.dispatched_ns = now_ns
        self._deadlines.start(now_ns, first_ns=record.dispatched_ns)
        if self._is_open:
            self._deadlines.meet("connect")
        for piece in self._settings.pieces:
            self._text[piece.seq] = _TextState(now_ns + piece.due_ns)
        self._schedule_text(0)
        self._schedule_cancel(CancelFrom.DISPATCH, now_ns)

    # -- from the connection -----------------------------------------------------------------

    def on_open(self, info: ConnectionInfo) -> None:
        """The connection is there: start the exchange."""
        record = self.record
        record.connection_reused = info.is_reused
        record.dns_ns, record.connected_ns = info.dns_ns, info.connected_ns
        record.tls_ns, record.tls_resumed = info.tls_ns, info.tls_resumed
        self._is_open = True
        self._deadlines.meet("connect")
        try:
            self._carry_out(self._exchange.start(), None)
            self._is_started = True
            if self._connection is not None and self._side.call is None:
                self._connection.end_start()
            while self._waiting and not self.is_finished:
                self._feed_text(self._waiting.popleft())
        except Exception as error:
            self._client_error(error)

    def on_event(self, event: Event, stamp: Stamp) -> None:
        """Something was received: stamp it, let the exchange read it."""
        if self.is_finished:
            return
        try:
            if isinstance(event, EndOfBody) and not stamp.is_exact:
                self._doubt_last_chunk()  # ended by closing, which is merged like bytes
            self._note(event, stamp)
            self._carry_out(self._exchange.feed(event), stamp)
            if isinstance(event, EndOfBody) and not self.is_finished:
                raise AssertionError("the exchange did not end with the end of the body")
            self._check_size(stamp)
        except Exception as error:
            self._client_error(error)

    def on_end(self, failure: WireFailure, stamp: Stamp, closed: Closed) -> None:
        """The connection is gone."""
        self._connection = None
        if self.is_finished:
            return
        self._doubt_last_chunk()
        if failure.status is not None:
            self.record.http_status = failure.status
            self.record.headers_ns = stamp.arrival_ns
            self.retry_after = failure.retry_after
        try:
            if self._is_started and not failure.is_final:
                self._carry_out(self._exchange.feed(closed), stamp)
        except Exception as error:
            self._client_error(error)
        if self.record.cancel_ns is not None and not failure.is_final:
            self._hang_up()
        self._finish(failure.outcome, failure.kind, failure.text, stamp.arrival_ns)

    def _note(self, event: Event, stamp: Stamp) -> None:
        record = self.record
        if isinstance(event, StreamBytes):
            record.body_bytes += len(event.data)
        elif isinstance(event, Message):
            data = event.data
            is_wide = isinstance(data, str) and not data.isascii()
            record.body_bytes += len(data.encode()) if is_wide else len(data)  # type: ignore[union-attr]
        elif isinstance(event, Headers):
            record.headers_ns = stamp.arrival_ns
            record.http_status = event.status
            record.content_type = event.get("content-type")
            self.retry_after = event.get("retry-after")
            timing = event.get("server-timing")
            if timing is not None:
                self._add_facts({"server_timing": timing[:500]})
            return
        else:
            return
        if record.first_byte_ns is None:
            record.first_byte_ns = stamp.arrival_ns

    def _check_size(self, stamp: Stamp) -> None:
        """What is received is kept until the request ends, so it must not go on for ever."""
        max_bytes = self._settings.limits.max_body_bytes
        if self.record.body_bytes > max_bytes:
            text = f"the reply passed {max_bytes} bytes"
            outcome = TransportOutcome.PROTOCOL_ERROR
            self._finish(outcome, "body_too_large", text, stamp.arrival_ns)

    # -- what the exchange asks --------------------------------------------------------------

    def _carry_out(self, actions: Sequence[Action], stamp: Stamp | None) -> None:
        closing: Close | None = None
        for action in actions:
            if self.is_finished:
                return
            if isinstance(action, Audio):
                self._append(action.data, stamp)
            elif isinstance(action, Close):
                closing = action
            else:
                self._act(action, stamp)
        # Last: an exchange that says how it ended beside closing must be heard first.
        if closing is not None and self._connection is not None and not self.is_finished:
            self._connection.close(closing.code, closing.reason)

    def _doubt_last_chunk(self) -> None:
        """Its stamp may be of what came behind it: Linux merges, and keeps the last stamp."""
        chunks = self.record.chunks
        if chunks and chunks[-1].is_exact:
            chunks[-1] = replace(chunks[-1], is_exact=False)

    def _append(self, data: Buffer, stamp: Stamp | None) -> None:
        num_bytes = len(data)
        if num_bytes == 0:
            return
        if stamp is None:
            raise AssertionError("the exchange gave audio before anything was received")
        chunks = self.record.chunks
        arrival_ns = stamp.arrival_ns
        if chunks and chunks[-1].read_ns == stamp.read_ns and not stamp.merged().is_exact:
            self._doubt_last_chunk()  # it came before the last byte of its read
        chunks.append(
            ChunkEvent(
                seq=len(chunks),
                arrival_ns=arrival_ns,
                read_ns=stamp.read_ns,
                floor_ns=stamp.floor_ns,
                offset=self._num_payload,
                num_bytes=num_bytes,
                is_exact=stamp.is_exact,
            )
        )
        if arrival_ns - self._last_arrival_ns < COALESCED_NS and len(chunks) > 1:
            self.num_short_gaps += 1
        self._last_arrival_ns = arrival_ns
        self.payload.append(data)
        self._num_payload += num_bytes
        if len(chunks) == 1:
            self._deadlines.meet("first_audio")
            self._schedule_cancel(CancelFrom.FIRST_AUDIO, arrival_ns)
        cancel = self._settings.cancel
        if cancel is not None and self._num_payload >= (cancel.after_audio_bytes or _NO_LIMIT):
            # After this event is dealt with, not in the middle of it.
            self._pacer.at(arrival_ns, self._cancel)

    def _act(self, action: Action, stamp: Stamp | None) -> None:
        record = self.record
        when_ns = self._clock.now_ns() if stamp is None else stamp.arrival_ns
        if isinstance(action, Send):
            if self._connection is not None:
                self._connection.send(action, partial(self._on_sent, action))
        elif isinstance(action, Format):
            record.format, record.expected_format = action.format, action.expected
        elif isinstance(action, Done):
            self._add_facts(action.facts)
            self._finish(TransportOutcome.OK, None, None, when_ns)
        elif isinstance(action, Fail):
            self._add_facts(action.facts)
            # An exchange that gives up at once, when it is told to cancel, has nothing to wait for.
            kind = HUNG_UP_KIND if self._is_cancelling else action.where
            self._finish(action.outcome, kind, action.text, when_ns)
        elif isinstance(action, TextAccepted):
            if action.seq in self._text:
                self._text[action.seq].ack_ns = when_ns
        elif isinstance(action, SideRequest):
            self._side.requests.append(action)
            self._next_side_request()

    def _on_sent(self, action: Send | SideRequest, sent_ns: int) -> None:
        """Just before the system call that carries the action's first byte."""
        record = self.record
        if not self._is_dispatched:
            self._note_dispatched(sent_ns)
        if self._first_send_ns is None:
            self._first_send_ns = sent_ns
        if record.sent_ns is None and (action.text_seq is not None or action.ends_text):
            record.sent_ns = sent_ns
        if action.text_seq is not None:
            state = self._text.setdefault(action.text_seq, _TextState(sent_ns))
            if state.sent_ns is None:
                state.sent_ns = sent_ns
        if action.ends_text:
            record.last_text_ns = sent_ns

    def _next_side_request(self) -> None:
        side = self._side
        if side.call is not None or not side.requests:
            return
        request = side.requests.popleft()
        side.call = Call(
            request.target,
            wire=self._wire,
            clock=self._clock,
            pacer=self._pacer,
            body=request.body,
            on_sent=partial(self._on_sent, request),
            on_reply=partial(self._on_side_reply, request.tag),
        )
        side.call.start()

    def _on_side_reply(self, tag: str, reply: CallReply) -> None:
        self._side.call = None
        if self.is_finished:
            return
        try:
            # Status 0: no reply; the body says why.
            event = SideReply(tag, reply.status or 0, reply.body)
            self._carry_out(self._exchange.feed(event), reply.stamp)
            if not self.is_finished:
                self._next_side_request()
        except Exception as error:
            self._client_error(error)

    # -- what falls due ----------------------------------------------------------------------

    def _schedule_text(self, seq: int) -> None:
        pieces = self._settings.pieces
        if seq < len(pieces):
            due_ns = self._text[seq].planned_ns
            self._text_timer = self._pacer.at(due_ns, partial(self._on_text_due, seq))

    def _on_text_due(self, seq: int) -> None:
        if self.is_finished:
            return
        piece = self._settings.pieces[seq]
        if self._is_started:
            try:
                self._feed_text(piece)
            except Exception as error:
                self._client_error(error)
        else:
            self._waiting.append(piece)
        if not self.is_finished:
            self._schedule_text(seq + 1)

    def _feed_text(self, piece: TextPiece) -> None:
        self._carry_out(self._exchange.feed(TextDue(piece.seq, piece.text, piece.is_last)), None)

    def _schedule_cancel(self, counted_from: CancelFrom, from_ns: int) -> None:
        cancel = self._settings.cancel
        if cancel is None or cancel.after_s is None or cancel.counted_from is not counted_from:
            return
        due_ns = from_ns + round(cancel.after_s * _NS)
        self._cancel_timer = self._pacer.at(due_ns, self._cancel)

    def _cancel(self) -> None:
        if self.is_finished or self.record.cancel_ns is not None:
            return
        self.record.cancel_ns = self._clock.now_ns()
        self._is_cancelling = True
        try:
            actions = self._exchange.feed(CancelDue()) if self._is_started else []
            self._carry_out(actions, None)
        except Exception as error:
            self._client_error(error)
            return
        finally:
            self._is_cancelling = False
        if not actions:
            # No words for it in this protocol, or nobody to say them to yet.
            self._hang_up()

    def _hang_up(self) -> None:
        text = "cancelled by the scenario"
        self._finish(TransportOutcome.CANCELLED, HUNG_UP_KIND, text, self._clock.now_ns())

    # -- the end -----------------------------------------------------------------------------

    def _client_error(self, error: Exception) -> None:
        if self.is_finished:
            raise error  # the record is gone already: a fault of whoever took it
        kind = type(error).__name__
        self._finish(TransportOutcome.CLIENT_ERROR, kind, f"{kind}: {error}", self._clock.now_ns())

    def _add_facts(self, facts: Any) -> None:
        if facts:
            known = orjson.loads(self.record.server_timing) if self.record.server_timing else {}
            said = {name: short_fact(value) for name, value in facts.items()}
            self.record.server_timing = written(known | said)

    def _finish(
        self, outcome: TransportOutcome, kind: str | None, text: str | None, when_ns: int
    ) -> None:
        if self.is_finished:
            return
        self.is_finished = True
        record = self.record
        record.transport_outcome = outcome
        record.error_kind = kind
        record.error_text = None if text is None else one_line(text, secrets=self._secrets)
        record.finished_ns = when_ns
        record.audio_bytes = self._num_payload
        record.text_events = [
            TextEvent(seq, state.planned_ns, state.sent_ns, state.ack_ns)
            for seq, state in sorted(self._text.items())
        ]
        if record.sent_ns is None and not self._settings.pieces:
            record.sent_ns = self._first_send_ns
        if record.last_text_ns is None and not self._settings.pieces:
            record.last_text_ns = record.sent_ns
        self._let_go(is_clean=outcome is TransportOutcome.OK)
        self._on_finished(self)

    def _let_go(self, *, is_clean: bool) -> None:
        self._deadlines.cancel()
        for timer in (self._text_timer, self._cancel_timer):
            if timer is not None:
                timer.cancel()
        self._side.requests.clear()
        if self._side.call is not None:
            self._side.call.cancel()
            self._side.call = None
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if is_clean:
            connection.release()
        else:
            connection.abort()
