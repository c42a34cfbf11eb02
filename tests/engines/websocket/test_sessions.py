"""Every WebSocket protocol against its canned conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines import registry
from engines.base import (
    CancelDue,
    Close,
    Closed,
    Done,
    Headers,
    Message,
    Send,
    SpeechRequest,
    TextDue,
    WebSocketTarget,
)
from engines.errors import ContractError
from engines.outcomes import TransportOutcome
from tests.builders.exchanges import drive, play
from tests.engines.conversations import ACCEPTED, CONVERSATIONS, Conversation


@pytest.fixture(params=CONVERSATIONS)
def talk(request: pytest.FixtureRequest) -> Conversation:
    """One protocol with its canned conversation."""
    return CONVERSATIONS[request.param]


def _sent(actions: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(action.data) for action in actions if isinstance(action, Send)]


def test_every_protocol_has_a_conversation():
    """A protocol without one is not tested at all."""
    spoken = {talk.engine for talk in CONVERSATIONS.values()}

    assert spoken == {name for name in registry.names() if name.endswith("-ws")}


def test_every_message_brings_about_what_it_must(talk: Conversation):
    """Turn by turn: what is sent, and only then."""
    exchange = talk.open()
    assert [] == exchange.start()
    for turn in talk.turns:
        assert list(turn.sends) == _sent(exchange.feed(turn.event)), turn.event


def test_a_whole_conversation_gives_its_audio_and_ends(talk: Conversation):
    """One chunk a message, format first, `Done` at the end event, text over with its last write."""
    played = drive(talk.open(), talk.events)

    assert talk.audio == played.audio
    assert 2 == len(played.chunks)
    assert isinstance(played.ending, Done)
    assert played.format is not None
    found = played.format.format
    assert talk.format == {
        "sample_format": found.sample_format,
        "sample_rate_hz": found.sample_rate_hz,
        "channels": found.channels,
        "rate_source": found.rate_source,
    }
    assert played.format.expected is not None
    ends = [send.ends_text for send in played.sends]
    assert 1 == ends.count(True)


@pytest.mark.parametrize("code", [1000, 1006, 1011, None])
def test_closing_before_the_end_event_is_truncated(talk: Conversation, code: int | None):
    """At every point of the conversation, whatever the code: what came is kept, never a success."""
    for kept in range(1, len(talk.turns)):
        played = drive(talk.open(), [*talk.events[:kept], Closed(code, "going")])
        if talk.may_end_early and code == 1000 and kept == len(talk.turns) - 1:
            assert isinstance(played.ending, Done)
            continue
        assert TransportOutcome.TRUNCATED == played.failure.outcome
        assert talk.audio.startswith(played.audio)


def test_a_server_that_says_try_again_later_has_refused(talk: Conversation):
    """Close code 1013 is a busy server."""
    played = drive(talk.open(), [ACCEPTED, Closed(1013, "busy")])

    assert TransportOutcome.REFUSED == played.failure.outcome
    assert "busy" in played.failure.text


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(503, TransportOutcome.REFUSED), (429, TransportOutcome.REFUSED),
     (404, TransportOutcome.HTTP_ERROR), (200, TransportOutcome.HTTP_ERROR)],
)  # fmt: skip
def test_a_refused_upgrade_is_told_by_its_status(
    talk: Conversation, status: int, outcome: TransportOutcome
):
    """No session, no audio."""
    assert outcome == drive(talk.open(), [Headers(status)]).failure.outcome


@pytest.mark.parametrize("depth", [100, 500, 1000])
def test_a_deeply_nested_message_is_no_fault_of_ours(talk: Conversation, depth: int):
    """An exception would be blamed on the client."""
    nested = Message('{"type": "error", "error": ' + "[" * depth + "]" * depth + "}")
    failure = drive(talk.open(), [Headers(101), nested, Closed(1000)]).failure

    assert TransportOutcome.CLIENT_ERROR != failure.outcome
    assert len(failure.text) <= 500


def test_an_error_message_is_a_server_error_with_its_words(talk: Conversation):
    """After the first chunk: the words are told, the chunk is kept."""
    first = next(
        i for i, _ in enumerate(talk.turns) if drive(talk.open(), talk.events[: i + 1]).audio
    )
    played = drive(talk.open(), [*talk.events[: first + 1], talk.error])

    assert TransportOutcome.SERVER_ERROR == played.failure.outcome
    assert talk.says in played.failure.text
    assert talk.audio.startswith(played.audio)


@pytest.mark.parametrize("text", ["hello", "[1]", "7", '"x"', "{", "\x00"])
def test_text_that_is_no_json_object_is_a_protocol_error(talk: Conversation, text: str):
    """The line shows what came."""
    played = drive(talk.open(), [ACCEPTED, Message(text)])

    assert TransportOutcome.PROTOCOL_ERROR == played.failure.outcome


def test_a_conversation_without_audio_has_no_chunk(talk: Conversation):
    """Ended in order or not, it raises nothing and invents nothing."""
    silent = [event for event in talk.events if not _is_audio(event)]
    played = drive(talk.open(), [*silent, Closed(1000)])

    assert [] == played.chunks
    assert played.ending is not None


def test_an_odd_byte_is_kept(talk: Conversation):
    """A binary message that ends inside a sample is payload like any other."""
    if not any(_is_binary(event) for event in talk.events):
        return
    odd = [Message(b"\x01\x02\x03") if _is_binary(event) else event for event in talk.events]

    assert b"\x01\x02\x03" in drive(talk.open(), odd).chunks


def test_empty_messages_are_no_chunks(talk: Conversation):
    """A binary message of nothing changes nothing."""
    played = drive(talk.open(), [talk.events[0], Message(b"")])

    assert [] == played.chunks
    assert played.ending is None


def test_cancelling_says_so_or_closes_and_ends_as_cancelled(talk: Conversation):
    """Before the end of the audio; a protocol with a word of its own is heard out."""
    exchange = talk.open()
    played = drive(exchange, talk.events[:2])
    told = exchange.feed(CancelDue())
    played.add(told)
    play(exchange, [*talk.events[2:], Closed(1000)], played)

    assert Close() in told or any(isinstance(action, Send) for action in told)
    assert TransportOutcome.CANCELLED == played.failure.outcome


def test_text_that_falls_due_before_the_session_waits_for_it(talk: Conversation):
    """The driver may be early; nothing is lost and nothing is sent too soon."""
    if not registry.card(talk.engine).capabilities.has_incremental_text:
        with pytest.raises(ContractError, match="takes whole texts only"):
            talk.open(is_incremental=True)
        return
    exchange = talk.open(is_incremental=True)
    played = drive(exchange, [TextDue(0, "Hello ", False), TextDue(1, "there.", True)])
    assert [] == played.sends
    play(exchange, [event for event in talk.events if not _is_end(event)], played)

    # Nari's canned acknowledgements are for one piece; its own tests send several.
    if talk.engine != "nari-ws":
        assert 1 in {send.text_seq for send in played.sends}
        assert "Hello there." == "".join(_text_of(send) for send in played.sends).strip()


def _text_of(send: Send) -> str:
    message = json.loads(send.data)
    return str(message.get("text", message.get("transcript", "")))


def _is_end(event: object) -> bool:
    return isinstance(event, Message) and "done" in str(event.data)


def _is_binary(event: object) -> bool:
    return isinstance(event, Message) and isinstance(event.data, bytes)


def _is_audio(event: object) -> bool:
    if _is_binary(event):
        return True
    text = event.data if isinstance(event, Message) else ""
    return any(word in str(text) for word in ('"audio": "', '"audio_b64"', '"data": '))


def test_a_session_is_at_the_engines_path_with_its_subprotocol():
    """http and ws addresses name the same place; values in the path are quoted."""
    nari = CONVERSATIONS["nari"].open().target
    eleven = CONVERSATIONS["elevenlabs"].open().target
    over_tls = registry.create("nari-ws", base_url="https://h/x").open(SpeechRequest("r", "x"))

    assert isinstance(nari, WebSocketTarget)
    assert ("ws://127.0.0.1:9/v1/audio/speech/ws", ("nari.speech.v1",)) == (
        nari.url,
        nari.subprotocols,
    )
    assert isinstance(over_tls.target, WebSocketTarget)
    assert "wss://h/x/v1/audio/speech/ws" == over_tls.target.url
    assert isinstance(eleven, WebSocketTarget)
    assert eleven.url.startswith("ws://127.0.0.1:9/v1/text-to-speech/v/stream-input?model_id=")
