"""Nothing that a server sends, and nothing that we are given to say, breaks the wire."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Opcode

from engines import registry
from harness.prompts import load_prompts
from tests.builders.servers import ScriptedServer, chunked
from tests.builders.websocket import FakeSession, Peer, WsAdapter, WsServer
from tests.builders.wire import say

MAX_MESSAGE_BYTES = 1_000
PROMPTS = load_prompts("hostile").prompts


def _frame(opcode: int, data: bytes, is_last: bool, *, is_masked: bool = False) -> bytes:
    """Any frame of at most 125 bytes, allowed or not."""
    assert len(data) <= 125
    top = bytes([is_last << 7 | opcode, is_masked << 7 | len(data)])
    return top + (b"\0\0\0\0" if is_masked else b"") + data


_FRAMES = st.builds(_frame, st.integers(0, 15), st.binary(max_size=120), st.booleans())
_MASKED = st.builds(
    _frame, st.integers(0, 15), st.binary(max_size=9), st.booleans(), is_masked=st.just(True)
)
_NOISE = st.lists(st.one_of(_FRAMES, _FRAMES, st.binary(max_size=40), _MASKED), max_size=12)


@settings(deadline=None, max_examples=150)
@given(pieces=_NOISE, size=st.integers(1, 200), is_reset=st.booleans())
def test_any_bytes_end_a_session_once(pieces: list[bytes], size: int, is_reset: bool):
    """Frames of every kind and order, cut anywhere, then a close or a reset: one ending, and
    nothing is left open."""
    session = FakeSession(max_message_bytes=MAX_MESSAGE_BYTES)
    data = b"".join(pieces)
    for start in range(0, len(data), size):
        if not session.stream.is_closed:
            session.stream.deliver(data[start : start + size])
    if not session.stream.is_closed:
        if is_reset:
            session.stream.error(OSError(errno.ECONNRESET, ""))
        else:
            session.stream.eof()

    assert session.heard.failure is not None
    assert session.stream.is_closed
    assert set() == session.running


@pytest.mark.parametrize("opcode", [Opcode.TEXT, Opcode.BINARY])
def test_a_message_that_never_ends_is_not_hoarded(opcode: Opcode):
    """Fragment after fragment: over the limit of a message it is a protocol error."""
    session = FakeSession(max_message_bytes=MAX_MESSAGE_BYTES)
    session.stream.deliver(_frame(opcode, bytes(100), False))
    for _ in range(20):
        if not session.stream.is_closed:
            session.stream.deliver(_frame(Opcode.CONT, bytes(100), False))

    assert session.heard.failure is not None
    assert "protocol_error" == session.heard.failure.outcome.value
    assert [] == session.heard.events[1:]


@pytest.mark.parametrize("prompt", PROMPTS, ids=[prompt.id for prompt in PROMPTS])
def test_a_hostile_text_reaches_an_http_server_intact(prompt):
    """Every character, in order, whatever it means to terminals, JSON or people."""
    with ScriptedServer(chunked([bytes(480)], x_sample_rate=24_000)) as server:
        adapter = registry.create("earwitness-piper", base_url=server.base_url)
        result = say(adapter, text=prompt.text)
        [request] = server.requests

    assert prompt.text == request.json["input"]
    assert "ok" == result.record.transport_outcome.value


@pytest.mark.parametrize("prompt", PROMPTS, ids=[prompt.id for prompt in PROMPTS])
def test_a_hostile_text_reaches_a_websocket_server_intact(prompt):
    """As one message of text."""
    said: list[str] = []

    def converse(peer: Peer) -> None:
        peer.accept()
        for frame in peer.messages():
            if frame.opcode is Opcode.TEXT:
                said.append(bytes(frame.data).decode())
                peer.binary(bytes(480))
                peer.text("done")

    with WsServer(converse) as server:
        result = say(WsAdapter(server.url), text=prompt.text)

    assert [prompt.text] == said
    assert "ok" == result.record.transport_outcome.value
