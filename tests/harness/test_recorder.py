"""One request: stamps, chunks, and exactly one outcome whatever happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.base import (
    Action,
    Audio,
    AudioFormat,
    Closed,
    Done,
    EndOfBody,
    Event,
    Fail,
    Format,
    Headers,
    HttpTarget,
    Message,
    RateSource,
    SampleFormat,
    StreamBytes,
    WebSocketTarget,
)
from engines.outcomes import TransportOutcome
from harness.settings import TimeoutSettings, WireLimits
from harness.wire.connection import WireFailure
from tests.builders.recorder import RecorderRig, ScriptedExchange
from tests.builders.wire import ms, stamp

FORMAT = AudioFormat(SampleFormat.S16LE, 24_000, 1, RateSource.CONTRACT)
TRUNCATED = WireFailure(TransportOutcome.TRUNCATED, "closed_in_body", "closed early", False)
STALE = WireFailure(TransportOutcome.STALE_CONNECTION, "closed", "closed on reuse")

# -- stamps ---------------------------------------------------------------------------------------


def test_whole_reply_is_ok_with_all_its_stamps():
    """On a warm connection dispatch is the send; chunks carry arrival, read and floor."""
    rig = RecorderRig()
    rig.reply((20, b"abcd"), (30, b"ef"), end_ms=30)
    record = rig.record

    assert ("ok", None) == rig.ending
    assert (ms(10), ms(10), ms(10)) == (record.dispatched_ns, record.sent_ns, record.last_text_ns)
    assert (ms(20), ms(20), ms(30)) == (record.headers_ns, record.first_byte_ns, record.finished_ns)
    assert [(0, ms(20), 0, 4), (1, ms(30), 4, 2)] == [
        (c.seq, c.arrival_ns, c.offset, c.num_bytes) for c in record.chunks
    ]
    assert ms(20.01) == record.chunks[0].read_ns
    assert ms(19.99) == record.chunks[0].floor_ns
    assert [b"abcd", b"ef"] == rig.recorder.payload
    assert (6, 6) == (record.audio_bytes, record.body_bytes)
    assert rig.connection.is_released


def test_cold_connection_is_dispatched_before_it_connects():
    """Its phases are part of the latency."""
    rig = RecorderRig(is_warm=False)
    rig.time.advance(5)
    rig.connection.connected()

    assert (ms(10), ms(15), ms(15)) == (
        rig.record.dispatched_ns,
        rig.record.connected_ns,
        rig.record.sent_ns,
    )


def test_payload_is_kept_as_it_came():
    """The very buffers of the events: nothing is joined or copied on the receive path."""
    rig, data = RecorderRig(), b"some bytes"
    rig.reply((20, data))

    assert rig.recorder.payload[0] is data


def test_format_and_facts_are_kept():
    """What the wire said of the audio, and the small things a server tells."""

    def react(event: Event) -> list[Action]:
        match event:
            case Headers():
                return [Format(FORMAT, FORMAT)]
            case EndOfBody():
                return [Done({"tokens": 7})]
            case _:
                return []

    rig = RecorderRig(ScriptedExchange(react))
    rig.connection.event(Headers(200, (("server-timing", "gpu;dur=3"),)), 20)
    rig.connection.event(EndOfBody(), 30)

    assert FORMAT == rig.record.format == rig.record.expected_format
    assert '{"server_timing":"gpu;dur=3","tokens":7}' == rig.record.server_timing


def test_chunks_less_than_a_millisecond_apart_are_counted_as_coalesced():
    """A proxy that holds audio back delivers it in bursts: gaps below a millisecond count."""
    rig = RecorderRig()
    rig.reply((20, b"ab"), (20.5, b"cd"), (21.5, b"ef"), (40, b"gh"), end_ms=40)

    assert 1 == rig.recorder.num_short_gaps


def test_message_bytes_are_counted_as_they_travel():
    """Text is counted in UTF-8."""
    rig = RecorderRig(ScriptedExchange(target=WebSocketTarget("ws://h/")))
    rig.connection.event(Message("é"), 20)
    rig.connection.event(Message(b"abc"), 21)

    assert (5, ms(20)) == (rig.record.body_bytes, rig.record.first_byte_ns)


# -- endings --------------------------------------------------------------------------------------


def test_failure_of_the_exchange_is_the_outcome():
    """With its place, its line, and the connection dropped."""
    rig = RecorderRig(
        ScriptedExchange(lambda _: [Fail(TransportOutcome.SERVER_ERROR, "event 3", "oom")])
    )
    rig.connection.event(Headers(200), 20)

    assert ("server_error", "event 3") == rig.ending
    assert "oom" == rig.record.error_text
    assert rig.connection.is_aborted


def test_broken_connection_is_told_to_the_exchange_first():
    """It may know more than the wire."""
    exchange = ScriptedExchange(lambda event: [Done()] if isinstance(event, Closed) else [])
    rig = RecorderRig(exchange)
    rig.connection.end(TRUNCATED, 25, Closed(1000))

    assert ("ok", None) == rig.ending
    assert [Closed(1000)] == exchange.events


def test_broken_connection_of_which_the_exchange_says_nothing_is_the_wires():
    """Then the wire's word stands."""
    rig = RecorderRig(ScriptedExchange())
    rig.connection.end(TRUNCATED, 25)

    assert ("truncated", "closed_in_body") == rig.ending
    assert ms(25) == rig.record.finished_ns


def test_close_behind_the_last_bytes_takes_their_stamp_along():
    """Linux merges a close with the bytes before it: only the chunk before the last is sure."""
    rig = RecorderRig()
    rig.reply((20, b"abcd"), (30, b"ef"))
    rig.connection.end(TRUNCATED, 40)

    assert [True, False] == [chunk.is_exact for chunk in rig.record.chunks]


def test_body_that_ends_by_closing_leaves_its_last_chunk_in_doubt():
    """The end has no stamp of the kernel, and so none that could be told from the bytes'."""
    rig = RecorderRig()
    rig.reply((20, b"abcd"), (30, b"ef"))
    rig.recorder.on_event(EndOfBody(), stamp(40).merged())

    assert ("ok", None) == rig.ending
    assert [True, False] == [chunk.is_exact for chunk in rig.record.chunks]


def test_two_chunks_of_one_event_leave_the_first_in_doubt():
    """One read, one event with two pieces of audio: only the second can own the stamp."""
    rig = RecorderRig(ScriptedExchange(lambda event: [Audio(b"ab"), Audio(b"cd")]))
    rig.connection.event(StreamBytes(b"abcd"), 20)

    assert [False, True] == [chunk.is_exact for chunk in rig.record.chunks]


def test_two_chunks_of_one_segment_are_both_sure():
    """The socket knows that the whole read came in one segment."""
    rig = RecorderRig(ScriptedExchange(lambda event: [Audio(b"ab"), Audio(b"cd")]))
    rig.recorder.on_event(StreamBytes(b"abcd"), replace(stamp(20), is_single=lambda: True))

    assert [True, True] == [chunk.is_exact for chunk in rig.record.chunks]


def test_end_in_a_read_of_its_own_leaves_no_doubt():
    """The last bytes had been read before."""
    rig = RecorderRig()
    rig.reply((20, b"abcd"), (30, b"ef"), end_ms=40)

    assert [True, True] == [chunk.is_exact for chunk in rig.record.chunks]


def test_final_failure_is_not_discussed():
    """A stale connection has nothing to do with the protocol above."""
    exchange = ScriptedExchange(lambda _: [Done()])
    rig = RecorderRig(exchange)
    rig.connection.end(STALE, 25)

    assert ("stale_connection", "closed") == rig.ending
    assert [] == exchange.events


@pytest.mark.parametrize("is_in_start", [True, False])
def test_exception_of_our_own_is_a_client_error(is_in_start: bool):
    """Named, one line, never lost and never a hang."""

    def react(_event: Event) -> list[Action]:
        raise KeyError("missing")

    exchange = ScriptedExchange(react, start=[object()] if is_in_start else None)  # type: ignore[list-item]
    if is_in_start:
        exchange.start = lambda: react(EndOfBody())  # type: ignore[method-assign]
    rig = RecorderRig(exchange)
    if not is_in_start:
        rig.connection.event(Headers(200), 20)

    assert ("client_error", "KeyError") == rig.ending
    assert rig.connection.is_aborted


def test_exchange_that_does_not_end_with_its_body_is_our_error():
    """A bug of an adapter must not look like a slow server."""
    rig = RecorderRig(ScriptedExchange())
    rig.connection.event(EndOfBody(), 20)

    assert ("client_error", "AssertionError") == rig.ending


def test_error_text_is_one_line_without_the_key():
    """Even where the server echoes it."""
    target = HttpTarget(
        "http://h/", headers=(("X-Thing", "hunter2hunter2"),), secret_headers=frozenset({"x-thing"})
    )
    said = "bad key\nhunter2hunter2 " + "x" * 1000
    exchange = ScriptedExchange(
        lambda _: [Fail(TransportOutcome.HTTP_ERROR, "headers", said)], target=target
    )
    rig = RecorderRig(exchange)
    rig.connection.event(Headers(401), 20)

    assert rig.record.error_text.startswith("bad key *** xxx")
    assert len(rig.record.error_text) <= 500


@pytest.mark.parametrize("wrap", [StreamBytes, Message])
def test_a_reply_without_end_is_cut_off(wrap: type[StreamBytes | Message]):
    """Over whatever it comes: a runaway server cannot fill the memory."""
    exchange = ScriptedExchange(lambda event: [Audio(event.data)])  # type: ignore[union-attr]
    rig = RecorderRig(exchange, limits=WireLimits(max_body_bytes=1000))
    for at_ms in range(20, 30):
        rig.connection.event(wrap(bytes(250)), at_ms)

    assert ("protocol_error", "body_too_large") == rig.ending
    assert "the reply passed 1000 bytes" == rig.record.error_text
    assert (1250, ms(24)) == (rig.record.audio_bytes, rig.record.finished_ns)
    assert rig.connection.is_aborted


def test_nothing_after_the_end_changes_the_record():
    """Late bytes, late timers, a late close."""
    rig = RecorderRig(timeouts=TimeoutSettings(total_s=0.1))
    rig.reply((20, b"abcd"), end_ms=30)
    rig.connection.event(StreamBytes(b"late"), 40)
    rig.connection.end(TRUNCATED, 50)
    rig.time.advance(500)

    assert ("ok", None) == rig.ending
    assert 1 == len(rig.record.chunks)


# -- limits ---------------------------------------------------------------------------------------

LIMITS = TimeoutSettings(connect_s=0.05, first_audio_s=0.1, total_s=0.2)


def test_connect_limit():
    """Counted from dispatch."""
    rig = RecorderRig(is_warm=False, timeouts=LIMITS)
    rig.time.advance(49)
    assert not rig.finished
    rig.time.advance(2)

    assert ("timeout", "connect") == rig.ending


def test_connect_limit_does_not_outlive_the_connection():
    """Neither on a warm connection, which has met it, nor on a cold one that met it later."""
    limits = TimeoutSettings(connect_s=0.05, first_audio_s=5.0, total_s=5.0)
    warm, cold = RecorderRig(timeouts=limits), RecorderRig(is_warm=False, timeouts=limits)
    cold.connection.connected()
    for rig in (warm, cold):
        rig.time.advance(200)

    assert [[], []] == [warm.finished, cold.finished]


def test_first_audio_limit():
    """Headers are not audio."""
    rig = RecorderRig(timeouts=LIMITS)
    rig.connection.event(Headers(200), 20)
    rig.time.advance(101)

    assert ("timeout", "first_audio") == rig.ending
    assert "no audio within 0.1 s (timeouts.first_audio_s)" == rig.record.error_text


def test_total_limit_keeps_what_was_heard():
    """Audio that came stays for diagnosis."""
    rig = RecorderRig(timeouts=LIMITS)
    rig.reply((20, b"abcd"))
    rig.time.advance(199)
    assert not rig.finished
    rig.time.advance(2)

    assert ("timeout", "total") == rig.ending
    assert 4 == rig.record.audio_bytes


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_further_attempt_has_its_own_limit_to_the_first_audio(is_warm: bool):
    """It counts from this attempt's dispatch, on a kept connection as on a new one."""
    rig = RecorderRig(timeouts=LIMITS, is_warm=is_warm, first_dispatched_ms=-40)
    if not is_warm:
        rig.connection.connected()
    rig.time.advance(99)
    assert not rig.finished
    rig.time.advance(2)

    assert ("timeout", "first_audio") == rig.ending
    assert ms(-40) == rig.record.dispatched_ns


@pytest.mark.parametrize("is_warm", [True, False])
def test_the_total_limit_counts_from_the_first_attempt(is_warm: bool):
    """As latency does."""
    rig = RecorderRig(timeouts=LIMITS, is_warm=is_warm, first_dispatched_ms=-140)
    if not is_warm:
        rig.connection.connected()
    rig.time.advance(49)
    assert not rig.finished
    rig.time.advance(2)

    assert ("timeout", "total") == rig.ending


def test_silence_without_limits_never_ends_a_request():
    """No hidden timeout: a slow valid reply succeeds, and the wait is in the record."""
    none = TimeoutSettings(connect_s=None, first_audio_s=None, total_s=None)
    rig = RecorderRig(timeouts=none)
    rig.time.clock.advance_ns(ms(25_000))
    rig.time.pacer.run_due()
    rig.reply((25_010, b"abcd"), end_ms=25_020)

    assert ("ok", None) == rig.ending
    assert ms(25_000) == rig.record.first_byte_ns - rig.record.dispatched_ns


def test_end_of_drain_ends_it_from_outside():
    """As the dispatcher asks."""
    rig = RecorderRig()
    rig.recorder.end(TransportOutcome.TIMEOUT, "drain_end", "still in flight")

    assert ("timeout", "drain_end") == rig.ending
