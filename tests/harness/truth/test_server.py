"""The server does what its script says, and its log says what it did."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import h11
import pytest

from harness.truth.log import LoggedRequest, TruthLog, read_log
from harness.truth.marks import Mark, read_mark
from tests.builders.truth import TruthSite


@pytest.fixture
def wire(site: TruthSite) -> Iterator[socket.socket]:
    """A plain connection to the server."""
    parts = urlsplit(site.base_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as sock:
        yield sock


def request(body: object, *, path: str = "/v1/audio/speech", method: str = "POST") -> bytes:
    """A request as bytes."""
    content = json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: truth\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def answer(sock: socket.socket) -> tuple[h11.Response, list[bytes]]:
    """One whole response and its pieces of body, read by another parser than ours."""
    parser, pieces, response = h11.Connection(h11.CLIENT), [], None
    parser.send(h11.Request(method="GET", target="/", headers=[("Host", "truth")]))
    parser.send(h11.EndOfMessage())
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            parser.receive_data(sock.recv(65_536))
        elif isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            pieces.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            assert response is not None
            return response, pieces


def last(log: TruthLog) -> LoggedRequest:
    return log.requests[-1]


def test_reply_is_valid_http_with_its_mark_in_every_chunk(site: TruthSite, wire: socket.socket):
    """480 ms of 24 kHz in 12 chunks, each saying who it is."""
    wire.sendall(request({"input": "tone-25ms"}))
    response, pieces = answer(wire)
    body = b"".join(pieces)
    number = last(site.log()).number

    assert 200 == response.status_code
    assert [Mark(number, chunk) for chunk in range(12)] == [
        read_mark(body[at : at + 1920]) for at in range(0, len(body), 1920)
    ]


def test_log_holds_every_byte_between_two_readings(site: TruthSite, wire: socket.socket):
    """Sends follow each other without a hole, in order of time, and cover all items."""
    before_ns = time.monotonic_ns()
    wire.sendall(request({"input": "split"}))
    answer(wire)
    after_ns = time.monotonic_ns()
    log = site.log()
    asked = last(log)
    sends = [send for send in log.sends if send.connection == asked.connection]
    items = [item for item in log.items if item.request == asked.number]

    assert before_ns <= asked.received_ns <= sends[0].before_ns
    assert sends[-1].before_ns <= after_ns
    assert all(send.before_ns <= send.after_ns for send in sends)
    assert 0 == sends[0].wire_start
    assert [s.wire_end for s in sends[:-1]] == [s.wire_start for s in sends[1:]]
    assert items[-1].plain_end == sends[-1].wire_end
    assert ["head", *["audio"] * 12, "end"] == [item.kind for item in items]


def test_sends_are_never_early(site: TruthSite, wire: socket.socket):
    """Every step counts from the moment the request was read."""
    wire.sendall(request({"input": "tone-0ms"}))
    answer(wire)
    log = site.log()
    asked = last(log)
    sends = [send for send in log.sends if send.connection == asked.connection]
    due_ms = [step.at_ms for step in site.scripts["tone-0ms"].steps]

    assert len(due_ms) == len(sends)
    assert all(
        send.before_ns >= asked.received_ns + at_ms * 1e6
        for send, at_ms in zip(sends, due_ms, strict=True)
    )


def test_connection_serves_one_request_after_another(site: TruthSite, wire: socket.socket):
    """Even when the second was sent before the first was answered."""
    wire.sendall(request({"input": "tone-0ms"}) + request({"input": "tone-25ms"}))
    response, _ = answer(wire)
    log = site.log()
    asked = [r.script for r in log.requests if r.connection == last(log).connection]

    assert 200 == response.status_code
    assert ["tone-0ms", "tone-25ms"] == asked


def test_sse_reply_carries_the_same_audio(site: TruthSite, wire: socket.socket):
    """Base64 in events, an end event, one event a chunk."""
    wire.sendall(request({"input": "tone-0ms", "stream_format": "sse"}))
    response, pieces = answer(wire)
    events = b"".join(pieces).split(b"\n\n")

    assert (b"content-type", b"text/event-stream") in list(response.headers)
    assert 12 == sum(event.startswith(b'data: {"audio":"') for event in events)
    assert b'data: {"done":true}' in events
    assert "sse" == last(site.log()).transport


@pytest.mark.parametrize(("ending", "error"), [("reset", ConnectionResetError), ("cut-off", None)])
def test_broken_reply_is_broken_as_the_script_says(
    wire: socket.socket, ending: str, error: type[Exception] | None
):
    """A reset is an error of the socket; a close is not."""
    wire.sendall(request({"input": ending}))
    wire.settimeout(5)
    received, broke = b"", None
    try:
        while data := wire.recv(65_536):
            received += data
    except ConnectionResetError as fault:
        broke = type(fault)

    assert error is broke
    assert not received.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("bytes_sent", "status", "said"),
    [
        (request({"input": "nothing"}), 404, "no script 'nothing'"),
        (request({"input": ["a"]}), 404, "no script"),
        (request({"input": "tone-0ms", "stream_format": "ogg"}), 400, "is not audio or sse"),
        (request([1]), 400, "no JSON object"),
        (request({}, path="/else"), 404, "POST /v1/audio/speech"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411, "Content-Length"),
        (b"x" * 70_000, 431, "head is too long"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_answered(
    wire: socket.socket, bytes_sent: bytes, status: int, said: str
):
    """With a status and a reason, whatever it was."""
    wire.sendall(bytes_sent)
    response, pieces = answer(wire)

    assert status == response.status_code
    assert said in json.loads(b"".join(pieces))["error"]["message"]


def test_health_says_who_this_is(site: TruthSite, wire: socket.socket):
    """So that no run is made against another server by mistake."""
    wire.sendall(request({}, path="/health", method="GET"))
    _, pieces = answer(wire)

    assert {"server": "earwitness-truth", "scripts": sorted(site.scripts)} == json.loads(
        b"".join(pieces)
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    """A server of its own."""
    argv = [sys.executable, "-P", "-m", "harness.truth", "--port=0", *arguments]
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_slow_accept_leaves_a_connection_waiting_and_the_log_is_written_at_the_end(tmp_path: Path):
    """60 ms from connecting to the first byte; stopping writes what was sent."""
    log = tmp_path / "log.json"
    server = start(f"--log={log}", "--accept-delay-ms=60", "--stop-on-stdin-eof")
    with server:
        assert server.stdout is not None
        url = urlsplit(json.loads(server.stdout.readline())["url"])
        begin_ns = time.monotonic_ns()
        with socket.create_connection((url.hostname, url.port), timeout=5) as sock:
            sock.sendall(request({"input": "at-once"}))
            sock.recv(1)
        server.communicate()
    logged = read_log(log)

    assert 0 == server.returncode
    assert ["at-once"] == [r.script for r in logged.requests]
    assert logged.requests[0].received_ns - begin_ns >= 60_000_000


def test_file_that_is_no_book_ends_the_server_with_one_line(tmp_path: Path):
    """Exit code 2 and the path."""
    book = tmp_path / "book.yaml"
    book.write_text("scripts: 3")
    server = start(f"--scripts={book}")
    _, said = server.communicate(timeout=20)

    assert 2 == server.returncode
    assert 1 == said.count("\n")
    assert f"truth server: {book}: scripts" in said


def test_port_that_is_taken_is_named():
    """Exit code 2, as for any other server here."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start(f"--port={port}")
        _, said = server.communicate(timeout=20)

    assert 2 == server.returncode
    assert 1 == said.count("\n")
    assert f"truth server: --host 127.0.0.1 --port {port}: Address already in use" in said
