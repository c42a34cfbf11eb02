"""The scripted server that other tests stand on does what its script says."""

from __future__ import annotations

import http.client
import socket

import pytest

from tests.builders.servers import (
    Close,
    Reset,
    ScriptedServer,
    Write,
    chunk,
    chunked,
    head,
    ok,
    refusal,
)


def _post(server: ScriptedServer, path: str = "/speak", body: bytes = b"{}") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request("POST", path, body=body)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def test_a_whole_reply_arrives_and_the_request_is_on_record():
    """Status, body, method, path and body are as scripted and sent."""
    with ScriptedServer(ok(b"sound")) as server:
        assert (200, b"sound") == _post(server, "/v1/audio/speech", b'{"a": 1}')

    assert [("POST", "/v1/audio/speech", {"a": 1})] == [
        (request.method, request.path, request.json) for request in server.requests
    ]


def test_replies_come_in_order_and_the_last_repeats():
    """One refusal, then success for ever."""
    with ScriptedServer([refusal(), ok(b"yes")]) as server:
        assert [429, 200, 200] == [_post(server)[0] for _ in range(3)]


def test_every_write_is_logged_with_a_bracket():
    """Head, two chunks and the end are four writes, each with before <= after."""
    with ScriptedServer(chunked([b"ab", b"cd"])) as server:
        assert (200, b"abcd") == _post(server)

    assert 4 == len(server.sends)
    assert all(log.before_ns <= log.after_ns for log in server.sends)


def test_it_can_stop_before_the_length_it_promised():
    """A body shorter than its Content-Length is an incomplete read for any client."""
    short = (Write(head(content_length=10) + b"abc"), Close())
    with ScriptedServer(short) as server, pytest.raises(http.client.IncompleteRead):
        _post(server)


def test_it_can_reset_in_the_middle_of_a_body():
    """The client sees a reset, not an end."""
    broken = (Write(head(transfer_encoding="chunked") + chunk(b"abc")), Reset())
    with (
        ScriptedServer(broken) as server,
        pytest.raises((ConnectionError, http.client.HTTPException)),
    ):
        _post(server)


def test_a_taken_port_is_an_error_at_once():
    """Starting on somebody's port raises in the test, not in the thread."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError), ScriptedServer(ok(), port=port):
            pass
