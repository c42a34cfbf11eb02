"""HTTP over loopback: what a scripted server does, and the record that comes of it."""

from __future__ import annotations

import socket

import pytest

from harness.clock import RunClock
from harness.settings import (
    ConnectionMode,
    ConnectionSettings,
    TimeoutSettings,
    WireSettings,
)
from tests.builders.servers import (
    Close,
    Reset,
    ScriptedServer,
    Wait,
    WaitForClose,
    Write,
    chunk,
    chunked,
    head,
    ok,
    paced,
    refusal,
)
from tests.builders.wire import PlainAdapter, every, run_load, say

CHUNKED = head(200, content_type="audio/pcm", transfer_encoding="chunked")
PCM = bytes(range(200)) * 4
SHORT = head(200, content_type="audio/pcm", content_length=len(PCM) * 2)
LIMITS = TimeoutSettings(connect_s=2, first_audio_s=0.15, total_s=0.3)


@pytest.mark.parametrize(
    ("reply", "outcome", "kind", "num_bytes"),
    [
        (chunked([PCM, PCM]), "ok", None, 1600),
        (ok(PCM), "ok", None, 800),
        ((Write(head(200, content_type="audio/pcm") + PCM), Close()), "ok", None, 800),
        (refusal(), "refused", "headers", 0),
        (ok(b"", status=503), "refused", "headers", 0),
        (ok(b"no", status=500, content_type="text/plain"), "http_error", "headers", 0),
        (ok(b"", status=404), "http_error", "headers", 0),
        (ok(b"", status=302, location="http://127.0.0.1/"), "http_error", "headers", 0),
        ((Write(SHORT + PCM), Close()), "truncated", "body", 800),
        (chunked([PCM], is_complete=False), "truncated", "body", 800),
        ((Write(CHUNKED + chunk(PCM)), Wait(20), Reset()), "truncated", "body", 800),
        ((Write(CHUNKED[:30]), Close()), "truncated", "headers", 0),
        ((Close(),), "truncated", "headers", 0),
        ((Write(b"ICY 200 OK\r\n\r\n"), Close()), "protocol_error", "http_framing", 0),
        ((Write(CHUNKED + b"xyz\r\n"), Close()), "protocol_error", "http_framing", 0),
        (ok(b"<html>", content_type="text/html"), "protocol_error", "headers", 0),
        (
            (Write(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000), WaitForClose()),
            "protocol_error",
            "headers_too_large",
            0,
        ),
        ((WaitForClose(),), "timeout", "first_audio", 0),
        ((Write(CHUNKED), WaitForClose()), "timeout", "first_audio", 0),
        ((Write(CHUNKED + chunk(PCM)), WaitForClose()), "timeout", "total", 800),
    ],
)
def test_ending_of_a_request(reply: object, outcome: str, kind: str | None, num_bytes: int):
    """Each scripted ending has one outcome, one word and keeps the audio that came."""
    with ScriptedServer(reply) as server:  # type: ignore[arg-type]
        result = say(server.base_url, settings=WireSettings(timeouts=LIMITS))
    record = result.record

    assert (outcome, kind) == (record.transport_outcome.value, record.error_kind)
    assert num_bytes == len(result.payload) == record.audio_bytes
    assert num_bytes == sum(chunk.num_bytes for chunk in record.chunks)
    assert (outcome == "ok") is (record.error_text is None)
    assert record.finished_ns is not None


def test_timeout_names_the_limit_and_its_setting():
    """The user's own limit, so the message says which and how long."""
    with ScriptedServer((WaitForClose(),)) as server:
        record = say(server.base_url, settings=WireSettings(timeouts=LIMITS)).record

    assert "no audio within 0.15 s (timeouts.first_audio_s)" == record.error_text


def test_connecting_has_its_own_limit():
    """A full backlog answers nobody: the connect limit ends it, not the total."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        limits = TimeoutSettings(connect_s=0.1, first_audio_s=2, total_s=3)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        record = say(url, settings=WireSettings(timeouts=limits)).record
        for filler in fillers:
            filler.close()

    assert ("timeout", "connect") == (record.transport_outcome.value, record.error_kind)


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch):
    """What is measured is the server, not who stands before it."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with ScriptedServer(ok(PCM)) as server:
        record = say(server.base_url).record

    assert "ok" == record.transport_outcome.value


def test_refused_port_is_a_connect_error():
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    record = say(f"http://127.0.0.1:{port}").record

    assert ("connect_error", "connection_refused") == (
        record.transport_outcome.value,
        record.error_kind,
    )
    assert record.dispatched_ns is not None
    assert record.sent_ns is None


def test_localhost_falls_back_to_the_address_that_listens():
    """Where the name means ::1 first and only IPv4 is there."""
    with ScriptedServer(ok(PCM)) as server:
        record = say(server.base_url.replace("127.0.0.1", "localhost")).record

    assert "ok" == record.transport_outcome.value
    assert record.dns_ns is not None
    assert record.dispatched_ns <= record.dns_ns <= record.connected_ns <= record.sent_ns


def test_stamps_of_a_cold_request_are_in_order():
    """Dispatch, connection, send, headers, first byte, end."""
    with ScriptedServer(paced([(5, PCM), (5, PCM)])) as server:
        record = say(server.base_url).record
    stamps = [
        record.dispatched_ns, record.connected_ns, record.sent_ns, record.headers_ns,
        record.first_byte_ns, record.chunks[0].arrival_ns, record.chunks[1].arrival_ns,
        record.finished_ns,
    ]  # fmt: skip

    assert sorted(stamps) == stamps
    assert record.first_byte_ns == record.chunks[0].arrival_ns
    assert record.connection_reused is False


def test_first_byte_and_first_audio_are_two_moments():
    """A WAV header alone at 50 ms, audio at 300 ms, then 480 bytes every 10 ms: no read waits for
    a block to fill, and every arrival lies in the server's own send bracket."""
    header = b"RIFF" + b"\xff" * 4 + b"WAVEfmt " + (16).to_bytes(4, "little")
    header += b"\x01\0\x01\0" + (24_000).to_bytes(4, "little") + (48_000).to_bytes(4, "little")
    header += b"\x02\0\x10\0data" + b"\xff" * 4
    pieces = [(50, header), (250, bytes(480)), *[(10, bytes(480))] * 8]
    clock = RunClock()
    with ScriptedServer(paced(pieces, content_type="audio/wav")) as server:
        record = say(server.base_url, clock=clock).record
    # After the server has ended: it notes a send once it is over, which the client may outrun.
    brackets = [
        (clock.from_monotonic_ns(send.before_ns), clock.from_monotonic_ns(send.after_ns))
        for send in server.sends
    ]
    # The first send is the head, the last one the zero chunk.
    for (before_ns, after_ns), piece in zip(brackets[1:-1], record.chunks, strict=True):
        assert before_ns - clock.uncertainty_ns <= piece.arrival_ns
        if piece.is_exact:
            assert piece.arrival_ns <= after_ns + clock.uncertainty_ns
        else:
            assert piece.floor_ns <= before_ns
    num_exact = sum(piece.is_exact for piece in record.chunks)

    assert [44, *[480] * 9] == [piece.num_bytes for piece in record.chunks]
    assert record.first_byte_ns == record.chunks[0].arrival_ns
    assert num_exact >= 5
    assert 240e6 < record.chunks[1].arrival_ns - record.first_byte_ns < 1000e6


def test_cold_mode_pays_for_every_connection():
    """Three requests, three connections, each with its phases."""
    wire = WireSettings(connections=ConnectionSettings(mode=ConnectionMode.COLD))
    with ScriptedServer(ok(PCM)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(5, 3), wire=wire)

    assert 3 == server.num_connections
    assert [False] * 3 == [record.connection_reused for record in ran.records]
    assert all(record.connected_ns for record in ran.records)


def test_warm_mode_opens_connections_before_the_first_request():
    """Every request finds one, and none pays."""
    with ScriptedServer(ok(PCM)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(5, 5))

    assert 2 == server.num_connections
    assert [True] * 5 == [record.connection_reused for record in ran.records]
    assert {None} == {record.connected_ns for record in ran.records}
    assert all(record.dispatched_ns == record.sent_ns for record in ran.records)
