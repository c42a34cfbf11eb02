"""Samples from uncompressed bytes: integer, float and G.711 layouts, split anywhere.

Every layout ends as float32 in [-1, 1) (float payloads keep whatever they carry, NaN included).
Integers up to 24 bits are exact in float32, so decoding loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from analysis.stream import DurationBasis, StreamFacts
from engines.base import Buffer, SampleFormat

__all__ = ["FloatArray", "PcmEncoding", "PcmLayout", "PcmStream", "SampleSink", "decode_pcm"]

FloatArray = NDArray[np.float32]


class PcmEncoding(StrEnum):
    """How one sample of one channel is written. Multi-byte ones are little-endian."""

    U8 = "u8"
    S16 = "s16"
    S24 = "s24"
    S32 = "s32"
    F32 = "f32"
    F64 = "f64"
    MULAW = "mulaw"
    ALAW = "alaw"


_BYTES = {
    PcmEncoding.U8: 1,
    PcmEncoding.S16: 2,
    PcmEncoding.S24: 3,
    PcmEncoding.S32: 4,
    PcmEncoding.F32: 4,
    PcmEncoding.F64: 8,
    PcmEncoding.MULAW: 1,
    PcmEncoding.ALAW: 1,
}

_OF_SAMPLE_FORMAT = {
    SampleFormat.S16LE: PcmEncoding.S16,
    SampleFormat.S24LE: PcmEncoding.S24,
    SampleFormat.F32LE: PcmEncoding.F32,
    SampleFormat.MULAW: PcmEncoding.MULAW,
    SampleFormat.ALAW: PcmEncoding.ALAW,
}


@dataclass(frozen=True, slots=True)
class PcmLayout:
    """Everything needed to read raw bytes. A PCM frame is one sample of every channel."""

    encoding: PcmEncoding
    channels: int
    sample_rate_hz: int

    @property
    def bytes_per_frame(self) -> int:
        return _BYTES[self.encoding] * self.channels

    @staticmethod
    def encoding_of(sample_format: SampleFormat) -> PcmEncoding | None:
        """The encoding of a raw sample format; None for a container or a codec."""
        return _OF_SAMPLE_FORMAT.get(sample_format)


class SampleSink:
    """Collects decoded PCM frames and counts how many each chunk completed.

    `retract` takes back frames that turned out to be a header, also from the counts of earlier
    chunks, so that counts and samples always agree.
    """

    __slots__ = ("_pieces", "_totals", "num_frames")

    def __init__(self) -> None:
        self._pieces: list[FloatArray] = []
        self._totals: list[int] = []
        self.num_frames = 0

    def append(self, frames: FloatArray) -> None:
        """Add `frames` ([n, channels])."""
        if len(frames):
            self._pieces.append(frames)
            self.num_frames += len(frames)

    def retract(self, num_frames: int) -> None:
        """Forget the last `num_frames` PCM frames."""
        self.num_frames -= num_frames
        assert self.num_frames >= 0
        while num_frames:
            last = self._pieces.pop()
            if len(last) > num_frames:
                self._pieces.append(last[:-num_frames])
                break
            num_frames -= len(last)
        for i in range(len(self._totals) - 1, -1, -1):
            if self._totals[i] <= self.num_frames:
                break
            self._totals[i] = self.num_frames

    def end_chunk(self) -> None:
        """All of one chunk has been decoded."""
        self._totals.append(self.num_frames)

    def extend_last_chunk(self) -> None:
        """Frames that only the end of the stream released belong to its last chunk."""
        if self._totals:
            self._totals[-1] = self.num_frames

    def frames_per_chunk(self) -> tuple[int, ...]:
        """PCM frames completed by each chunk, in order."""
        return tuple(int(n) for n in np.diff(np.array([0, *self._totals], dtype=np.int64)))

    def frames(self, channels: int) -> FloatArray:
        """All frames, [n, channels]."""
        if not self._pieces:
            return np.zeros((0, channels), dtype=np.float32)
        if len(self._pieces) > 1:
            self._pieces = [np.concatenate(self._pieces)]
        return self._pieces[0]


class PcmStream:
    """Raw PCM fed in pieces of any size: keeps the bytes of an unfinished PCM frame."""

    __slots__ = ("_carry", "layout", "sink")

    def __init__(self, layout: PcmLayout, sink: SampleSink) -> None:
        self.layout = layout
        self.sink = sink
        self._carry = b""

    def push(self, data: Buffer) -> None:
        """Decode every PCM frame that `data` completes."""
        whole = b"".join((self._carry, data)) if self._carry else bytes(data)
        usable = len(whole) - len(whole) % self.layout.bytes_per_frame
        self._carry = whole[usable:]
        if usable:
            self.sink.append(decode_pcm(whole[:usable], self.layout))

    def finish(self) -> None:
        """Nothing to settle: an unfinished PCM frame stays dangling."""

    def facts(self) -> StreamFacts:
        """See `analysis.stream.SampleStream.facts`."""
        return StreamFacts(
            sample_rate_hz=self.layout.sample_rate_hz,
            channels=self.layout.channels,
            encoding=self.layout.encoding.value,
            dangling_bytes=len(self._carry),
            notes=(),
            basis=DurationBasis.EXACT,
        )

    def drop_carry(self) -> int:
        """Give up an unfinished PCM frame; how many bytes it had."""
        dropped = len(self._carry)
        self._carry = b""
        return dropped


def decode_pcm(data: Buffer, layout: PcmLayout) -> FloatArray:
    """Whole PCM frames as float32, [n, channels]. `data` holds a whole number of frames."""
    flat = _to_float(data, layout.encoding)
    return flat.reshape(-1, layout.channels)


def _to_float(data: Buffer, encoding: PcmEncoding) -> FloatArray:
    if encoding is PcmEncoding.S16:
        return np.frombuffer(data, dtype="<i2").astype(np.float32) / np.float32(1 << 15)
    if encoding is PcmEncoding.F32:
        return np.frombuffer(data, dtype="<f4").astype(np.float32)
    if encoding is PcmEncoding.S24:
        return _from_s24(data)
    if encoding is PcmEncoding.S32:
        return (np.frombuffer(data, dtype="<i4") / float(1 << 31)).astype(np.float32)
    if encoding is PcmEncoding.F64:
        return np.frombuffer(data, dtype="<f8").astype(np.float32)
    codes = np.frombuffer(data, dtype=np.uint8)
    if encoding is PcmEncoding.U8:
        return (codes.astype(np.float32) - np.float32(128)) / np.float32(128)
    return (_MULAW if encoding is PcmEncoding.MULAW else _ALAW)[codes]


def _from_s24(data: Buffer) -> FloatArray:
    octets = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
    wide = np.zeros((len(octets), 4), dtype=np.uint8)
    # In the upper three bytes, so that the sign is that of the 32-bit word.
    wide[:, 1:] = octets
    return (wide.view("<i4")[:, 0] / float(1 << 31)).astype(np.float32)


def _mulaw_table() -> FloatArray:
    """G.711 mu-law: byte to sample; 14-bit values on the 16-bit scale."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = ((((code & 0x0F) << 3) + 0x84) << ((code >> 4) & 7)) - 0x84
    table: FloatArray = (np.where(code & 0x80, -magnitude, magnitude) / float(1 << 15)).astype(
        np.float32
    )
    table.flags.writeable = False
    return table


def _alaw_table() -> FloatArray:
    """G.711 A-law: byte to sample; 13-bit values on the 16-bit scale."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent = (code >> 4) & 7
    step = (code & 0x0F) << 4
    magnitude = np.where(exponent == 0, step + 8, (step + 0x108) << np.maximum(exponent - 1, 0))
    table: FloatArray = (np.where(code & 0x80, magnitude, -magnitude) / float(1 << 15)).astype(
        np.float32
    )
    table.flags.writeable = False
    return table


_MULAW = _mulaw_table()
_ALAW = _alaw_table()
