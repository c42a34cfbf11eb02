"""Whether a read ended where a unit of the protocol ends: only then is its stamp that unit's own.

Both follow lengths and look at nothing else; what the bytes mean is for the libraries that read
them.
"""

from __future__ import annotations

__all__ = ["FrameBoundary", "RecordBoundary"]

_RECORD_HEADER_BYTES = 5
_FRAME_HEADER_BYTES = 2
_MASK_BYTES = 4
_EXTRA_LENGTH_BYTES = {126: 2, 127: 8}
_HEAD_END = b"\r\n\r\n"


class _Units:
    """Follows units that each begin with a header which tells how much comes after it."""

    __slots__ = ("_header", "_left")

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def _header_length(self, header: bytes) -> int:
        """How long a header is, as far as its first bytes tell."""
        raise NotImplementedError

    def _rest_length(self, header: bytes) -> int:
        """What comes after a whole header."""
        raise NotImplementedError

    def feed(self, data: bytes) -> bool:
        """Whether the stream so far ends with a whole unit."""
        position, end = 0, len(data)
        while position < end:
            if self._left:
                step = min(self._left, end - position)
                self._left -= step
                position += step
                continue
            missing = self._header_length(self._header) - len(self._header)
            self._header += data[position : position + missing]
            position += missing
            if len(self._header) == self._header_length(self._header):
                self._left = self._rest_length(self._header)
                self._header = b""
        return not self._left and not self._header


class RecordBoundary(_Units):
    """Follows the records of a TLS stream."""

    __slots__ = ()

    def _header_length(self, header: bytes) -> int:
        del header  # all are of one length
        return _RECORD_HEADER_BYTES

    def _rest_length(self, header: bytes) -> int:
        return int.from_bytes(header[3:], "big")


class FrameBoundary(_Units):
    """Follows the answer to a WebSocket handshake, and the frames behind it."""

    __slots__ = ("_is_open", "_tail")

    def __init__(self) -> None:
        super().__init__()
        self._is_open = False
        self._tail = b""

    def feed(self, data: bytes) -> bool:
        """Whether the stream so far ends with the whole answer, or with a whole frame."""
        if not self._is_open:
            head, end, data = (self._tail + data).partition(_HEAD_END)
            self._is_open = bool(end)
            self._tail = head[1 - len(_HEAD_END) :]
        return super().feed(data) and self._is_open

    def _header_length(self, header: bytes) -> int:
        if len(header) < _FRAME_HEADER_BYTES:
            return _FRAME_HEADER_BYTES
        mask = _MASK_BYTES if header[1] & 0x80 else 0
        return _FRAME_HEADER_BYTES + _EXTRA_LENGTH_BYTES.get(header[1] & 0x7F, 0) + mask

    def _rest_length(self, header: bytes) -> int:
        short = header[1] & 0x7F
        width = _EXTRA_LENGTH_BYTES.get(short, 0)
        if not width:
            return short
        return int.from_bytes(header[_FRAME_HEADER_BYTES : _FRAME_HEADER_BYTES + width], "big")
