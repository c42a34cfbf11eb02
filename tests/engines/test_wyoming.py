"""Wyoming: events cut from a byte stream, one group a text or one a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines import registry
from engines.base import (
    Audio,
    CancelDue,
    Close,
    Closed,
    Done,
    Event,
    Exchange,
    RateSource,
    SampleFormat,
    Send,
    SpeechRequest,
    StreamBytes,
    TcpTarget,
    TextDue,
)
from engines.errors import ContractError
from engines.outcomes import TransportOutcome
from engines.wyoming import WyomingEvent, WyomingParser, write_event
from tests.builders.exchanges import Played, byte_by_byte, drive, ramp, random_pieces

SHAPE = {"rate": 22_050, "width": 2, "channels": 1}
FIRST, SECOND = ramp(0, 1024), ramp(1024, 1500)


def _event(kind: str, data: dict[str, Any] | None = None, payload: bytes = b"") -> bytes:
    """As wyoming writes it: data behind the line."""
    raw = json.dumps(data).encode() if data else b""
    line = {"type": kind, "version": "1.10.2"}
    lengths = {"data_length": len(raw)} if raw else {}
    lengths |= {"payload_length": len(payload)} if payload else {}
    return json.dumps({**line, **lengths}).encode() + b"\n" + raw + payload


def _group(*payloads: bytes) -> bytes:
    chunks = b"".join(_event("audio-chunk", SHAPE, payload) for payload in payloads)
    return _event("audio-start", SHAPE) + chunks + _event("audio-stop")


ONE_SHOT = _group(FIRST, SECOND)


def _open(*, is_incremental: bool = False, **params: str) -> Exchange:
    adapter = registry.create("wyoming", params=params)
    return adapter.open(SpeechRequest("r", "Hello there.", is_incremental=is_incremental))


def _play(*events: Event, is_incremental: bool = False) -> Played:
    return drive(_open(is_incremental=is_incremental), events)


def _said(sends: list[Send]) -> list[tuple[str, Any]]:
    parser = WyomingParser()
    events = [event for send in sends for event in parser.push(send.data)]  # type: ignore[arg-type]
    return [(event.type, event.data) for event in events]


def test_a_text_is_one_event_and_ends_with_its_group():
    """Whole, byte by byte and in random pieces: the same chunks, one a payload."""
    for pieces in (
        [StreamBytes(ONE_SHOT)],
        byte_by_byte(ONE_SHOT),
        *(random_pieces(ONE_SHOT, seed=seed) for seed in range(4)),
    ):
        played = _play(*pieces)
        assert [FIRST, SECOND] == played.chunks
        assert isinstance(played.ending, Done)
        assert [("synthesize", {"text": "Hello there."})] == _said(played.sends)


def test_the_format_is_that_of_the_events():
    """Rate, width and channels of `audio-start`; there is no promise beside it."""
    played = _play(StreamBytes(ONE_SHOT))

    assert played.format is not None
    found = played.format.format
    assert (SampleFormat.S16LE, 22_050, 1, RateSource.MESSAGE) == (
        found.sample_format,
        found.sample_rate_hz,
        found.channels,
        found.rate_source,
    )
    assert played.format.expected is None


def test_a_voice_is_named_in_the_event():
    """By name, language or speaker."""
    (send,) = _open(voice="joe", speaker="2").start()

    assert [
        ("synthesize", {"text": "Hello there.", "voice": {"name": "joe", "speaker": "2"}})
    ] == _said([send])  # type: ignore[list-item]


def test_streamed_text_ends_only_with_its_own_end():
    """A group a sentence; the client that stops at the first one loses audio."""
    exchange = _open(is_incremental=True)
    played = drive(exchange, [TextDue(0, "Hello ", False), TextDue(1, "there.", True)])
    played.add(exchange.feed(StreamBytes(_group(FIRST))))
    assert played.ending is None
    played.add(exchange.feed(StreamBytes(_group(SECOND) + _event("synthesize-stopped"))))

    assert [FIRST, SECOND] == played.chunks
    assert isinstance(played.ending, Done)
    assert [
        ("synthesize-start", {}),
        ("synthesize-chunk", {"text": "Hello "}),
        ("synthesize-chunk", {"text": "there."}),
        ("synthesize", {"text": "Hello there."}),
        ("synthesize-stop", {}),
    ] == _said(played.sends)
    assert [(None, False), (0, False), (1, True)] == [
        (send.text_seq, send.ends_text) for send in played.sends
    ]


def test_data_may_stand_in_the_line_behind_it_or_both():
    """The later one wins."""
    line = json.dumps({"type": "x", "data": {"a": 1, "b": 1}, "data_length": 8}).encode()

    assert [WyomingEvent("x", {"a": 1, "b": 2})] == WyomingParser().push(line + b'\n{"b": 2}')
    assert [WyomingEvent("x", {"a": 1})] == WyomingParser().push(write_event("x", {"a": 1}))


@pytest.mark.parametrize("kept", [0, 1, len(ONE_SHOT) // 2, len(ONE_SHOT) - 1])
def test_a_connection_that_closes_early_is_truncated(kept: int):
    """Before the end event, wherever it is."""
    played = _play(StreamBytes(ONE_SHOT[:kept]), Closed())

    assert TransportOutcome.TRUNCATED == played.failure.outcome
    assert (FIRST + SECOND).startswith(played.audio)


def test_an_error_event_is_a_server_error_with_its_words():
    """What was heard before is kept."""
    body = _event("audio-start", SHAPE) + _event("audio-chunk", SHAPE, FIRST)
    played = _play(StreamBytes(body + _event("error", {"text": "no such voice", "code": "x"})))

    assert TransportOutcome.SERVER_ERROR == played.failure.outcome
    assert "no such voice" == played.failure.text
    assert FIRST == played.audio


def test_a_group_without_audio_has_no_chunk():
    """Ended in order; what it means is not judged here."""
    played = _play(StreamBytes(_group()))

    assert [] == played.chunks
    assert isinstance(played.ending, Done)


def test_an_odd_byte_is_kept():
    """Payload is payload."""
    assert b"\x01\x02\x03" == _play(StreamBytes(_group(b"\x01\x02\x03"))).audio


@pytest.mark.parametrize(
    "body",
    [
        b"hello\n",
        b"[1]\n",
        b'{"kind": 1}\n',
        b'{"type": 7}\n',
        b'{"type": "x", "data": 7}\n',
        b'{"type": "x", "payload_length": -1}\n',
        b'{"type": "x", "payload_length": "9"}\n',
        b'{"type": "x", "payload_length": 99999999999}\n',
        b'{"type": "x", "data_length": 99999999}\n',
        b'{"type": "x", "data_length": 3}\nabc',
        b"x" * 70_000,
        _event("audio-start", {**SHAPE, "width": 7}),
        _event("audio-start", {**SHAPE, "rate": "fast"}),
        _event("audio-start", {"rate": 22_050}),
        _event("audio-start", SHAPE) + _event("audio-start", {**SHAPE, "rate": 16_000}),
    ],
)
def test_what_is_not_wyoming_is_a_protocol_error(body: bytes):
    """Another server, a length beyond reason, audio of no known or of changing shape."""
    for pieces in ([StreamBytes(body)], random_pieces(body, seed=1)):
        assert TransportOutcome.PROTOCOL_ERROR == _play(*pieces).failure.outcome


@given(st.binary(max_size=200), st.integers(1, 9))
def test_any_bytes_are_survived(noise: bytes, step: int):
    """Noise ends a request or waits for more; it never raises."""
    pieces = [StreamBytes(noise[i : i + step]) for i in range(0, len(noise), step)]
    _play(*pieces, Closed())


def test_cancelling_closes():
    """There is no event for it."""
    played = _play(StreamBytes(ONE_SHOT[:200]), CancelDue())

    assert Close() in played.actions
    assert TransportOutcome.CANCELLED == played.failure.outcome


def test_the_address_is_a_tcp_address_with_a_usual_port():
    """`tcp://host` means port 10200."""
    adapter = registry.create("wyoming", base_url="tcp://10.0.0.7")

    assert TcpTarget("10.0.0.7", 10_200) == adapter.open(SpeechRequest("r", "x")).target
    with pytest.raises(ContractError, match="base_url"):
        registry.create("wyoming", base_url="unix:///run/piper.sock")


def test_nothing_is_audio_after_the_end():
    """A second group on the same connection belongs to nobody."""
    actions = _open().feed(StreamBytes(ONE_SHOT + ONE_SHOT))

    assert 2 == sum(isinstance(action, Audio) for action in actions)
