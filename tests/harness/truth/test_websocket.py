"""Frames as RFC 6455 writes them, against the library that the client uses."""

from __future__ import annotations

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.uri import parse_uri

from harness.truth.protocol import Answer, Ask, Protocol
from harness.truth.websocket import FrameError, WebSocketFraming, take_frame


def client() -> tuple[ClientProtocol, bytes]:
    """A client that has asked for the upgrade, and what it asked."""
    protocol = ClientProtocol(parse_uri("ws://127.0.0.1/v1/speak"))
    protocol.send_request(protocol.connect())
    return protocol, b"".join(protocol.data_to_send())


@pytest.fixture
def session() -> tuple[ClientProtocol, Protocol]:
    """Both sides of an accepted session."""
    theirs, asked = client()
    ours = Protocol({"tone"})
    answer = ours.take(bytearray(asked))
    assert isinstance(answer, Answer)
    theirs.receive_data(answer.data)
    theirs.events_received()
    return theirs, ours


def sent(protocol: ClientProtocol) -> bytearray:
    return bytearray(b"".join(protocol.data_to_send()))


def test_speak_and_flush_ask_for_a_script(session):
    """The text is its name; nothing is asked before the flush."""
    theirs, ours = session
    theirs.send_text(b'{"type":"Speak","text":"to"}')
    theirs.send_text(b'{"type":"Speak","text":"ne"}')
    theirs.send_text(b'{"type":"Flush"}')
    inbox = sent(theirs)
    taken = [ours.take(inbox) for _ in range(4)]

    assert [Answer(b""), Answer(b"")] == taken[:2]
    assert isinstance(taken[2], Ask)
    assert "tone" == taken[2].script
    assert taken[3] is None


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536])
def test_audio_is_one_binary_message_of_any_length(session, size: int):
    """And it is whole with its last byte."""
    theirs, _ = session
    framed = WebSocketFraming().payload(b"x" * size)
    theirs.receive_data(framed.data[:-1])
    assert [] == theirs.events_received()
    theirs.receive_data(framed.data[-1:])
    [frame] = theirs.events_received()

    assert (Opcode.BINARY, size) == (frame.opcode, len(frame.data))
    assert framed.ready == len(framed.data) - 1


def test_ping_is_answered_and_close_is_closed(session):
    """As every server must."""
    theirs, ours = session
    theirs.send_ping(b"hello")
    pong = ours.take(sent(theirs))
    assert isinstance(pong, Answer)
    theirs.receive_data(pong.data)
    assert Opcode.PONG is theirs.events_received()[0].opcode

    theirs.send_close(1000)
    closed = ours.take(sent(theirs))
    assert isinstance(closed, Answer)
    assert closed.is_last
    theirs.receive_data(closed.data)
    assert Opcode.CLOSE is theirs.events_received()[0].opcode


def test_unknown_script_is_an_error_message(session):
    """With the way to find the known ones."""
    theirs, ours = session
    theirs.send_text(b'{"type":"Speak","text":"other"}')
    theirs.send_text(b'{"type":"Flush"}')
    inbox = sent(theirs)
    ours.take(inbox)
    answer = ours.take(inbox)

    assert isinstance(answer, Answer)
    assert b"no script 'other'" in answer.data


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"\x81\x02hi", "whole and masked"),
        (b"\x01\x80\0\0\0\0", "whole and masked"),
        (b"\x82\x80\0\0\0\0", "opcode 2"),
        (b"\x81\x82\0\0\0\0hi", "no JSON object"),
        (b"\x81\xff" + (1 << 40).to_bytes(8, "big"), "too long"),
    ],
)
def test_frame_that_no_client_sends_is_refused(frame: bytes, said: str):
    """With its reason."""
    with pytest.raises(FrameError, match=said):
        take_frame(bytearray(frame))


def test_frame_in_pieces_waits_until_it_is_whole(session):
    """Nothing is taken before."""
    theirs, ours = session
    theirs.send_text(b'{"type":"Speak","text":"tone"}')
    whole = sent(theirs)

    for length in range(len(whole)):
        assert ours.take(bytearray(whole[:length])) is None
    assert Answer(b"") == ours.take(whole)
