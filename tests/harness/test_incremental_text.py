"""Text that arrives piece by piece, through real adapters and every kind of transport."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import pairwise
from urllib.parse import parse_qs

from engines import registry
from harness.records import RequestRecord
from harness.settings import WireSettings
from harness.text_source import TextPacing
from tests.builders.servers import Request, ScriptedServer, Wait, Write, chunk, head, ok
from tests.builders.websocket import Peer, WsServer
from tests.builders.wire import every, ms, run_load

PCM = bytes(range(240)) * 2
PACING = TextPacing(interval_s=0.02, first_delay_s=0.01)


def _planned_ms(record: RequestRecord) -> list[float]:
    return [(e.planned_ns - record.dispatched_ns) / 1e6 for e in record.text_events]


def _nari(peer: Peer) -> None:
    """Nari's order of things: it speaks first, accepts settings, acknowledges every piece."""
    peer.accept(Sec_WebSocket_Protocol="nari.speech.v1")
    audio = {"encoding": "pcm_s16le", "sample_rate": 24_000, "channels": 1}
    _say(peer, type="session.created", protocol="nari.speech.v1", audio=audio)
    for frame in peer.messages():
        if not frame.data.startswith(b"{"):
            continue
        message = json.loads(frame.data)
        match message["type"]:
            case "request.start":
                _say(peer, type="request.configured")
            case "input_text.append" | "input_text.end" as kind:
                _say(peer, type="input_text.ack", event=kind, sequence=message["sequence"])
                if kind == "input_text.end":
                    _say(peer, type="response.started", request_id="r", audio=audio)
                    peer.binary(PCM)
                    peer.binary(PCM)
                    _say(peer, type="response.done", stop_reason="stop", audio_chunks=2)


def _say(peer: Peer, **message: object) -> None:
    peer.text(json.dumps(message))


def test_words_through_an_acknowledged_protocol():
    """Each word is due by the clock, goes after the acknowledgement before it, and is stamped."""
    with WsServer(_nari) as server:
        adapter = registry.create("nari-ws", base_url=server.url.removesuffix("/say"))
        ran = run_load(adapter, every(1, 1), text_pacing=PACING)
    record = ran.records[0]
    events = record.text_events

    assert ["ok"] == ran.outcomes
    assert PCM + PCM == ran.payloads[0]
    assert [10, 30] == _planned_ms(record)
    assert all(e.planned_ns <= e.sent_ns <= e.ack_ns for e in events)
    assert all(one.ack_ns <= two.sent_ns for one, two in pairwise(events))
    assert events[0].sent_ns == record.sent_ns < record.last_text_ns
    assert record.last_text_ns < record.chunks[0].arrival_ns


def test_whole_text_through_an_acknowledged_protocol():
    """Without pacing the same session carries the text at once."""
    with WsServer(_nari) as server:
        adapter = registry.create("nari-ws", base_url=server.url.removesuffix("/say"))
        ran = run_load(adapter, every(1, 1))
    record = ran.records[0]

    assert ["ok"] == ran.outcomes
    assert record.dispatched_ns < record.sent_ns <= record.last_text_ns


class _Voxserve:
    """One call opens, one streams audio, one a piece of text; audio comes once the text ended."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, request: Request) -> object:
        if request.path.endswith("/stream/start"):
            return ok(b'{"request_id": "id-7"}', content_type="application/json")
        if request.path.endswith("/id-7/text"):
            self.texts += parse_qs(request.body.decode(), keep_blank_values=True)["text"]
            return ok(b"{}", content_type="application/json")
        if request.path.endswith("/id-7/end"):
            return ok(b"{}", content_type="application/json")
        assert request.path.endswith("/id-7/audio")
        return self._audio()

    def _audio(self) -> Iterable[object]:
        wav = b"RIFF\xff\xff\xff\xffWAVEfmt " + (16).to_bytes(4, "little")
        wav += b"\x01\0\x01\0" + (24_000).to_bytes(4, "little") + (48_000).to_bytes(4, "little")
        wav += b"\x02\0\x10\0data\xff\xff\xff\xff"
        top = head(200, content_type="audio/wav", transfer_encoding="chunked")
        return (Write(top), Wait(60), Write(chunk(wav + PCM)), Wait(5), Write(chunk(b"")))


def test_words_through_side_requests():
    """The audio call waits open while each word is a call of its own, one after another."""
    server = _Voxserve()
    with ScriptedServer(server) as scripted:  # type: ignore[arg-type]
        adapter = registry.create("voxserve-text", base_url=scripted.base_url)
        ran = run_load(adapter, every(1, 1), text_pacing=PACING)
    record = ran.records[0]

    assert ["ok"] == ran.outcomes
    assert ["Hello ", "there."] == server.texts
    assert [10, 30] == _planned_ms(record)
    assert all(e.planned_ns <= e.sent_ns <= e.ack_ns for e in record.text_events)
    assert record.dispatched_ns < record.text_events[0].sent_ns <= record.last_text_ns


def test_refused_side_request_is_the_outcome():
    """The opening call says 429: the request is refused, and no audio call is made."""
    with ScriptedServer(ok(b"full", status=429, content_type="text/plain")) as scripted:
        adapter = registry.create("voxserve-text", base_url=scripted.base_url)
        ran = run_load(adapter, every(1, 1), text_pacing=PACING)

    assert ["refused"] == ran.outcomes
    assert 1 == len(scripted.requests)


def test_words_into_a_process():
    """Standard input takes them as they fall due; its end is the end of the text."""
    script = "import sys; sys.stdout.write(sys.stdin.read() * 2)"
    adapter = registry.create(
        "local",
        params={"argv": [sys.executable, "-S", "-c", script], "sample_rate_hz": 24_000},
    )
    ran = run_load(
        adapter,
        every(1, 1),
        text_pacing=PACING,
        drain_s=20.0,
        wire=WireSettings(are_commands_allowed=True),
    )
    record = ran.records[0]

    assert ["ok"] == ran.outcomes
    assert b"Hello there." * 2 == ran.payloads[0]
    assert [10, 30] == _planned_ms(record)
    assert record.last_text_ns - record.dispatched_ns >= ms(30)
