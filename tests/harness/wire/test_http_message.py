"""HTTP/1.1 as bytes: what is written, and how a response is cut into events."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.base import EndOfBody, Event, Headers, HttpTarget, StreamBytes
from harness.settings import WireLimits
from harness.wire.http_message import ResponseParser, ResponseStage, origin_of, request_head
from tests.builders.servers import chunk, head

CHUNKED = head(200, content_type="audio/pcm", transfer_encoding="chunked")


def _feed(
    *reads: bytes, limits: WireLimits | None = None
) -> tuple[ResponseParser, list[list[Event]]]:
    parser = ResponseParser(limits or WireLimits())
    return parser, [parser.feed(read) for read in reads]


def _body(events: Sequence[Event]) -> list[bytes]:
    return [bytes(event.data) for event in events if isinstance(event, StreamBytes)]


def _split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


# -- responses ------------------------------------------------------------------------------------


def test_one_read_of_one_chunk_is_one_delivery():
    """Header, chunk and next chunk in three reads: three lists of events."""
    _, reads = _feed(CHUNKED, chunk(b"abcd"), chunk(b"ef"))

    assert [Headers] == [type(event) for event in reads[0]]
    assert [[b"abcd"], [b"ef"]] == [_body(events) for events in reads[1:]]


def test_merged_chunks_are_cut_at_their_borders():
    """Two transfer chunks in one read are two deliveries of that read."""
    _, reads = _feed(CHUNKED + chunk(b"abcd") + chunk(b"ef"))

    assert [b"abcd", b"ef"] == _body(reads[0])


def test_a_split_chunk_is_delivered_as_it_comes():
    """Nothing waits for the rest of a chunk: that would hide when its first bytes came."""
    whole = CHUNKED + chunk(b"x" * 5000)
    _, reads = _feed(whole[:3000], whole[3000:])

    assert [3000 - len(CHUNKED) - len(b"1388\r\n"), 5000 - (3000 - len(CHUNKED) - 6)] == [
        len(_body(events)[0]) for events in reads
    ]


@pytest.mark.parametrize("trailer", [b"", b"X-Sum: 1\r\n"])
def test_zero_chunk_ends_the_body(trailer: bytes):
    """With or without a trailer, which is nobody's header."""
    parser, reads = _feed(CHUNKED, b"0\r\n" + trailer + b"\r\n")

    assert [EndOfBody()] == reads[1]
    assert ResponseStage.COMPLETE is parser.stage
    assert parser.can_reuse


def test_length_ends_the_body():
    """And a reply without a body has ended with its head."""
    _, reads = _feed(head(200, content_length=3), b"ab", b"c")
    _, empty = _feed(head(204))

    assert [[b"ab"], [b"c"]] == [_body(events) for events in reads[1:]]
    assert EndOfBody() == reads[2][-1]
    assert [Headers(204), EndOfBody()] == empty[0]


def test_body_without_length_ends_when_the_server_closes():
    """That is its framing, so it is a clean end; the connection cannot be used again."""
    parser, _ = _feed(head(200), b"abc")

    assert [EndOfBody()] == parser.feed_eof()
    assert not parser.can_reuse


@pytest.mark.parametrize(
    "sent",
    [b"", head(200, content_length=9)[:20], head(200, content_length=9) + b"abc", CHUNKED],
)
def test_close_before_the_framing_ends_is_no_end(sent: bytes):
    """Whatever stage it happens in."""
    parser, _ = _feed(*([sent] if sent else []))

    assert parser.feed_eof() is None


def test_interim_responses_are_skipped():
    """100 and 103 say nothing about the reply."""
    _, reads = _feed(head(100) + head(103, link="x") + head(200, content_length=1) + b"a")

    assert [200] == [event.status for event in reads[0] if isinstance(event, Headers)]
    assert [b"a"] == _body(reads[0])


def test_header_names_are_lower_case_and_values_trimmed():
    """Whatever a server writes."""
    _, reads = _feed(b"HTTP/1.1 200 OK\r\nX-Sample-RATE:   24000  \r\nContent-Length: 0\r\n\r\n")

    assert (("x-sample-rate", "24000"), ("content-length", "0")) == reads[0][0].headers


@pytest.mark.parametrize(
    ("head_bytes", "can_reuse"),
    [
        (head(200, content_length=0), True),
        (head(200, content_length=0, connection="close"), False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_reuse_follows_version_and_connection_header(head_bytes: bytes, can_reuse: bool):
    """HTTP/1.1 keeps unless told, HTTP/1.0 closes unless told."""
    parser, _ = _feed(head_bytes)

    assert can_reuse is parser.can_reuse


@pytest.mark.parametrize("extra", [b"garbage", head(200, content_length=0)])
def test_bytes_after_the_response_spoil_the_connection(extra: bytes):
    """They belong to nobody; the reply itself stands."""
    parser, reads = _feed(head(200, content_length=3) + b"abc" + extra)

    assert [Headers, StreamBytes, EndOfBody] == [type(event) for event in reads[0]]
    assert parser.error is None
    assert not parser.can_reuse


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        head(200, content_length="abc"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        head(200, content_length=3, transfer_encoding="chunked"),
        CHUNKED + b"zz\r\nabc\r\n",
        CHUNKED + b"3\r\nabcdef\r\n",
    ],
)
def test_broken_framing_is_named(sent: bytes):
    """Not HTTP, contradictory lengths, chunk sizes that are none."""
    parser, _ = _feed(sent)

    assert "http_framing" == parser.error.kind


def test_audio_before_broken_framing_did_come():
    """The events of the same read are given before the fault."""
    parser, reads = _feed(CHUNKED + chunk(b"abcd") + b"zz\r\n")

    assert [b"abcd"] == _body(reads[0])
    assert parser.error is not None


def test_switching_protocols_unasked_is_an_error():
    """Nobody asked for a WebSocket here."""
    parser, _ = _feed(head(101, upgrade="websocket", connection="upgrade"))

    assert "upgrade" == parser.error.kind


@pytest.mark.parametrize(
    "parts",
    [
        [b"HTTP/1.1 200 OK\r\nX: " + b"a" * 600],
        [b"HTTP/1.1 200 OK\r\n", *[b"X-%d: aaaaaaaaaaaaaaaa\r\n" % n for n in range(40)]],
        [CHUNKED, b"3;ext=" + b"a" * 600],
        [CHUNKED, b"0\r\n", *[b"X-%d: aaaaaaaaaaaaaaaa\r\n" % n for n in range(40)]],
        [head(100)] * 40,
    ],
)
def test_headers_extensions_and_trailers_without_end_are_cut_off(parts: list[bytes]):
    """Whatever is not body has one bound."""
    parser, _ = _feed(*parts, limits=WireLimits(max_header_bytes=512))

    assert "headers_too_large" == parser.error.kind


def test_tiny_chunks_are_not_mistaken_for_endless_headers():
    """Framing outweighs the body here, but the body moves on."""
    parser, reads = _feed(CHUNKED, *[chunk(b"a")] * 500, limits=WireLimits(max_header_bytes=512))

    assert parser.error is None
    assert 500 == sum(len(_body(events)) for events in reads)


def _random_response(draw: random.Random) -> bytes:
    names = [f"X-{n}" for n in range(draw.randrange(4))]
    extra = {name: "v" * draw.randrange(20) for name in names}
    if draw.random() < 0.3:
        body = draw.randbytes(draw.randrange(3000))
        return head(200, content_length=len(body), **extra) + body
    pieces = [draw.randbytes(draw.randrange(1, 700)) for _ in range(draw.randrange(6))]
    raw = head(200, transfer_encoding="chunked", **extra) + b"".join(map(chunk, pieces))
    return raw + chunk(b"")


def _by_h11(reads: Sequence[bytes]) -> tuple[int, list[tuple[str, str]], list[list[bytes]], bool]:
    """What h11 makes of the same reads: status, headers, body pieces of each read, ended."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    status, headers, bodies, has_ended = 0, [], [], False
    for read in reads:
        connection.receive_data(read)
        pieces: list[bytes] = []
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Response):
                status = event.status_code
                headers = [(k.decode(), v.decode()) for k, v in event.headers]
            elif isinstance(event, h11.Data) and event.data:
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                has_ended = True
                break
        bodies.append(pieces)
    return status, headers, bodies, has_ended


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 10**6), max_size=12))
def test_events_equal_those_of_another_parser(seed: int, cuts: list[int]):
    """h11 on the same reads finds the same head, the same pieces read by read, the same end."""
    reads = _split(_random_response(random.Random(seed)), cuts)
    parser, ours = _feed(*reads)
    events = [event for read in ours for event in read]
    status, headers, bodies, has_ended = _by_h11(reads)

    assert (status, headers) == (events[0].status, [(k, v) for k, v in events[0].headers])
    assert bodies == [_body(read) for read in ours]
    assert has_ended is (events[-1] == EndOfBody())
    assert parser.error is None


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6), st.booleans())
def test_any_bytes_end_in_events_or_one_error(data: bytes, cuts: list[int], is_prefixed: bool):
    """Never an exception, never events after the end."""
    parser, reads = _feed(*_split((CHUNKED if is_prefixed else b"") + data, cuts))
    events = [event for read in reads for event in read]

    assert events.count(EndOfBody()) <= 1
    assert EndOfBody() not in events[:-1]
    assert parser.feed_eof() in (None, [EndOfBody()])


# -- requests -------------------------------------------------------------------------------------


def _head(url: str, **kwargs: object) -> list[str]:
    target = HttpTarget(url, **kwargs)
    raw = request_head(target, origin_of(url), num_body_bytes=5, user_agent="tool")
    return raw.decode("latin-1").split("\r\n")


def test_request_says_who_asks_and_wants_no_compression():
    """A compressor would hold audio back until its block is full."""
    assert [
        "POST /say HTTP/1.1",
        "Host: tts.example:8000",
        "User-Agent: tool",
        "Accept-Encoding: identity",
        "A: b",
        "Content-Length: 5",
        "",
        "",
    ] == _head("http://tts.example:8000/say", headers=(("A", "b"),))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h", "/"),
        ("http://h/a b", "/a%20b"),
        ("http://h/é?q=ü&x=%20", "/%C3%A9?q=%C3%BC&x=%20"),
        ("http://h/p?x=1#frag", "/p?x=1"),
    ],
)
def test_request_target_is_ascii(url: str, expected: str):
    """Encoded once, what is encoded stays."""
    assert f"POST {expected} HTTP/1.1" == _head(url)[0]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://h:80/", "h"),
        ("https://h/", "h"),
        ("http://[::1]:9/", "[::1]:9"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_host_header_names_the_origin(url: str, host: str):
    """Default ports are left out, literals are bracketed, other scripts are encoded."""
    assert f"Host: {host}" == _head(url)[1]


@pytest.mark.parametrize(
    "headers",
    [(("A", "b\r\nX: y"),), (("A\n", "b"),), (("A b", "c"),), (("", "c"),), (("A", "b\0"),)],
)
def test_headers_that_would_break_the_framing_are_refused(headers: tuple[tuple[str, str], ...]):
    """Nothing from a scenario can smuggle a second request."""
    with pytest.raises(ValueError, match="header"):
        _head("http://h/", headers=headers)


@pytest.mark.parametrize("method", ["HEAD", "CONNECT", "GE T", "P\r\n"])
def test_methods_whose_replies_have_no_body_are_refused(method: str):
    """Their replies could not be told from truncated ones."""
    with pytest.raises(ValueError, match="method"):
        _head("http://h/", method=method)


@pytest.mark.parametrize(
    "url", ["ftp://h/", "h/p", "http:///p", "http://u:p@h/", "http://h:99999/"]
)
def test_urls_that_cannot_be_reached_are_refused(url: str):
    """Scheme, host and port must be there, and no password in plain sight."""
    with pytest.raises(ValueError, match=r"URL|[Pp]ort"):
        origin_of(url)
