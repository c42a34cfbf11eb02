"""Ogg pages and the packets in them, found in bytes that come in pieces of any size.

Source: RFC 3533.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from analysis.errors import AudioDecodeError
from engines.base import Buffer

__all__ = ["OggPage", "OggScanner", "PacketJoiner", "PageFlag"]

_HEADER_BYTES = 27
_CAPTURE = b"OggS\x00"
_NO_POSITION = (1 << 64) - 1
# Longer than any packet of the codecs read here; a packet may run over pages without end.
_MAX_PACKET_BYTES = 512 * 1024


class PageFlag(IntFlag):
    """Bits of a page's header type."""

    CONTINUED = 1
    FIRST = 2
    LAST = 4


@dataclass(frozen=True, slots=True)
class OggPage:
    """One page. position: the granule position; None where no packet ends in the page."""

    flags: PageFlag
    position: int | None
    serial: int
    lacing: bytes
    body: bytes


class OggScanner:
    """Splits a byte stream into pages; what lies between pages is counted, not read."""

    __slots__ = ("_pending", "first_foreign", "num_foreign")

    def __init__(self) -> None:
        self._pending = bytearray()
        self.num_foreign = 0
        self.first_foreign = b""

    @property
    def num_pending(self) -> int:
        """Bytes of a page that is not complete yet."""
        return len(self._pending)

    def push(self, data: Buffer) -> list[OggPage]:
        """The pages that `data` completes."""
        self._pending += data
        pages: list[OggPage] = []
        while (page := self._next_page()) is not None:
            pages.append(page)
        return pages

    def _next_page(self) -> OggPage | None:
        pending = self._pending
        if not pending.startswith(_CAPTURE):
            self._drop_foreign()
            if not pending.startswith(_CAPTURE):
                return None
        if len(pending) < _HEADER_BYTES or len(pending) < _HEADER_BYTES + pending[26]:
            return None
        body_at = _HEADER_BYTES + pending[26]
        lacing = bytes(pending[_HEADER_BYTES:body_at])
        end = body_at + sum(lacing)
        if len(pending) < end:
            return None
        position = int.from_bytes(pending[6:14], "little")
        page = OggPage(
            flags=PageFlag(pending[5] & 7),
            position=None if position == _NO_POSITION else position,
            serial=int.from_bytes(pending[14:18], "little"),
            lacing=lacing,
            body=bytes(pending[body_at:end]),
        )
        del pending[:end]
        return page

    def _drop_foreign(self) -> None:
        """Drop bytes up to the next page's mark, or to where one may begin."""
        pending = self._pending
        at = pending.find(_CAPTURE)
        if at < 0:
            longest = min(len(_CAPTURE) - 1, len(pending))
            kept = next(n for n in range(longest, -1, -1) if pending.endswith(_CAPTURE[:n]))
            at = len(pending) - kept
        if at and not self.first_foreign:
            self.first_foreign = bytes(pending[:at][:16])
        self.num_foreign += at
        del pending[:at]


class PacketJoiner:
    """Joins the segments of one logical stream's pages into packets."""

    __slots__ = ("_is_broken", "_part")

    def __init__(self) -> None:
        self._part = bytearray()
        self._is_broken = False

    def push(self, page: OggPage) -> list[bytes]:
        """The packets that end in this page.

        Raises:
            AudioDecodeError: a packet longer than any real one.
        """
        if not page.flags & PageFlag.CONTINUED:
            self._part.clear()  # the rest of an unfinished packet never came
            self._is_broken = False
        elif not self._part:
            self._is_broken = True  # the first part was in a page that was lost
        packets: list[bytes] = []
        at = 0
        for size in page.lacing:
            self._part += page.body[at : at + size]
            at += size
            if len(self._part) > _MAX_PACKET_BYTES:
                raise AudioDecodeError(
                    f"Ogg: a packet of more than {_MAX_PACKET_BYTES} bytes; the stream is damaged"
                )
            if size < 255:
                if not self._is_broken:
                    packets.append(bytes(self._part))
                self._is_broken = False
                self._part.clear()
        return packets
