"""Stopping a request before its end, and text that comes in pieces, as the recorder sees them."""

from __future__ import annotations

import pytest

from engines.base import (
    Action,
    CancelDue,
    Close,
    Event,
    Fail,
    Headers,
    Message,
    Send,
    StreamBytes,
    TextAccepted,
    TextDue,
    WebSocketTarget,
)
from engines.outcomes import TransportOutcome
from harness.settings import CancelFrom, CancelSettings
from harness.text_source import TextPacing, pace_text
from tests.builders.recorder import RecorderRig, ScriptedExchange
from tests.builders.wire import ms

# -- cancelling -----------------------------------------------------------------------------------


def test_cancel_by_hanging_up():
    """Where the protocol has no word for it."""
    rig = RecorderRig(cancel=CancelSettings(1.0, after_s=0.02, counted_from=CancelFrom.DISPATCH))
    rig.reply((20, b"abcd"))
    rig.time.advance(21)

    assert ("cancelled", "hung_up") == rig.ending
    assert ms(30) == rig.record.cancel_ns
    assert rig.connection.is_aborted


def test_a_further_attempt_is_cancelled_and_spoken_to_like_the_first():
    """Times count from its own dispatch, though the first attempt's is the one on record."""
    cancel = CancelSettings(1.0, after_s=0.02, counted_from=CancelFrom.DISPATCH)
    pieces = pace_text("one two", TextPacing(), seed=1)
    rig = RecorderRig(Gated(), first_dispatched_ms=-500, cancel=cancel, pieces=pieces)
    rig.time.advance(21)

    assert [(0, ms(10)), (1, ms(20))] == [
        (event.seq, event.planned_ns) for event in rig.record.text_events
    ]
    assert (ms(-500), ms(30)) == (rig.record.dispatched_ns, rig.record.cancel_ns)


def test_cancel_counts_from_the_first_audio():
    """A listener interrupts what he hears."""
    rig = RecorderRig(cancel=CancelSettings(1.0, after_s=0.02))
    rig.time.advance(60)
    rig.reply((70, b"abcd"))
    rig.time.advance(19)
    assert not rig.finished
    rig.time.advance(2)

    assert ("cancelled", "hung_up") == rig.ending


def test_cancel_counts_from_the_arrival_of_audio_that_was_read_late():
    """The listener heard it when it came, whatever kept the client from reading it."""
    rig = RecorderRig(cancel=CancelSettings(1.0, after_s=0.02))
    rig.time.advance(60)
    rig.reply((55, b"abcd"))
    rig.time.advance(6)

    assert ms(75) == rig.record.cancel_ns


@pytest.mark.parametrize("limit", [6, 8])
def test_cancel_after_an_amount_of_audio(limit: int):
    """Counted as received, and met by as much."""
    rig = RecorderRig(cancel=CancelSettings(1.0, after_audio_bytes=limit))
    rig.reply((20, b"abcd"))
    rig.time.advance(15)
    assert not rig.finished
    rig.connection.event(StreamBytes(b"efgh"), 25)
    rig.time.advance(1)

    assert ("cancelled", "hung_up") == rig.ending
    assert 8 == rig.record.audio_bytes


def test_cancel_in_the_protocols_own_words_waits_for_the_answer():
    """The exchange says when it is over."""

    def react(event: Event) -> list[Action]:
        match event:
            case CancelDue():
                return [Send("stop")]
            case Message(data="stopped"):
                return [Fail(TransportOutcome.CANCELLED, "event 2", "stopped as asked")]
            case _:
                return []

    rig = RecorderRig(
        ScriptedExchange(react, target=WebSocketTarget("ws://h/")),
        cancel=CancelSettings(1.0, after_s=0.01, counted_from=CancelFrom.DISPATCH),
    )
    rig.time.advance(11)
    assert not rig.finished
    assert "stop" == rig.connection.sent[-1].data
    rig.connection.event(Message("stopped"), 40)

    assert ("cancelled", "event 2") == rig.ending


def test_exchange_that_gives_up_when_told_to_cancel_hung_up():
    """Nothing is read after it, so nothing can be said of what the server went on to send."""
    rig = RecorderRig(
        ScriptedExchange(
            lambda event: (
                [Close(), Fail(TransportOutcome.CANCELLED, "body", "cancelled")]
                if isinstance(event, CancelDue)
                else []
            )
        ),
        cancel=CancelSettings(1.0, after_s=0.01, counted_from=CancelFrom.DISPATCH),
    )
    rig.time.advance(11)

    assert ("cancelled", "hung_up") == rig.ending


def test_closing_words_do_not_hide_the_verdict_beside_them():
    """An exchange that closes and says how it ended is heard to the end."""
    rig = RecorderRig(
        ScriptedExchange(lambda _: [Close(), Fail(TransportOutcome.CANCELLED, "body", "cancelled")])
    )
    rig.connection.event(Headers(200), 20)

    assert ("cancelled", "body") == rig.ending


def test_cancel_before_the_connection_is_there():
    """Nobody to tell: hang up."""
    rig = RecorderRig(
        is_warm=False,
        cancel=CancelSettings(1.0, after_s=0.01, counted_from=CancelFrom.DISPATCH),
    )
    rig.time.advance(11)

    assert ("cancelled", "hung_up") == rig.ending


# -- incremental text -----------------------------------------------------------------------------


class Gated:
    """Sends each piece once the one before was acknowledged, as some servers demand."""

    def __init__(self) -> None:
        self.target = WebSocketTarget("ws://h/")
        self.queue: list[TextDue] = []
        self.is_waiting = False

    def start(self) -> list[Action]:
        return [Send("hello")]

    def feed(self, event: Event) -> list[Action]:
        match event:
            case TextDue():
                self.queue.append(event)
                return self._next()
            case Message(data=data) if str(data).startswith("ack"):
                self.is_waiting = False
                return [TextAccepted(int(str(data)[3:])), *self._next()]
            case _:
                return []

    def _next(self) -> list[Action]:
        if self.is_waiting or not self.queue:
            return []
        piece = self.queue.pop(0)
        self.is_waiting = True
        return [Send(piece.text, text_seq=piece.seq, ends_text=piece.is_last)]


def test_text_is_due_by_the_clock_and_gated_by_the_exchange():
    """A late acknowledgement delays what is sent, never when the next piece is due."""
    rig = RecorderRig(
        Gated(), pieces=pace_text("one two three", TextPacing(interval_s=0.01), seed=1)
    )
    rig.time.advance(25)
    rig.connection.event(Message("ack0"), 35)
    rig.time.advance(5)
    rig.connection.event(Message("ack1"), 40)
    rig.recorder.end(TransportOutcome.TIMEOUT, "total", "enough")

    assert [(0, ms(10)), (1, ms(20)), (2, ms(30))] == [
        (event.seq, event.planned_ns) for event in rig.record.text_events
    ]
    assert [ms(10), ms(35), ms(40)] == [event.sent_ns for event in rig.record.text_events]
    assert [ms(35), ms(40), None] == [event.ack_ns for event in rig.record.text_events]
    assert (ms(10), ms(40)) == (rig.record.sent_ns, rig.record.last_text_ns)


def test_text_that_falls_due_before_the_connection_waits_for_it():
    """And keeps its planned times."""
    rig = RecorderRig(Gated(), is_warm=False, pieces=pace_text("one two", TextPacing(), seed=1))
    rig.time.advance(15)
    rig.connection.connected()
    rig.connection.event(Message("ack0"), 26)
    rig.recorder.end(TransportOutcome.TIMEOUT, "total", "enough")

    assert [ms(10), ms(20)] == [event.planned_ns for event in rig.record.text_events]
    assert [ms(25), ms(25)] == [event.sent_ns for event in rig.record.text_events]


def test_a_piece_of_several_messages_was_sent_with_its_first_and_the_text_ended_with_its_last():
    """Some protocols write a piece and its commit apart."""

    def react(event: Event) -> list[Action]:
        is_ack = isinstance(event, Message)
        return [Send("commit" if is_ack else "one", text_seq=0, ends_text=True)]

    pieces = pace_text("one", TextPacing(), seed=1)
    target = WebSocketTarget("ws://h/")
    rig = RecorderRig(ScriptedExchange(react, start=[], target=target), pieces=pieces)
    rig.time.advance(20)
    rig.connection.event(Message("go on"), 30)
    rig.recorder.end(TransportOutcome.TIMEOUT, "total", "enough")

    assert [ms(10)] == [event.sent_ns for event in rig.record.text_events]
    assert (ms(10), ms(30)) == (rig.record.sent_ns, rig.record.last_text_ns)


def test_text_of_which_the_end_was_never_sent_has_no_last_moment():
    """Final text to audible is then nothing that could be measured."""
    rig = RecorderRig(Gated(), pieces=pace_text("one two", TextPacing(), seed=1))
    rig.time.advance(30)
    rig.recorder.end(TransportOutcome.TIMEOUT, "total", "enough")

    assert (ms(10), None) == (rig.record.sent_ns, rig.record.last_text_ns)


def test_greeting_is_not_text():
    """`sent_ns` is the first text, not the first message."""
    rig = RecorderRig(Gated(), pieces=pace_text("one", TextPacing(first_delay_s=0.02), seed=1))
    rig.time.advance(21)

    assert (ms(10), ms(30)) == (rig.record.dispatched_ns, rig.record.sent_ns)
