"""Whether a read ended where a unit of the protocol ends: only then is its stamp that unit's own.

Both follow lengths and look at nothing else; what the bytes mean is for the libraries that read
them.
"""

from __future__ import annotations

__all__ = ["FrameBoundary", "RecordBoundary"]

_RECORD_HEADER_BYTES = 5
_FRAME_HEADER_BYTES = 2
_MASK_BYTES = 4
_HEAD_END = b"\r\n\r\n"


class RecordBoundary:
    """Follows the records of a TLS stream."""

    __slots__ = ("_header", "_left")

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def feed(self, data: bytes) -> bool:
        """Whether the stream so far ends with a whole record."""
        position, end = 0, len(data)
        while position < end:
            if self._left:
                step = min(self._left, end - position)
                self._left -= step
                position += step
                continue
            missing = _RECORD_HEADER_BYTES - len(self._header)
            self._header += data[position : position + missing]
            position += missing
            if len(self._header) == _RECORD_HEADER_BYTES:
                self._left = int.from_bytes(self._header[3:], "big")
                self._header = b""
        return not self._left and not self._header


class FrameBoundary:
    """Follows the answer to a WebSocket handshake, and the frames behind it."""

    __slots__ = ("_header", "_is_open", "_left", "_tail")

    def __init__(self) -> None:
        self._is_open = False
        self._tail = b""
        self._header = b""
        self._left = 0

    def feed(self, data: bytes) -> bool:
        """Whether the stream so far ends with the whole answer, or with a whole frame."""
        if not self._is_open:
            head, end, data = (self._tail + data).partition(_HEAD_END)
            self._is_open = bool(end)
            self._tail = head[1 - len(_HEAD_END) :]
        position, end_at = 0, len(data)
        while position < end_at:
            if self._left:
                step = min(self._left, end_at - position)
                self._left -= step
                position += step
                continue
            missing = _header_length(self._header) - len(self._header)
            self._header += data[position : position + missing]
            position += missing
            if len(self._header) == _header_length(self._header):
                self._left = _payload_length(self._header)
                self._header = b""
        return self._is_open and not self._left and not self._header


def _header_length(header: bytes) -> int:
    """How long a frame's header is, as far as its first bytes tell."""
    if len(header) < _FRAME_HEADER_BYTES:
        return _FRAME_HEADER_BYTES
    mask = _MASK_BYTES if header[1] & 0x80 else 0
    return _FRAME_HEADER_BYTES + {126: 2, 127: 8}.get(header[1] & 0x7F, 0) + mask


def _payload_length(header: bytes) -> int:
    short = header[1] & 0x7F
    width = {126: 2, 127: 8}.get(short, 0)
    if not width:
        return short
    return int.from_bytes(header[_FRAME_HEADER_BYTES : _FRAME_HEADER_BYTES + width], "big")
