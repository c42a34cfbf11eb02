"""Find self-describing frames (MP3, ADTS) in bytes that come in pieces of any size.

Each step depends on the bytes alone, never on how they were cut, so any split gives the same
frames. At a place where a frame is expected its header is believed; among foreign bytes only one
that is followed by a second of its kind is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engines.base import Buffer

__all__ = ["FrameHeader", "FrameScanner"]

_ID3_HEADER_BYTES = 10
_ID3_HAS_FOOTER = 0x10
_ID3V1_BYTES = 128


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """num_bytes: of the whole frame. kind: what neighbours of one stream have in common."""

    num_bytes: int
    kind: tuple[int, ...]


# Reads the first `header_bytes` of a frame; None: this is no header.
HeaderParser = Callable[[bytes], FrameHeader | None]


class FrameScanner:
    """Splits a byte stream into frames; tags (ID3) are skipped, foreign bytes counted."""

    __slots__ = (
        "_header_bytes",
        "_is_lost",
        "_parse",
        "_pending",
        "_skip",
        "first_foreign",
        "num_foreign",
    )

    def __init__(self, parse: HeaderParser, *, header_bytes: int) -> None:
        self._parse = parse
        self._header_bytes = header_bytes
        self._pending = bytearray()
        self._skip = 0
        self._is_lost = False
        self.num_foreign = 0
        self.first_foreign = b""

    @property
    def num_pending(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._pending)

    def push(self, data: Buffer) -> list[bytes]:
        """The frames that `data` completes."""
        self._pending += data
        frames: list[bytes] = []
        while self._step(frames):
            pass
        return frames

    def finish(self) -> None:
        """No more bytes: what is left among foreign ones is foreign too."""
        if self._is_lost:
            self._drop_foreign(len(self._pending))

    def _step(self, frames: list[bytes]) -> bool:
        """One step; False when it needs more bytes."""
        if self._skip:
            skipped = min(self._skip, len(self._pending))
            del self._pending[:skipped]
            self._skip -= skipped
            return not self._skip
        if self._is_lost:
            return self._search()
        start = bytes(self._pending[:3])
        if start and any(tag.startswith(start) for tag in (b"ID3", b"TAG")):
            return self._skip_tag(start)
        if len(self._pending) < self._header_bytes:
            return False
        header = self._header_at(0)
        if header is None:
            self._is_lost = True
            return True
        if len(self._pending) < header.num_bytes:
            return False
        frames.append(bytes(self._pending[: header.num_bytes]))
        del self._pending[: header.num_bytes]
        return True

    def _skip_tag(self, start: bytes) -> bool:
        if start == b"TAG":
            self._skip = _ID3V1_BYTES
            return True
        if len(self._pending) < _ID3_HEADER_BYTES:
            return False
        size = self._pending[6:10]
        if max(size) >= 0x80:  # seven bits a byte, or it is no tag
            self._is_lost = True
            return True
        length = size[0] << 21 | size[1] << 14 | size[2] << 7 | size[3]
        footer = _ID3_HEADER_BYTES if self._pending[5] & _ID3_HAS_FOOTER else 0
        self._skip = _ID3_HEADER_BYTES + length + footer
        return True

    def _header_at(self, place: int) -> FrameHeader | None:
        return self._parse(bytes(self._pending[place : place + self._header_bytes]))

    def _search(self) -> bool:
        """Drop foreign bytes up to a frame that another one of its kind follows, or a tag."""
        pending = self._pending
        if len(pending) < self._header_bytes:
            return False
        if pending.startswith(b"ID3") and self.num_foreign:
            # Only behind at least one dropped byte: what brought us here was no tag.
            if len(pending) < _ID3_HEADER_BYTES:
                return False
            if max(pending[6:10]) < 0x80:
                self._is_lost = False
                return True
        header = self._header_at(0)
        if header is not None:
            if len(pending) < header.num_bytes + self._header_bytes:
                return False
            following = self._header_at(header.num_bytes)
            if following is not None and following.kind == header.kind:
                self._is_lost = False
                return True
        sync_at = pending.find(b"\xff", 1)
        # Looked for no further than the next sync byte: else a flood of them costs its square.
        tag_at = pending.find(b"ID3", 1, sync_at if sync_at > 0 else len(pending))
        # Where nothing was found the last two bytes are kept: a mark may begin in them.
        found = [at for at in (tag_at, sync_at) if at > 0]
        self._drop_foreign(found[0] if found else max(1, len(pending) - 2))
        return True

    def _drop_foreign(self, num_bytes: int) -> None:
        if not self.first_foreign:
            self.first_foreign = bytes(self._pending[:num_bytes][:16])
        self.num_foreign += num_bytes
        del self._pending[:num_bytes]
