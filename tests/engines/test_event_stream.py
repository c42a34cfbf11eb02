"""Text events with audio inside: line ends, splits, limits."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.base import Audio, Done, PayloadEncoding, StreamBytes
from engines.event_stream import (
    MAX_EVENT_BYTES,
    LineSplitter,
    NdjsonParser,
    SseParser,
    TooLongError,
    decode_payload,
)
from engines.outcomes import TransportOutcome
from tests.builders.exchanges import Played, byte_by_byte, drive, ramp, random_pieces
from tests.engines.canned import FIXTURES, load_fixture


def _events(parser: SseParser | NdjsonParser, *pieces: bytes) -> list[bytes]:
    found = [event for piece in pieces for event in parser.push(piece)]
    return [*found, *parser.finish()]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_all_three_line_ends_are_line_ends(end: str):
    """LF, CRLF and CR make the same events, whole and byte by byte."""
    stream = end.join(["data: a", "", "data: b", "", ""]).encode()

    assert [b"a", b"b"] == _events(SseParser(), stream)
    assert [b"a", b"b"] == _events(SseParser(), *(bytes([byte]) for byte in stream))


def test_crlf_split_between_two_reads_is_one_line_end():
    """The LF of a split CRLF is not a blank line."""
    assert [b"a\nb"] == _events(SseParser(), b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n")


def test_an_event_is_complete_with_its_last_byte_not_the_next_read():
    """A CR ends the blank line at once: waiting for an LF would stamp the event too late."""
    parser = SseParser()

    assert [] == parser.push(b"data: a\r\n")
    assert [b"a"] == parser.push(b"\r")
    assert [] == parser.push(b"\n")


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b": keep-alive\n\ndata: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"event: x\nid: 7\nretry: 10\ndata: a\n\n", [b"a"]),
        (b"event: x\n\ndata: a\n\n", [b"a"]),
        (b"data\n\n", [b""]),
        (b"datax: a\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        ("data: a\u2028b\u0085c\x0bd\n\n".encode(), ["a\u2028b\u0085c\x0bd".encode()]),
    ],
)
def test_the_grammar_of_events(stream: bytes, events: list[bytes]):
    """Comments, no space, several lines, other fields, a mark at the start, no end at the end."""
    assert events == _events(SseParser(), stream)
    assert events == _events(SseParser(), *(bytes([byte]) for byte in stream))


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"data:", b": ", b"\xe2\x80\xa8"])), st.data())
def test_splits_never_change_what_is_read(parts: list[bytes], data: st.DataObject):
    """Any stream, cut anywhere, gives the events of the whole."""
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert _events(SseParser(), stream) == _events(SseParser(), *pieces)
    assert _events(NdjsonParser(), stream) == _events(NdjsonParser(), *pieces)


def test_ndjson_is_cut_at_line_feeds_alone():
    """A CR is whitespace to JSON, a blank line is nothing, the last line may lack its end."""
    assert [b'{"a":1}\r', b'{"b":2}'] == _events(NdjsonParser(), b'{"a":1}\r\n\n \n{"b":2}')


def test_a_line_without_end_is_given_up_at_the_limit():
    """Memory is bounded whatever a server does."""
    splitter = LineSplitter(max_bytes=1000)
    splitter.push(b"x" * 900)
    with pytest.raises(TooLongError):
        splitter.push(b"x" * 200)


def test_an_event_of_many_lines_is_given_up_at_the_limit():
    """Short lines that never end an event add up."""
    parser = SseParser()
    block = b"data: " + b"x" * 65_536 + b"\n"
    for _ in range(MAX_EVENT_BYTES // len(block) - 1):
        assert [] == parser.push(block)
    with pytest.raises(TooLongError):
        parser.push(block * 2)


@pytest.mark.parametrize("text", ["AAA", "AA=A", "A A=", "é", "!!!!", "AAAA\n"])
def test_base64_that_is_none_is_refused(text: str):
    """Skipping the odd character would shift every sample after it."""
    with pytest.raises(ValueError):
        decode_payload(text, PayloadEncoding.BASE64)


def test_hex_is_decoded_and_nonsense_refused():
    """Both cases of letters; an odd number of digits is none."""
    assert b"\xab\xcd" == decode_payload("abCD", PayloadEncoding.HEX)
    with pytest.raises(ValueError):
        decode_payload("abc", PayloadEncoding.HEX)


def _sse(body: bytes) -> Played:
    fixture = load_fixture(FIXTURES / "openai.sse.yaml")
    events = [fixture.success.headers, StreamBytes(body)]
    return drive(fixture.open(), events)


def test_each_event_is_one_chunk_stamped_by_the_read_that_completes_it():
    """The audio of an event appears with its last byte, and not before."""
    fixture = load_fixture(FIXTURES / "openai.sse.yaml")
    exchange = fixture.open()
    exchange.start()
    exchange.feed(fixture.success.headers)
    audio = base64.b64encode(ramp(0, 100)).decode()
    event = f'data: {{"type":"speech.audio.delta","audio":"{audio}"}}\n\n'.encode()
    early = [action for piece in byte_by_byte(event[:-1]) for action in exchange.feed(piece)]
    last = exchange.feed(StreamBytes(event[-1:]))

    assert [] == early
    assert [ramp(0, 100)] == [action.data for action in last if isinstance(action, Audio)]


def test_nothing_after_the_end_event_counts():
    """Audio behind `[DONE]` is not part of the reply."""
    audio = base64.b64encode(ramp(0, 10)).decode()
    delta = f'data: {{"type":"speech.audio.delta","audio":"{audio}"}}\n\n'
    played = _sse(f"{delta}data: [DONE]\n\n{delta}".encode())

    assert ramp(0, 10) == played.audio
    assert isinstance(played.ending, Done)


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ("hello", "event 1: not JSON: 'hello'"),
        ('{"audio":"%%"}', "event 1: the audio is not base64"),
        ('{"audio":7}', "event 1: the audio is int, not text"),
        ('{"audio":["AA=="]}', "event 1: the audio is list, not text"),
    ],
)
def test_an_event_that_makes_no_sense_is_a_protocol_error(event: str, says: str):
    """With its number and what is wrong with it."""
    failure = _sse(f"data: {event}\n\n".encode()).failure

    assert TransportOutcome.PROTOCOL_ERROR == failure.outcome
    assert says in f"{failure.where}: {failure.text}"


def test_facts_of_the_end_event_are_kept():
    """Counts that only the server knows."""
    played = _sse(b'data: {"type":"speech.audio.done","usage":{"total_tokens":12}}\n\n')

    assert {"usage": {"total_tokens": 12}} == played.ending.facts


def test_escapes_inside_base64_are_undone():
    """JSON may write a slash as backslash-slash."""
    payload = bytes([255, 255, 255, 254])
    text = base64.b64encode(payload).decode().replace("/", "\\/")

    assert "\\/" in text
    assert payload == _sse(f'data: {{"audio":"{text}"}}\n\n'.encode()).audio


def test_a_rate_in_an_event_overrules_the_contract_and_a_wrong_one_is_an_error():
    """The older SGLang-Omni shape states it in every event."""
    fixture = load_fixture(FIXTURES / "sglang-omni.sse-2026-04.yaml")
    body = fixture.success.body.replace(b"16000", b'"16k"')
    for pieces in ([StreamBytes(body)], random_pieces(body, seed=1)):
        played = drive(fixture.open(), [fixture.success.headers, *pieces])
        assert TransportOutcome.PROTOCOL_ERROR == played.failure.outcome
        assert "sample rate 16k" in played.failure.text


@pytest.mark.parametrize("depth", [100, 500, 1000])
def test_a_deeply_nested_error_is_the_servers(depth: int):
    """And not an exception of ours, for which the client would be blamed."""
    nested = "[" * depth + "]" * depth
    failure = _sse(f'data: {{"type": "error", "error": {nested}}}\n\n'.encode()).failure

    assert TransportOutcome.SERVER_ERROR == failure.outcome
    assert len(failure.text) <= 500
