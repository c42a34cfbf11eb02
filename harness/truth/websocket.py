"""The truth server's WebSocket: frames by hand, and the words of Deepgram's protocol.

A text (`Speak`) names a script, `Flush` asks for it; audio comes as binary messages and `Flushed`
is the end. An existing protocol, so that the client's ordinary adapter is what is measured.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import orjson

from harness.truth.framing import Framed, ReplyHead

__all__ = [
    "CloseAsked",
    "FrameError",
    "TextMessage",
    "WebSocketFraming",
    "accept",
    "error_message",
    "take_frame",
]

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_FIN, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x80, 1, 2, 8, 9, 10
_MAX_FRAME_BYTES = 1 << 20


class FrameError(ValueError):
    """Bytes that are no frame a client of this server sends."""


@dataclass(frozen=True, slots=True)
class TextMessage:
    """One JSON message of the client."""

    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CloseAsked:
    """The client wants to close; `answer` is the frame to close with."""

    answer: bytes


class WebSocketFraming:
    """Binary messages with audio. There is no head: the session was accepted before."""

    name = "ws"

    def head(self, _head: ReplyHead) -> bytes:
        """Nothing."""
        return b""

    def payload(self, data: bytes) -> Framed:
        """One binary message; the client hears of it when it is whole."""
        frame = _frame(_BINARY, data)
        last = len(frame) - 1
        return Framed(frame, first=last, ready=last)

    def end(self) -> bytes:
        """The message that ends the audio."""
        return _frame(_TEXT, b'{"type":"Flushed"}')


def accept(key: str) -> bytes:
    """The response to an upgrade with this Sec-WebSocket-Key."""
    digest = base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()
    lines = (
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {digest}",
    )
    return "\r\n".join([*lines, "", ""]).encode()


def error_message(text: str) -> bytes:
    """A message that says what was wrong."""
    return _frame(_TEXT, orjson.dumps({"type": "Error", "description": text}))


def take_frame(inbox: bytearray) -> TextMessage | CloseAsked | bytes | None:
    """The next frame, removed from `inbox`; None until it is whole.

    Returns:
        A text message, a wish to close, or bytes to answer at once (a pong).

    Raises:
        FrameError: an unmasked or fragmented frame, a binary one, or no JSON object.
    """
    parsed = _parse(inbox)
    if parsed is None:
        return None
    opcode, data = parsed
    if opcode == _TEXT:
        return TextMessage(_json_object(data))
    if opcode == _CLOSE:
        return CloseAsked(_frame(_CLOSE, data[:2]))
    if opcode == _PING:
        return _frame(_PONG, data)
    if opcode == _PONG:
        return b""
    raise FrameError(f"opcode {opcode} is not one this server reads")


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError:
        content = None
    if not isinstance(content, dict):
        raise FrameError("a text message is no JSON object")
    return content


def _parse(inbox: bytearray) -> tuple[int, bytes] | None:
    if len(inbox) < 2:
        return None
    first, second = inbox[0], inbox[1]
    if not first & _FIN or not second & 0x80:
        raise FrameError("frames of a client are whole and masked")
    size, at = second & 0x7F, 2
    if size >= 126:
        width = 2 if size == 126 else 8
        if len(inbox) < at + width:
            return None
        size, at = int.from_bytes(inbox[at : at + width], "big"), at + width
    if size > _MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {size} bytes is too long")
    end = at + 4 + size
    if len(inbox) < end:
        return None
    mask, masked = inbox[at : at + 4], inbox[at + 4 : end]
    data = bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked))
    del inbox[:end]
    return first & 0x0F, data


def _frame(opcode: int, data: bytes) -> bytes:
    """One unmasked frame, as servers send them."""
    size = len(data)
    if size < 126:
        head = struct.pack(">BB", _FIN | opcode, size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", _FIN | opcode, 126, size)
    else:
        head = struct.pack(">BBQ", _FIN | opcode, 127, size)
    return head + data
