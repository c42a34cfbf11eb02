"""The state machines over real sockets: the canned conversations, played by another library."""

from __future__ import annotations

import pytest

from engines import registry
from engines.base import Message, SpeechRequest
from harness import loop
from harness.clock import RunClock
from harness.records import TransportOutcome
from harness.settings import WireSettings
from harness.single import SingleResult, single
from tests.builders.talking_server import Line, TalkingServer
from tests.engines.conversations import CONVERSATIONS, TEXT, Conversation


@pytest.fixture(params=CONVERSATIONS)
def talk(request: pytest.FixtureRequest) -> Conversation:
    """One protocol with its canned conversation."""
    return CONVERSATIONS[request.param]


def _lines(talk: Conversation) -> list[Line]:
    says = [turn.event.data if isinstance(turn.event, Message) else None for turn in talk.turns]
    return [
        Line(bytes(said) if isinstance(said, (bytearray, memoryview)) else said, len(turn.sends))
        for said, turn in zip(says, talk.turns, strict=True)
    ]


def _server(talk: Conversation, *, up_to: int | None = None) -> TalkingServer:
    spoken = ["nari.speech.v1"] if talk.engine == "nari-ws" else []
    return TalkingServer(_lines(talk)[:up_to], subprotocols=spoken)


def _speak(talk: Conversation, server: TalkingServer) -> SingleResult:
    adapter = registry.create(talk.engine, base_url=server.base_url, params=talk.params, environ={})
    request = SpeechRequest("canned", TEXT, voice=talk.voice)
    return loop.run(single(adapter, request, settings=WireSettings(), clock=RunClock()))


def test_a_conversation_over_a_socket_gives_its_audio(talk: Conversation):
    """Both sides say exactly what they say on paper; every message is one chunk."""
    with _server(talk) as server:
        result = _speak(talk, server)

    assert TransportOutcome.OK == result.record.transport_outcome, result.record.error_text
    assert talk.audio == result.payload
    assert 2 == len(result.record.chunks)
    assert [dict(sent) for turn in talk.turns for sent in turn.sends] == server.heard


def test_an_early_close_over_a_socket_is_truncated(talk: Conversation):
    """Code 1000 two lines before the end: never a success."""
    with _server(talk, up_to=-2) as server:
        result = _speak(talk, server)

    assert TransportOutcome.TRUNCATED == result.record.transport_outcome
    assert talk.audio.startswith(result.payload)


def test_the_session_is_asked_for_at_the_engines_path():
    """Path and query as the server sees them."""
    talk = CONVERSATIONS["deepgram"]
    with _server(talk) as server:
        _speak(talk, server)

    assert ["/v1/speak?model=aura-2-thalia-en&encoding=linear16&sample_rate=24000"] == server.paths
