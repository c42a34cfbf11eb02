"""What the first bytes of audio say about it: known beginnings, and the size a WAV declares."""

from __future__ import annotations

import struct

from engines.base import Buffer, SampleFormat

__all__ = ["NUM_SNIFF_BYTES", "WavLength", "sniff_format"]

# Enough for `RIFF....WAVE`, the longest beginning looked for.
NUM_SNIFF_BYTES = 12

# A header that goes on for longer than this is not waited for; the declared size stays unknown.
_MAX_WAV_HEADER_BYTES = 64 * 1024
_OPEN_SIZES = (0, 0xFFFFFFFF)


def sniff_format(head: bytes) -> SampleFormat | None:
    """The container that `head` (at least `NUM_SNIFF_BYTES`, or the whole body) begins.

    None: no container known here, so perhaps headerless samples.
    """
    if head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE":
        return SampleFormat.WAV
    if head[:4] == b"fLaC":
        return SampleFormat.FLAC
    if head[:4] == b"OggS":
        return SampleFormat.OGG_OPUS
    if head[:3] == b"ID3":
        return SampleFormat.MP3
    if len(head) >= 2 and head[0] == 0xFF:
        # An MPEG sync word: layer bits 00 are ADTS, 01 (with a legal version) is layer III.
        if head[1] & 0xF6 == 0xF0:
            return SampleFormat.AAC
        if head[1] & 0xE6 == 0xE2:
            return SampleFormat.MP3
    return None


class WavLength:
    """Finds how many bytes a WAV says it has, while it arrives.

    Feed every body byte; `num_expected_bytes` stays None until the `data` chunk is seen, and for
    ever where its size is one of the two that mean "unknown".
    """

    __slots__ = ("_head", "_is_searching", "_offset", "num_bytes", "num_expected_bytes")

    def __init__(self) -> None:
        self.num_bytes = 0
        self.num_expected_bytes: int | None = None
        self._head = bytearray()
        self._is_searching = True
        self._offset = 12  # past `RIFF....WAVE`

    def push(self, data: Buffer) -> None:
        """Take the next bytes of the body."""
        self.num_bytes += len(data)
        if not self._is_searching:
            return
        self._head += data
        self._search()
        if not self._is_searching or len(self._head) > _MAX_WAV_HEADER_BYTES:
            self._is_searching = False
            self._head.clear()

    @property
    def is_complete(self) -> bool | None:
        """Whether all declared bytes came; None where the file does not say how many there are."""
        if self.num_expected_bytes is None:
            return None
        return self.num_bytes >= self.num_expected_bytes

    def _search(self) -> None:
        while self._offset + 8 <= len(self._head):
            (size,) = struct.unpack_from("<I", self._head, self._offset + 4)
            if self._head[self._offset : self._offset + 4] == b"data":
                self._is_searching = False
                if size not in _OPEN_SIZES:
                    self.num_expected_bytes = self._offset + 8 + size
                return
            self._offset += 8 + size + size % 2
