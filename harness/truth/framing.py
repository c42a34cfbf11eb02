"""How a reply looks on the wire, for each transport: bytes written by hand, on purpose.

Nothing here is shared with the client's parsers, so that a mistake in one cannot hide in the other.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from typing import Protocol

import orjson

__all__ = ["ChunkedFraming", "Framed", "Framing", "ReplyHead", "SseFraming", "wav_header"]

# Asks proxies not to hold chunks back.
_NO_BUFFERING = "X-Accel-Buffering: no"


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """What a reply says of itself before any audio."""

    request: int
    status: int
    content_type: str
    sample_rate_hz: int


@dataclass(frozen=True, slots=True)
class Framed:
    """One part as written. `first`: where its body begins.

    `ready` is None where the body is payload byte by byte; else it is the byte that completes a
    message, of which no payload can be used before.
    """

    data: bytes
    first: int = 0
    ready: int | None = None


class Framing(Protocol):
    """One transport."""

    name: str

    def head(self, head: ReplyHead) -> bytes:
        """Status and headers, or the words before the first audio."""
        ...

    def payload(self, data: bytes) -> Framed:
        """One chunk of payload."""
        ...

    def end(self) -> bytes:
        """The proper end."""
        ...


class ChunkedFraming:
    """HTTP/1.1, one transfer chunk for each chunk of audio."""

    name = "http"

    def head(self, head: ReplyHead) -> bytes:
        """Status line and headers; a refusal brings its body along."""
        if head.status != 200:
            return _refused(head)
        return _lines(
            "HTTP/1.1 200 OK",
            f"Content-Type: {head.content_type}",
            "Transfer-Encoding: chunked",
            _NO_BUFFERING,
            f"X-Sample-Rate: {head.sample_rate_hz}",
            f"X-Truth-Request: {head.request}",
        )

    def payload(self, data: bytes) -> Framed:
        """Length line, data, line end."""
        top = b"%x\r\n" % len(data)
        return Framed(top + data + b"\r\n", len(top))

    def end(self) -> bytes:
        """The chunk of length zero."""
        return b"0\r\n\r\n"


class SseFraming:
    """Server-sent events with base64 audio, one event and one transfer chunk each."""

    name = "sse"

    def head(self, head: ReplyHead) -> bytes:
        """As HTTP, for a stream of events."""
        if head.status != 200:
            return _refused(head)
        return _lines(
            "HTTP/1.1 200 OK",
            "Content-Type: text/event-stream",
            "Transfer-Encoding: chunked",
            "Cache-Control: no-store",
            _NO_BUFFERING,
            f"X-Sample-Rate: {head.sample_rate_hz}",
            f"X-Truth-Request: {head.request}",
        )

    def payload(self, data: bytes) -> Framed:
        """One event; nothing of it can be used before its empty line."""
        event = b'data: {"audio":"' + base64.b64encode(data) + b'"}\n\n'
        top = b"%x\r\n" % len(event)
        return Framed(top + event + b"\r\n", len(top), ready=len(top) + len(event) - 1)

    def end(self) -> bytes:
        """The last event and the chunk of length zero."""
        return _transfer_chunk(b'data: {"done":true}\n\n') + b"0\r\n\r\n"


def wav_header(sample_rate_hz: int) -> bytes:
    """44 bytes before 16-bit mono samples of a length that is not known yet."""
    unknown = 0xFFFFFFFF
    shape = struct.pack("<HHIIHH", 1, 1, sample_rate_hz, 2 * sample_rate_hz, 2, 16)
    sizes = (struct.pack("<I", unknown), struct.pack("<I", 16), struct.pack("<I", unknown))
    return b"RIFF" + sizes[0] + b"WAVEfmt " + sizes[1] + shape + b"data" + sizes[2]


def _refused(head: ReplyHead) -> bytes:
    body = orjson.dumps({"error": {"message": f"scripted refusal, status {head.status}"}})
    return (
        _lines(
            f"HTTP/1.1 {head.status} Scripted",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"X-Truth-Request: {head.request}",
        )
        + body
    )


def _transfer_chunk(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"


def _lines(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
