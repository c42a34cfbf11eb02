"""Whether everything that a read returned came in one segment.

A kernel stamp belongs to the last segment of what was queued. Where there was one segment only,
it belongs to all of it: to a chunk as well as to the end of the body behind it. The kernel counts
data segments and bytes (TCP_INFO). As every read that empties the queue takes at least one segment,
as many segments as reads since a moment at which both were known means one segment each.
"""

from __future__ import annotations

import socket
import struct

__all__ = ["SegmentCounter"]

# <linux/tcp.h>, struct tcp_info: tcpi_bytes_received and tcpi_data_segs_in (since Linux 4.6).
_BYTES_RECEIVED = struct.Struct("@128xQ")
_DATA_SEGMENTS = struct.Struct("@152xI")
_INFO_BYTES = _DATA_SEGMENTS.size


class SegmentCounter:
    """Counts the reads of one socket and asks the kernel only when the answer matters."""

    __slots__ = ("_answer", "_answered", "_base_reads", "_base_segments", "_is_known",
                 "_num_bytes", "_num_reads", "_sock")  # fmt: skip

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._num_reads = 0
        self._num_bytes = 0
        self._base_reads = 0
        self._base_segments = 0
        self._is_known = True
        self._answered = -1
        self._answer = False

    def note_read(self, num_bytes: int, *, is_drained: bool) -> None:
        """A read returned so many bytes; drained: the queue is empty now."""
        self._num_reads += 1
        self._num_bytes += num_bytes
        if not is_drained:
            self._is_known = False  # a segment may lie across two reads

    def is_single(self) -> bool:
        """Whether the latest read certainly returned one segment. In doubt: False."""
        if self._answered != self._num_reads:
            self._answered = self._num_reads
            self._answer = self._ask()
        return self._answer

    def _ask(self) -> bool:
        num_segments = self._num_segments()
        if num_segments is None:
            return False
        num_new = num_segments - self._base_segments
        if self._is_known and num_new == self._num_reads - self._base_reads:
            return True
        # Asked twice: a segment is counted a moment before its bytes are, and a base that counts
        # one too many would hide a merger later.
        if self._num_segments() == num_segments:
            self._base_segments, self._base_reads = num_segments, self._num_reads
            self._is_known = True
        return False

    def _num_segments(self) -> int | None:
        """Data segments so far; None unless their bytes are exactly those that were read."""
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        except (OSError, AttributeError):
            return None  # closed meanwhile, or another system
        if len(info) < _INFO_BYTES or _BYTES_RECEIVED.unpack_from(info)[0] != self._num_bytes:
            return None
        num_segments: int = _DATA_SEGMENTS.unpack_from(info)[0]
        return num_segments
