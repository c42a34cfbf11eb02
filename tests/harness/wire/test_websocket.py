"""WebSocket sessions on the stamped wire."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable

import pytest
from websockets.frames import Frame, Opcode

from harness.clock import RunClock
from harness.settings import TimeoutSettings, WireSettings
from harness.single import SingleResult
from harness.text_source import TextPacing
from tests.builders.servers import ScriptedServer, Wait, Write, head, ok
from tests.builders.websocket import FakeSession, Peer, WsAdapter, WsServer
from tests.builders.wire import every, run_load, say

PCM = bytes(range(250))


def _ending(result: SingleResult) -> tuple[str, str | None]:
    return result.record.transport_outcome.value, result.record.error_kind


def _say(
    converse: Callable[[Peer], None],
    *,
    answers_pings: bool = True,
    timeouts: TimeoutSettings | None = None,
    clock: RunClock | None = None,
    **target: object,
) -> SingleResult:
    settings = WireSettings(timeouts=timeouts or TimeoutSettings(total_s=3.0))
    with WsServer(converse, answers_pings=answers_pings) as server:
        return say(WsAdapter(server.url, **target), settings=settings, clock=clock)


def _until_closed(peer: Peer) -> None:
    for _ in peer.messages():
        pass


def test_session_carries_text_out_and_audio_back():
    """Connect, session, text, audio, the protocol's own end, goodbye."""
    said: list[object] = []

    def converse(peer: Peer) -> None:
        peer.accept()
        for frame in peer.messages():
            said.append((frame.opcode, bytes(frame.data)))
            if frame.opcode is Opcode.TEXT:
                peer.binary(PCM)
                peer.binary(PCM)
                peer.text("done")

    result = _say(converse)
    record = result.record

    assert ("ok", None) == _ending(result)
    assert PCM + PCM == result.payload
    assert (101, 504) == (record.http_status, record.body_bytes)
    stamps = [record.dispatched_ns, record.connected_ns, record.headers_ns, record.sent_ns]
    assert sorted(stamps[:3]) == stamps[:3]
    assert record.sent_ns == record.last_text_ns
    assert record.connection_reused is False
    assert (Opcode.TEXT, b"Hello there.") == said[0]
    assert Opcode.CLOSE is said[-1][0]  # type: ignore[index]


def test_handshake_asks_for_what_the_contract_says():
    """Subprotocol and headers; no compression."""
    seen: list[Peer] = []

    def converse(peer: Peer) -> None:
        seen.append(peer)
        peer.accept(Sec_WebSocket_Protocol="nari.v1")
        peer.text("done")
        _until_closed(peer)

    result = _say(converse, subprotocols=("nari.v1",), headers=(("X-Key", "k"),))
    headers = seen[0].request.headers

    assert ("ok", None) == _ending(result)
    assert ("nari.v1", "k") == (headers["Sec-WebSocket-Protocol"], headers["X-Key"])
    assert "Sec-WebSocket-Extensions" not in headers
    assert headers["User-Agent"].startswith("earwitness")


def test_two_of_five_messages_and_a_clean_close_are_truncation():
    """Code 1000 without the protocol's end is no success, and the audio is kept."""

    def converse(peer: Peer) -> None:
        peer.accept()
        peer.binary(PCM)
        peer.binary(PCM)
        peer.close(1000, "bye")
        _until_closed(peer)

    result = _say(converse)

    assert ("truncated", "session") == _ending(result)
    assert "closed 1000 bye" == result.record.error_text
    assert 500 == result.record.audio_bytes


def test_connection_that_breaks_is_closed_with_1006():
    """No closing frame at all."""

    def converse(peer: Peer) -> None:
        peer.accept()
        peer.binary(PCM)

    result = _say(converse)

    assert ("truncated", "session") == _ending(result)
    assert "closed 1006" == result.record.error_text


def test_long_silence_with_pings_is_no_failure():
    """The server only pings for a while, then speaks: no hidden limit ends it, the wait is kept."""

    def converse(peer: Peer) -> None:
        peer.accept()
        for _ in range(12):
            peer.frame(Opcode.PING, b"still here")
            time.sleep(0.05)
        peer.binary(PCM)
        peer.text("done")
        _until_closed(peer)

    result = _say(converse, timeouts=TimeoutSettings(total_s=3.0, dead_peer_s=2.0))

    assert ("ok", None) == _ending(result)
    assert result.record.chunks[0].arrival_ns - result.record.headers_ns > 550_000_000


def test_our_pings_are_answered_through_long_silence():
    """A peer that answers is alive, whatever it is busy with."""

    def converse(peer: Peer) -> None:
        peer.accept()
        peer.sock.settimeout(0.05)
        end = time.monotonic() + 0.5
        frames = peer.messages()
        while time.monotonic() < end:
            try:
                next(frames)
            except TimeoutError:
                frames = peer.messages()
        peer.sock.settimeout(5)
        peer.binary(PCM)
        peer.text("done")
        _until_closed(peer)

    result = _say(converse, timeouts=TimeoutSettings(total_s=3.0, dead_peer_s=0.2))

    assert ("ok", None) == _ending(result)


@pytest.mark.parametrize("pings_itself", [True, False])
def test_peer_that_never_answers_pings_is_dead(pings_itself: bool):
    """Not a hang, and not the user's timeout."""

    def converse(peer: Peer) -> None:
        peer.accept()
        for _ in range(20):
            if pings_itself:
                peer.frame(Opcode.PING, b"?")
            time.sleep(0.05)

    limits = TimeoutSettings(total_s=3.0, dead_peer_s=0.2)
    result = _say(converse, answers_pings=False, timeouts=limits)

    assert ("dead_peer", "no_pong") == _ending(result)
    assert "timeouts.dead_peer_s" in result.record.error_text


def test_users_own_limit_is_a_timeout():
    """With its name."""

    def converse(peer: Peer) -> None:
        peer.accept()
        _until_closed(peer)

    result = _say(converse, timeouts=TimeoutSettings(first_audio_s=0.1))

    assert ("timeout", "first_audio") == _ending(result)


@pytest.mark.parametrize(
    ("status", "outcome"), [(429, "refused"), (503, "refused"), (403, "http_error")]
)
def test_refused_session_has_the_status_of_its_refusal(status: int, outcome: str):
    """With the reason and the wait it asks for."""

    def converse(peer: Peer) -> None:
        peer.accept(status=status, body="too busy", Retry_After="7")

    result = _say(converse)

    assert (outcome, "handshake") == _ending(result)
    assert status == result.record.http_status
    assert result.record.headers_ns == result.record.finished_ns
    assert f"HTTP {status}: too busy" == result.record.error_text


@pytest.mark.parametrize(
    ("reply", "outcome", "kind"),
    [
        (ok(b"hello", content_type="text/plain"), "http_error", "handshake"),
        ((Write(head(101, upgrade="websocket", connection="Upgrade")),), "protocol_error",
         "handshake"),
        ((Write(b"SSH-2.0-x\r\n\r\n"), Wait(50)), "protocol_error", "handshake"),
        ((Wait(1),), "truncated", "closed_before_session"),
    ],
)  # fmt: skip
def test_server_that_is_none(reply: object, outcome: str, kind: str):
    """Plain HTTP, a wrong answer to the key, another protocol, a hang-up."""
    from tests.builders.servers import Close

    with ScriptedServer((*reply, Close())) as server:  # type: ignore[misc]
        url = server.base_url.replace("http", "ws") + "/say"
        result = say(WsAdapter(url), settings=WireSettings(timeouts=TimeoutSettings(total_s=2.0)))

    assert (outcome, kind) == _ending(result)


@pytest.mark.parametrize(
    "misbehave",
    [
        lambda peer: peer.sock.sendall(b"\xff\xff\xff\xff"),
        lambda peer: peer.frame(Opcode.CONT, b"orphan"),
        lambda peer: peer.sock.sendall(b"\x82\xfe"),
        lambda peer: peer.binary(bytes(2000)),
    ],
)
def test_broken_framing_is_a_protocol_error(misbehave: Callable[[Peer], None]):
    """Reserved bits, an orphaned fragment, a masked frame, a message over the limit."""

    def converse(peer: Peer) -> None:
        peer.accept()
        misbehave(peer)
        _until_closed(peer)

    result = _say(converse, max_message_bytes=1000)

    assert ("protocol_error", "ws_framing") == _ending(result)


def test_text_that_is_not_utf8_is_a_protocol_error():
    """And the server is told so."""

    def converse(peer: Peer) -> None:
        peer.accept()
        peer.frame(Opcode.TEXT, b"\xff\xfe")
        _until_closed(peer)

    assert ("protocol_error", "utf8") == _ending(_say(converse))


def test_session_whose_goodbye_nobody_answers_is_closed_with_the_wire():
    """No descriptor waits for the collector of garbage once a load is over."""
    ends: list[bytes] = []

    def converse(peer: Peer) -> None:
        peer.accept()
        peer.text("done")
        peer.sock.settimeout(2)
        while data := peer.sock.recv(65_536):  # reads the goodbye and keeps silent
            pass
        ends.append(data)

    gc.disable()
    try:
        result = _say(converse)
    finally:
        gc.enable()

    assert ("ok", None) == _ending(result)
    assert [b""] == ends


def test_fragments_are_one_message_stamped_with_the_last():
    """Three frames, one delivery, arriving when it was complete."""
    clock = RunClock()
    peers: list[Peer] = []

    def converse(peer: Peer) -> None:
        peers.append(peer)
        peer.accept()
        peer.frame(Opcode.BINARY, b"a" * 100, fin=False)
        time.sleep(0.02)
        peer.frame(Opcode.CONT, b"b" * 100, fin=False)
        time.sleep(0.02)
        peer.frame(Opcode.CONT, b"c" * 100)
        time.sleep(0.02)
        peer.text("done")
        _until_closed(peer)

    result = _say(converse, clock=clock)
    before_ns = clock.from_monotonic_ns(peers[0].brackets[3][0])

    assert [300] == [piece.num_bytes for piece in result.record.chunks]
    assert result.record.chunks[0].arrival_ns >= before_ns - clock.uncertainty_ns


def test_arrivals_of_messages_lie_in_the_senders_bracket():
    """As over HTTP."""
    clock = RunClock()
    peers: list[Peer] = []

    def converse(peer: Peer) -> None:
        peers.append(peer)
        peer.accept()
        for _ in range(20):
            time.sleep(0.003)
            peer.frame(Opcode.BINARY, os.urandom(960))
        time.sleep(0.003)
        peer.text("done")
        _until_closed(peer)

    record = _say(converse, clock=clock).record
    inside = [
        clock.from_monotonic_ns(before) - clock.uncertainty_ns
        <= piece.arrival_ns
        <= clock.from_monotonic_ns(after) + clock.uncertainty_ns
        for (before, after), piece in zip(peers[0].brackets[1:21], record.chunks, strict=True)
        if piece.is_exact
    ]

    assert len(inside) >= 10
    assert all(inside)


def test_text_is_sent_as_it_falls_due():
    """Word by word, each stamped, the last one ending the text."""
    said: list[bytes] = []

    def converse(peer: Peer) -> None:
        peer.accept()
        for frame in peer.messages():
            said.append(bytes(frame.data))
            if frame.data == b"there.":
                peer.binary(PCM)
                peer.text("done")

    with WsServer(converse) as server:
        pacing = TextPacing(interval_s=0.02, first_delay_s=0.01)
        ran = run_load(WsAdapter(server.url), every(1, 1), text_pacing=pacing)
    record = ran.records[0]

    assert ["ok"] == ran.outcomes
    assert [b"begin", b"Hello ", b"there."] == said[:3]
    assert [10_000_000, 30_000_000] == [
        event.planned_ns - record.dispatched_ns for event in record.text_events
    ]
    assert all(event.sent_ns >= event.planned_ns for event in record.text_events)
    assert (record.text_events[0].sent_ns, record.text_events[1].sent_ns) == (
        record.sent_ns,
        record.last_text_ns,
    )


# -- on a fake stream -----------------------------------------------------------------------------


def _frame(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=False)


def test_asking_for_a_session_marks_the_stream_as_drained():
    """Its answer cannot have arrived before."""
    assert 1 == len(FakeSession().stream.floors)


def test_messages_in_fragments_do_not_run_into_each_other():
    """Each is its own fragments joined, and nothing of the one before."""
    session = FakeSession()
    for first, last in ((b"ab", b"cd"), (b"ef", b"gh")):
        session.stream.deliver(_frame(Opcode.BINARY, first, fin=False))
        session.stream.deliver(_frame(Opcode.CONT, last))
    session.stream.deliver(_frame(Opcode.BINARY, b"ij"))

    assert [b"abcd", b"efgh", b"ij"] == [event.data for event in session.heard.events[1:]]


def test_a_message_owns_the_stamp_if_the_read_ended_with_it():
    """With another behind it, or the beginning of one, it came earlier than the stamp says."""
    session = FakeSession()
    whole = _frame(Opcode.BINARY, b"abcd")
    session.stream.deliver(whole)
    session.stream.deliver(whole + whole)
    session.stream.deliver(whole + whole[:3])
    session.stream.deliver(whole[3:])

    assert [True, False, True, False, True] == [s.is_exact for s in session.heard.stamps[1:]]


def test_a_peer_that_answers_nothing_is_dead_within_the_limit():
    """Asked in the middle of it, given up at its end."""
    session = FakeSession(dead_peer_s=0.1)
    session.time.advance(99)
    assert session.heard.failure is None
    session.time.advance(2)

    assert session.heard.failure is not None
    assert "no_pong" == session.heard.failure.kind


def test_a_peer_that_sends_audio_is_alive_whatever_it_does_with_pings():
    """Data is as good an answer."""
    session = FakeSession(dead_peer_s=0.1)
    for _ in range(10):
        session.time.advance(40)
        session.stream.deliver(_frame(Opcode.BINARY, b"abcd"))

    assert session.heard.failure is None


def test_answers_to_pings_that_nobody_reads_do_not_pile_up():
    """A server that only writes cannot fill the memory of the client."""
    session = FakeSession()
    session.stream.has_unsent = True
    pings = _frame(Opcode.PING, bytes(125)) * 500
    for _ in range(30):
        if not session.stream.is_closed:
            session.stream.deliver(pings)

    assert session.heard.failure is not None
    assert "unread" == session.heard.failure.kind
    assert len(session.stream.written) < 1_200_000
