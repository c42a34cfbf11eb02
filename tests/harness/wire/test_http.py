"""One HTTP connection: from a request to stamped events, and every way it can end."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.base import EndOfBody, Headers, HttpTarget, Send, StreamBytes
from harness.settings import (
    WireLimits,
)
from harness.wire.http import HttpConnection, HttpOptions
from harness.wire.http_message import Origin
from harness.wire.resolve import Resolver
from tests.builders.servers import (
    chunk,
    head,
)
from tests.builders.wire import FakeStream, FakeTime, Heard

CHUNKED = head(200, content_type="audio/pcm", transfer_encoding="chunked")


class Rig:
    """An HTTP connection on a fake stream, with its request sent."""

    def __init__(self, **options: object) -> None:
        self.time, self.heard = FakeTime(), Heard()
        self.streams: list[FakeStream] = []
        self.idle: list[HttpConnection] = []
        self.gone: list[HttpConnection] = []
        values = {
            "clock": self.time.clock,
            "pacer": self.time.pacer,
            "resolver": Resolver(None, is_cached=True),  # type: ignore[arg-type]
            "make_stream": self._make_stream,
            "limits": WireLimits(),
            "user_agent": "tool",
        }
        self.connection = HttpConnection(
            Origin("http", "127.0.0.1", 80),
            HttpOptions(**(values | options)),  # type: ignore[arg-type]
            on_idle=self.idle.append,
            on_gone=self.gone.append,
        )
        self.ask()
        self.stream.accept()
        self.send()

    def _make_stream(self, origin: Origin, receiver: object) -> FakeStream:
        self.streams.append(FakeStream(receiver, self.time.clock))  # type: ignore[arg-type]
        return self.streams[-1]

    @property
    def stream(self) -> FakeStream:
        return self.streams[-1]

    def ask(self) -> None:
        self.connection.aim(lambda: HttpTarget("http://127.0.0.1/say"))
        self.connection.open(self.heard)

    def send(self) -> None:
        self.sent: list[int] = []
        self.connection.send(Send("text"), self.sent.append)

    def again(self) -> None:
        """Release, and use the connection for a second request."""
        self.connection.release()
        self.heard = Heard()
        self.ask()
        self.send()


def test_head_and_body_leave_in_one_write():
    """So that the moment of sending is one."""
    rig = Rig()

    assert rig.stream.written.startswith(b"POST /say HTTP/1.1\r\n")
    assert rig.stream.written.endswith(b"\r\n\r\ntext")
    assert 1 == len(rig.sent)


def test_sending_marks_the_stream_as_drained():
    """The answer cannot have arrived before."""
    rig = Rig()

    assert rig.sent == rig.stream.floors


def test_two_equal_chunks_in_one_read_are_told_apart():
    """Silence looks like silence: the first of them does not own the stamp."""
    rig = Rig()
    rig.stream.deliver(CHUNKED)
    rig.stream.deliver(chunk(bytes(8)) + chunk(bytes(8)))

    assert [True, False, True] == [seen.is_exact for seen in rig.heard.stamps]


def test_second_body_is_refused():
    """HTTP/1.1 carries one."""
    rig = Rig()
    with pytest.raises(ValueError, match="second"):
        rig.send()


def test_events_of_one_read_share_its_stamp_and_the_last_one_owns_it():
    """Merged deliveries are told by it."""
    rig = Rig()
    rig.stream.deliver(CHUNKED + chunk(b"a") + chunk(b"b"), at_ms=3)

    assert [Headers, StreamBytes, StreamBytes] == [type(event) for event in rig.heard.events]
    assert 1 == len({seen.arrival_ns for seen in rig.heard.stamps})
    assert [False, False, True] == [seen.is_exact for seen in rig.heard.stamps]


@pytest.mark.parametrize(
    ("reply", "read", "is_exact"),
    [
        (CHUNKED, chunk(b"abc"), True),
        (CHUNKED, chunk(b"abc") + chunk(b""), False),
        (CHUNKED, chunk(b"abc") + b"4", False),
        (CHUNKED, b"3\r\nabc", True),
        (head(200, content_length=3), b"abc", True),
        (head(200, content_length=3), b"abcX", False),
        (head(200), b"abc", True),
    ],
)
def test_a_chunk_owns_the_stamp_if_the_read_ended_with_it(
    reply: bytes, read: bytes, is_exact: bool
):
    """The zero chunk, sent a moment later, takes the stamp of the last audio with it."""
    rig = Rig()
    rig.stream.deliver(reply)
    rig.stream.deliver(read)
    owns = [
        seen.is_exact
        for event, seen in zip(rig.heard.events, rig.heard.stamps, strict=True)
        if isinstance(event, StreamBytes)
    ]

    assert [is_exact] == owns


def test_ended_response_frees_the_connection_on_release():
    """The next request finds it warm."""
    rig = Rig()
    rig.stream.deliver(head(200, content_length=0))
    rig.connection.release()

    assert [rig.connection] == rig.idle
    assert rig.connection.is_warm


@pytest.mark.parametrize(
    "reply",
    [
        head(200, content_length=0, connection="close"),
        head(200, content_length=0) + b"garbage",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_connection_that_cannot_be_kept_is_closed(reply: bytes):
    """The server's wish, bytes left over, an old version."""
    rig = Rig()
    rig.stream.deliver(reply)
    rig.connection.release()

    assert [] == rig.idle
    assert rig.stream.is_closed


@pytest.mark.parametrize("what", ["a thin line", "bytes unsent"])
def test_connection_that_is_not_as_it_was_is_closed(what: str):
    """A small window would slow the next reader; an early answer leaves half a request behind."""
    rig = Rig()
    if what == "a thin line":
        rig.connection.limit_reading(1000)
    else:
        rig.stream.has_unsent = True
    rig.stream.deliver(head(200, content_length=0))
    rig.connection.release()

    assert rig.stream.is_closed
    assert [] == rig.idle


def test_bytes_before_the_request_of_a_taken_connection_are_a_protocol_error():
    """It is busy, but an exchange may have something else to do first."""
    rig = Rig()
    rig.stream.deliver(head(200, content_length=0))
    rig.connection.release()
    rig.heard = Heard()
    rig.ask()
    rig.stream.deliver(head(200, content_length=0))

    assert rig.heard.failure is not None
    assert "unasked_bytes" == rig.heard.failure.kind


def test_cold_connections_close_after_one_request():
    """And say so."""
    rig = Rig(keep_alive=False)
    rig.stream.deliver(head(200, content_length=0))
    rig.connection.release()

    assert b"Connection: close\r\n" in rig.stream.written
    assert rig.stream.is_closed


def test_reply_that_ended_before_its_framing_may_still_end_it():
    """An event stream's last event comes just before its zero chunk."""
    rig = Rig()
    rig.stream.deliver(CHUNKED + chunk(b"done"))
    rig.connection.release()
    rig.time.advance(10)
    rig.stream.deliver(chunk(b""))

    assert [rig.connection] == rig.idle


def test_framing_that_does_not_end_soon_costs_the_connection():
    """Not a hang."""
    rig = Rig()
    rig.stream.deliver(CHUNKED + chunk(b"done"))
    rig.connection.release()
    rig.time.advance(300)

    assert rig.stream.is_closed
    assert [rig.connection] == rig.gone


def test_close_on_reuse_before_any_byte_is_a_stale_connection():
    """Its own outcome: neither the server's failure nor a slow reply."""
    rig = Rig()
    rig.stream.deliver(head(200, content_length=0))
    rig.again()
    rig.stream.eof()

    assert "stale_connection" == rig.heard.failure.outcome.value
    assert rig.heard.infos[0].is_reused


def test_reset_on_reuse_before_any_byte_is_a_stale_connection():
    """A server may also answer a late request with RST."""
    rig = Rig()
    rig.stream.deliver(head(200, content_length=0))
    rig.again()
    rig.stream.error(OSError(errno.ECONNRESET, ""))

    assert "stale_connection" == rig.heard.failure.outcome.value


def test_close_on_a_fresh_connection_is_not_stale():
    """There was nothing to go stale."""
    rig = Rig()
    rig.stream.eof()

    assert ("truncated", "closed_before_response") == (
        rig.heard.failure.outcome.value,
        rig.heard.failure.kind,
    )


def test_kept_connection_that_closes_is_given_up_quietly():
    """Nobody was using it."""
    rig = Rig()
    rig.stream.deliver(head(200, content_length=0))
    rig.connection.release()
    rig.stream.eof()

    assert rig.heard.failure is None
    assert [rig.connection] == rig.gone


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (CHUNKED[:20], "closed_in_headers"),
        (CHUNKED, "closed_in_body"),
        (CHUNKED + chunk(b"abc"), "closed_in_body"),
        (head(200, content_length=9) + b"abc", "closed_in_body"),
    ],
)
def test_close_before_the_end_is_truncation_and_the_exchange_is_asked(sent: bytes, kind: str):
    """It may know better: a protocol can end before its framing."""
    rig = Rig()
    rig.stream.deliver(sent)
    rig.stream.eof()

    assert ("truncated", kind, False) == (
        rig.heard.failure.outcome.value,
        rig.heard.failure.kind,
        rig.heard.failure.is_final,
    )


def test_body_without_length_ends_with_the_connection():
    """Clean, by its framing."""
    rig = Rig()
    rig.stream.deliver(head(200) + b"abc")
    rig.stream.eof()

    assert EndOfBody() == rig.heard.events[-1]
    assert rig.heard.failure is None


def test_abort_calls_nobody():
    """The recorder has already ended the request."""
    rig = Rig()
    rig.connection.abort()
    rig.connection.abort()

    assert rig.heard.failure is None
    assert rig.stream.is_closed
    assert [rig.connection] == rig.gone


def test_bytes_before_any_request_are_a_protocol_error():
    """A server that speaks first does not speak HTTP."""
    rig = Rig()
    rig.stream.deliver(head(200, content_length=0))
    rig.connection.release()
    rig.heard = Heard()
    rig.ask()
    rig.stream.deliver(b"220 smtp ready\r\n")

    assert "protocol_error" == rig.heard.failure.outcome.value


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=300), st.integers(0, 3), st.booleans(), st.integers(1, 50))
def test_any_bytes_and_a_close_end_the_request_once(
    data: bytes, prefix: int, is_reset: bool, size: int
):
    """Whatever a server sends: one end of body or one failure, never both, never neither."""
    rig = Rig()
    data = [b"", CHUNKED, head(200), head(200, content_length=20)][prefix] + data
    for start in range(0, len(data), size):
        if not rig.stream.is_closed:
            rig.stream.deliver(data[start : start + size])
    if not rig.stream.is_closed:
        if is_reset:
            rig.stream.error(OSError(errno.ECONNRESET, ""))
        else:
            rig.stream.eof()
    has_ended = rig.heard.events[-1:] == [EndOfBody()]

    assert has_ended is not (rig.heard.failure is not None) or has_ended
    assert has_ended or rig.heard.failure is not None
