"""`nari.speech.v1`: one append at a time, each after the acknowledgement of the one before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines import registry
from engines.base import (
    Action,
    CancelDue,
    Close,
    Closed,
    Done,
    Exchange,
    Headers,
    Message,
    Send,
    SpeechRequest,
    TextAccepted,
    TextDue,
)
from engines.errors import ContractError
from engines.outcomes import TransportOutcome

AUDIO = {"encoding": "pcm_s16le", "sample_rate": 24_000, "channels": 1}


def _say(**message: Any) -> Message:
    return Message(json.dumps(message))


def _ack(sequence: object, *, is_end: bool = False) -> Message:
    event = "input_text.end" if is_end else "input_text.append"
    return _say(type="input_text.ack", event=event, sequence=sequence, request_id=None)


def _sent(actions: list[Action]) -> list[tuple[str, Any, Any]]:
    messages = [(json.loads(a.data), a.text_seq) for a in actions if isinstance(a, Send)]
    return [(m["type"], m.get("sequence", m.get("text")), seq) for m, seq in messages]


def _opened(text: str = "Hello there.", *, is_incremental: bool = True) -> Exchange:
    """A session whose settings were accepted."""
    adapter = registry.create("nari-ws")
    exchange = adapter.open(SpeechRequest("r", text, is_incremental=is_incremental))
    exchange.start()
    exchange.feed(Headers(101))
    exchange.feed(_say(type="session.created", protocol="nari.speech.v1", audio=AUDIO))
    return exchange


def _configured(**options: Any) -> Exchange:
    exchange = _opened(**options)
    exchange.feed(_say(type="request.configured"))
    return exchange


def test_each_append_waits_for_the_acknowledgement_of_the_one_before():
    """Three words due at once leave one by one; the end of the text waits its turn too."""
    exchange = _configured()
    first = exchange.feed(TextDue(0, "one ", False))
    held = [*exchange.feed(TextDue(1, "two ", False)), *exchange.feed(TextDue(2, "three", True))]
    second, third = exchange.feed(_ack(0)), exchange.feed(_ack(1))
    end, over = exchange.feed(_ack(2)), exchange.feed(_ack(3, is_end=True))

    assert [("input_text.append", 0, 0)] == _sent(first)
    assert [] == held
    assert [("input_text.append", 1, 1)] == _sent(second)
    assert [("input_text.append", 2, 2)] == _sent(third)
    assert [("input_text.end", 3, None)] == _sent(end)
    assert [] == _sent(over)


def test_every_piece_is_reported_as_accepted_once():
    """The acknowledgement of its append; that of the end belongs to no piece."""
    exchange = _configured()
    exchange.feed(TextDue(0, "one ", False))
    exchange.feed(TextDue(1, "two", True))
    accepted = [a for n in range(3) for a in exchange.feed(_ack(n)) if isinstance(a, TextAccepted)]

    assert [TextAccepted(0), TextAccepted(1)] == accepted


def test_an_empty_last_piece_is_only_the_end():
    """It has no text to append, and its write is that of the end."""
    exchange = _configured()
    exchange.feed(TextDue(0, "one", False))
    exchange.feed(TextDue(1, "", True))

    assert [("input_text.end", 1, 1)] == _sent(exchange.feed(_ack(0)))


def test_a_piece_of_more_than_a_message_is_cut_at_characters():
    """Several appends, the text unchanged, accepted with the last."""
    text = "é世🎧" * 9000
    exchange = _opened(text=text, is_incremental=False)
    actions = exchange.feed(_say(type="request.configured"))
    parts: list[str] = []
    for sequence in range(20):
        sends = [json.loads(a.data) for a in actions if isinstance(a, Send)]
        if sends and sends[0]["type"] == "input_text.end":
            break
        (message,) = sends
        assert 64 * 1024 > len(message["text"].encode())
        parts.append(message["text"])
        actions = exchange.feed(_ack(sequence))

    assert text == "".join(parts)
    assert 2 < len(parts)


@pytest.mark.parametrize("sequence", [1, -1, "0", None, {}])
def test_a_wrong_acknowledgement_is_a_protocol_error(sequence: object):
    """Sequence 0 is in flight; anything else is not what was sent."""
    exchange = _configured()
    exchange.feed(TextDue(0, "one", True))
    (failure,) = exchange.feed(_ack(sequence))

    assert TransportOutcome.PROTOCOL_ERROR == failure.outcome  # type: ignore[union-attr]


def test_an_acknowledgement_of_nothing_is_a_protocol_error():
    """Nothing is in flight."""
    (failure,) = _configured().feed(_ack(0))

    assert TransportOutcome.PROTOCOL_ERROR == failure.outcome  # type: ignore[union-attr]


def test_a_count_of_chunks_that_does_not_match_is_truncated():
    """The server says three, two came."""
    exchange = _configured()
    exchange.feed(TextDue(0, "one", True))
    for event in (_ack(0), _ack(1, is_end=True), Message(b"\0\0"), Message(b"\0\0")):
        exchange.feed(event)
    (failure,) = exchange.feed(_say(type="response.done", stop_reason="stop", audio_chunks=3))

    assert TransportOutcome.TRUNCATED == failure.outcome  # type: ignore[union-attr]
    assert "the server sent 3 chunks, 2 came" in failure.text  # type: ignore[union-attr]


def test_the_servers_counts_are_kept():
    """Request id, stop reason and number of chunks come with `Done`."""
    exchange = _configured()
    exchange.feed(TextDue(0, "one", True))
    exchange.feed(_say(type="response.started", request_id="ws-1", audio=AUDIO))
    exchange.feed(Message(b"\0\0"))
    (done,) = exchange.feed(_say(type="response.done", stop_reason="stop", audio_chunks=1))

    assert Done({"request_id": "ws-1", "stop_reason": "stop", "audio_chunks": 1}) == done


def test_a_server_without_the_subprotocol_is_named():
    """It accepts the upgrade and closes with 1002 at once."""
    exchange = registry.create("nari-ws").open(SpeechRequest("r", "x"))
    exchange.start()
    exchange.feed(Headers(101))
    (failure,) = exchange.feed(Closed(1002))

    assert TransportOutcome.PROTOCOL_ERROR == failure.outcome  # type: ignore[union-attr]
    assert "does not speak nari.speech.v1" in failure.text  # type: ignore[union-attr]


def test_another_protocol_version_is_a_protocol_error():
    """Its messages could mean anything."""
    exchange = registry.create("nari-ws").open(SpeechRequest("r", "x"))
    exchange.start()
    exchange.feed(Headers(101))
    (failure,) = exchange.feed(_say(type="session.created", protocol="nari.speech.v2"))

    assert "nari.speech.v2" in failure.text  # type: ignore[union-attr]


def test_a_cancel_before_the_end_of_the_text_is_said_and_awaited():
    """`response.cancel`, no further text, audio still kept, `cancelled` at the server's end."""
    exchange = _configured()
    exchange.feed(TextDue(0, "one ", False))
    told = exchange.feed(CancelDue())
    late = [*exchange.feed(_ack(0)), *exchange.feed(TextDue(1, "two", True))]
    audio = exchange.feed(Message(b"\0\0"))
    (ending,) = exchange.feed(_say(type="response.done", stop_reason="cancelled", audio_chunks=1))

    assert [("response.cancel", None, None)] == _sent(told)
    assert [] == _sent(late)
    assert 2 == len(audio)
    assert TransportOutcome.CANCELLED == ending.outcome  # type: ignore[union-attr]


def test_a_cancel_after_the_end_of_the_text_can_only_close():
    """The server no longer reads."""
    exchange = _configured()
    exchange.feed(TextDue(0, "one", True))
    exchange.feed(_ack(0))
    told = exchange.feed(CancelDue())

    assert Close() in told
    assert TransportOutcome.CANCELLED == told[-1].outcome  # type: ignore[union-attr]


def test_a_text_longer_than_the_server_takes_is_an_error_beforehand():
    """65,536 characters are its limit."""
    with pytest.raises(ContractError, match="longer than the 65536"):
        registry.create("nari-ws").open(SpeechRequest("r", "x" * 65_537))
