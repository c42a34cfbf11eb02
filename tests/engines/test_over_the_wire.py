"""Adapters that are neither one HTTP reply nor a session, over real pipes and sockets."""

from __future__ import annotations

import sys

import pytest

from engines import registry
from engines.base import Adapter, SpeechRequest
from harness import loop
from harness.clock import RunClock
from harness.records import TransportOutcome
from harness.settings import WireSettings
from harness.single import SingleResult, single
from harness.text_source import TextPacing
from tests.builders.exchanges import ramp, wav
from tests.builders.servers import Reply, Request, ScriptedServer, Wait, chunked, ok

pytestmark = pytest.mark.slow

BODY = wav(ramp(0, 2400), data_size=0)


def _speak(
    adapter: Adapter, text: str = "one two three", *, pacing: TextPacing | None = None
) -> SingleResult:
    request = SpeechRequest("r", text, is_incremental=pacing is not None)
    settings = WireSettings(are_commands_allowed=True)
    return loop.run(
        single(adapter, request, settings=settings, clock=RunClock(), text_pacing=pacing)
    )


def _command(code: str) -> Adapter:
    return registry.create("local", params={"argv": [sys.executable, "-c", code]})


@pytest.mark.parametrize("pacing", [None, TextPacing()])
def test_a_command_hears_the_text_and_is_heard(pacing: TextPacing | None):
    """Whole or word by word, its output is the audio and its end the end."""
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    result = _speak(_command(code), pacing=pacing)

    assert TransportOutcome.OK == result.record.transport_outcome
    assert b"one two three" == result.payload.strip()


def test_a_command_that_fails_is_a_server_error_with_its_last_words():
    """What it wrote before is kept."""
    code = "import sys; sys.stdout.write('ab'); sys.stdout.flush(); sys.exit('no voice')"
    result = _speak(_command(code))

    assert TransportOutcome.SERVER_ERROR == result.record.transport_outcome
    assert "with status 1: no voice" in str(result.record.error_text)
    assert b"ab" == result.payload


def test_a_function_speaks_from_its_own_process():
    """One that gives no audio is told so, on the line of its request."""
    adapter = registry.create("local", params={"callable": "builtins:len"})
    result = _speak(adapter)

    assert TransportOutcome.SERVER_ERROR == result.record.transport_outcome
    assert "gave int, not bytes" in str(result.record.error_text)


def _voxserve(request: Request) -> Reply:
    if request.path.endswith("/start"):
        return ok(b'{"request_id": "abc"}', content_type="application/json")
    if request.path.endswith("/audio"):
        return (Wait(100), *chunked([BODY[:44], BODY[44:]], content_type="audio/wav"))
    return ok(b'{"status": "accepted"}', content_type="application/json")


def test_voxserve_hears_words_on_side_calls_while_its_audio_is_open():
    """Start, audio, a call a word, end: in order, and each word is stamped and acknowledged."""
    with ScriptedServer(_voxserve) as server:
        adapter = registry.create("voxserve-text", base_url=server.base_url)
        result = _speak(adapter, pacing=TextPacing())
        paths = [request.path.rpartition("/")[2] for request in server.requests]
        words = [r.body for r in server.requests if r.path.endswith("/text")]

    assert TransportOutcome.OK == result.record.transport_outcome, result.record.error_text
    assert BODY == result.payload
    assert ["start", "audio", "text", "text", "text", "end"] == sorted(
        paths, key=["start", "audio", "text", "end"].index
    )
    assert "end" == paths[-1]
    assert [b"text=one+", b"text=two+", b"text=three"] == words
    assert all(event.sent_ns and event.ack_ns for event in result.record.text_events)
    assert result.record.last_text_ns is not None
