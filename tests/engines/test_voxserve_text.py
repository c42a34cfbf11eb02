"""VoxServe's streamed text: side calls in order, audio on the main one."""

from __future__ import annotations

from typing import Any

import pytest

from engines import registry
from engines.base import (
    Action,
    CancelDue,
    Close,
    Done,
    EndOfBody,
    Exchange,
    Headers,
    HttpTarget,
    Send,
    SideReply,
    SideRequest,
    SpeechRequest,
    StreamBytes,
    TextAccepted,
    TextDue,
)
from engines.outcomes import TransportOutcome
from tests.builders.exchanges import Played, drive, play, ramp, wav

OPENED = SideReply("open", 200, b'{"request_id": "abc-1"}')
ACCEPTED = SideReply("text", 200, b'{"status": "accepted"}')
COMPLETED = SideReply("end", 200, b'{"status": "completed"}')
WAV = Headers(200, (("content-type", "audio/wav"),))
BODY = wav(ramp(0, 100), data_size=0)


def _open(*, is_incremental: bool = True, **params: Any) -> Exchange:
    adapter = registry.create("voxserve-text", base_url="http://h:8000", params=params)
    return adapter.open(SpeechRequest("r", "Hello there.", is_incremental=is_incremental))


def _calls(actions: list[Action]) -> list[tuple[str, bytes]]:
    return [
        (action.target.url.removeprefix("http://h:8000/generate/stream/"), action.body)
        for action in actions
        if isinstance(action, SideRequest)
    ]


def test_the_stream_is_opened_before_anything_else():
    """With the settings as form fields under the server's own names."""
    exchange = _open(voice="aiden", language="en")

    assert [("start", b"language=en&speaker=aiden")] == _calls(exchange.start())


def test_the_audio_call_is_sent_once_its_id_is_known():
    """Same host, a GET, and only then the first `Send`."""
    exchange = _open()
    before = exchange.start()
    after = exchange.feed(OPENED)

    assert not any(isinstance(action, Send) for action in before)
    assert [Send(b"")] == [action for action in after if isinstance(action, Send)]
    assert isinstance(exchange.target, HttpTarget)
    assert ("GET", "http://h:8000/generate/stream/abc-1/audio") == (
        exchange.target.method,
        exchange.target.url,
    )


def test_pieces_are_posted_in_order_each_after_the_reply_to_the_one_before():
    """Then the end, which is the text's last write."""
    exchange = _open()
    exchange.start()
    exchange.feed(OPENED)
    first = exchange.feed(TextDue(0, "Hello ", False))
    held = exchange.feed(TextDue(1, "there.", True))
    second = exchange.feed(ACCEPTED)
    end = exchange.feed(ACCEPTED)

    assert [("abc-1/text", b"text=Hello+")] == _calls(first)
    assert [] == held
    assert [("abc-1/text", b"text=there.")] == _calls(second)
    assert [("abc-1/end", b"")] == _calls(end)
    assert [TextAccepted(0)] == [a for a in second if isinstance(a, TextAccepted)]
    assert [(1, False)] == [(a.text_seq, a.ends_text) for a in second if _is_call(a)]
    assert [(None, True)] == [(a.text_seq, a.ends_text) for a in end if _is_call(a)]


def _is_call(action: Action) -> bool:
    return isinstance(action, SideRequest)


def test_text_that_falls_due_early_waits_for_the_id():
    """Nothing is lost."""
    exchange = _open()
    exchange.start()
    early = exchange.feed(TextDue(0, "Hello there.", True))

    assert [] == early
    assert [("abc-1/text", b"text=Hello+there.")] == _calls(exchange.feed(OPENED))


def test_an_empty_last_piece_is_only_the_end():
    """There is no text to post."""
    exchange = _open()
    exchange.start()
    exchange.feed(OPENED)

    assert [("abc-1/end", b"")] == _calls(exchange.feed(TextDue(0, "", True)))


def _whole() -> tuple[Exchange, Played]:
    exchange = _open(is_incremental=False)
    return exchange, drive(exchange, [OPENED, ACCEPTED, COMPLETED, WAV])


def test_a_whole_text_is_one_piece_and_the_audio_is_read_as_ever():
    """WAV with a data size of zero, complete when the framing says so."""
    exchange, played = _whole()
    play(exchange, [StreamBytes(BODY), EndOfBody()], played)

    assert BODY == played.audio
    assert isinstance(played.ending, Done)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (SideReply("open", 429, b'{"detail": "queue full"}'), TransportOutcome.REFUSED),
        (SideReply("open", 404, b'{"detail": "Not Found"}'), TransportOutcome.HTTP_ERROR),
        (SideReply("open", 0, b"connection refused"), TransportOutcome.CONNECT_ERROR),
        (SideReply("open", 200, b"hello"), TransportOutcome.PROTOCOL_ERROR),
        (SideReply("open", 200, b'{"request_id": "../../x y"}'), TransportOutcome.PROTOCOL_ERROR),
        (SideReply("open", 200, b"[" * 5000), TransportOutcome.PROTOCOL_ERROR),
    ],
)
def test_a_stream_that_cannot_be_opened_says_why(reply: SideReply, outcome: TransportOutcome):
    """By status, by words, or because there is no usable id."""
    assert outcome == drive(_open(), [reply]).failure.outcome


def test_text_that_is_refused_ends_the_request():
    """Half a text is another text."""
    exchange = _open(is_incremental=False)
    said = SideReply("text", 400, b'{"detail": "wrong kind"}')
    failure = drive(exchange, [OPENED, said]).failure

    assert TransportOutcome.HTTP_ERROR == failure.outcome
    assert "text: HTTP 400: wrong kind" == failure.text


def test_cancelling_closes():
    """No call for it exists."""
    exchange, played = _whole()
    play(exchange, [CancelDue()], played)

    assert Close() in played.actions
    assert TransportOutcome.CANCELLED == played.failure.outcome
