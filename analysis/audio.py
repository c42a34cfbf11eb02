"""Payload bytes and their format in, samples out: whole, or chunk by chunk with equal result.

A "sample" here is one PCM frame: one sample of every channel. Text encodings (base64, hex) are
undone per chunk, since every event carries its own encoded piece. Compressed formats are decoded by
`analysis.codecs` (extra `codecs`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pybase64

from analysis.codecs import open_codec
from analysis.errors import AudioDecodeError
from analysis.pcm import FloatArray, PcmLayout, PcmStream, SampleSink
from analysis.stream import DurationBasis, SampleStream
from analysis.wav import WavStream
from engines.base import AudioFormat, Buffer, PayloadEncoding, SampleFormat, WavSize

__all__ = [
    "ChunkedAudio",
    "DecodedAudio",
    "DurationBasis",
    "FloatArray",
    "IncrementalDecoder",
    "decode",
    "decode_chunks",
]

_BASE64_PIECES = re.compile(rb"[^=]+=*")
_WHITE_SPACE = re.compile(rb"\s+")


@dataclass(frozen=True, slots=True)
class DecodedAudio:
    """One clip.

    samples: float32 [n], channels averaged. pcm: float32 [n, channels]. sample_rate_hz and
    channels are None where a container never said. encoding: of uncompressed samples; None for a
    codec. dangling_bytes: bytes of a last PCM frame, or of a codec's, that never became complete.
    notes: what was odd about the bytes, for people.
    """

    samples: FloatArray
    pcm: FloatArray
    sample_rate_hz: int | None
    channels: int | None
    encoding: str | None
    dangling_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float | None:
        """Length in seconds; None where the rate is unknown."""
        return None if self.sample_rate_hz is None else len(self.samples) / self.sample_rate_hz


@dataclass(frozen=True, slots=True)
class ChunkedAudio:
    """A clip and how many of its samples each chunk completed (sum = all of them)."""

    audio: DecodedAudio
    samples_per_chunk: tuple[int, ...]
    basis: DurationBasis


class IncrementalDecoder:
    """Decodes a payload that comes in chunks split anywhere.

    A sample that is split over two chunks belongs to the one that completes it.
    """

    __slots__ = ("_encoding", "_is_finished", "_sink", "_stream")

    def __init__(self, fmt: AudioFormat) -> None:
        """
        Raises:
            UnsupportedAudioError: a compressed format whose decoder is not installed.
            AudioDecodeError: raw samples without a rate or a channel count.
        """
        self._encoding = fmt.encoding
        self._sink = SampleSink()
        self._stream = _open_stream(fmt, self._sink)
        self._is_finished = False

    def push(self, data: Buffer) -> int:
        """Decode one chunk; how many samples it completed.

        Negative only where the chunk shows that the end of the last one was a repeated WAV header.

        Raises:
            AudioDecodeError: the bytes are not what the format says. What was decoded stays.
        """
        assert not self._is_finished
        before = self._sink.num_frames
        try:
            self._stream.push(_without_text_encoding(data, self._encoding))
        finally:
            self._sink.end_chunk()
        return self._sink.num_frames - before

    def finish(self) -> DecodedAudio:
        """All samples; samples released only by the end belong to the last chunk.

        Raises:
            AudioDecodeError: only the end shows that the bytes are not what the format says.
        """
        if not self._is_finished:
            self._is_finished = True
            self._stream.finish()
            self._sink.extend_last_chunk()
        return self._audio()

    @property
    def samples_per_chunk(self) -> tuple[int, ...]:
        """Samples completed by each chunk so far, with later corrections."""
        return self._sink.frames_per_chunk()

    @property
    def basis(self) -> DurationBasis:
        """What `samples_per_chunk` rests on."""
        return self._stream.facts().basis

    def _audio(self) -> DecodedAudio:
        facts = self._stream.facts()
        pcm = self._sink.frames(facts.channels or 1)
        return DecodedAudio(
            samples=_to_mono(pcm),
            pcm=pcm,
            sample_rate_hz=facts.sample_rate_hz,
            channels=facts.channels,
            encoding=facts.encoding,
            dangling_bytes=facts.dangling_bytes,
            notes=facts.notes,
        )


def decode(
    payload: Buffer, fmt: AudioFormat, *, chunk_sizes: Sequence[int] | None = None
) -> DecodedAudio:
    """Decode a whole payload as stored.

    Args:
        payload: the chunks' bytes, one after the other.
        fmt: how they are to be read.
        chunk_sizes: bytes of each chunk. Needed only for base64 without padding, where nothing
            else shows where one encoded piece ends.

    Raises:
        AudioDecodeError: the bytes are not what the format says.
        UnsupportedAudioError: a compressed format whose decoder is not installed.
    """
    sizes = [len(payload)] if chunk_sizes is None else chunk_sizes
    return decode_chunks(payload, sizes, fmt).audio


def decode_chunks(payload: Buffer, chunk_sizes: Sequence[int], fmt: AudioFormat) -> ChunkedAudio:
    """Decode a payload and attribute its samples to its chunks.

    Raises:
        AudioDecodeError: the bytes are not what the format says.
        UnsupportedAudioError: a compressed format whose decoder is not installed.
    """
    decoder = IncrementalDecoder(fmt)
    bytes_per_sample = fmt.sample_format.bytes_per_sample
    if bytes_per_sample and fmt.encoding is PayloadEncoding.RAW:
        # Bytes map to samples by arithmetic, so one pass over the whole payload is enough.
        decoder.push(payload)
        audio = decoder.finish()
        bytes_per_frame = bytes_per_sample * (fmt.channels or 1)
        ends = np.cumsum(np.asarray(chunk_sizes, dtype=np.int64)) // bytes_per_frame
        counts = tuple(int(n) for n in np.diff(ends, prepend=0))
        return ChunkedAudio(audio, counts, DurationBasis.EXACT)
    view = memoryview(payload)
    at = 0
    for size in chunk_sizes:
        decoder.push(view[at : at + size])
        at += size
    audio = decoder.finish()
    return ChunkedAudio(audio, decoder.samples_per_chunk, decoder.basis)


def _open_stream(fmt: AudioFormat, sink: SampleSink) -> SampleStream:
    if fmt.sample_format is SampleFormat.WAV:
        return WavStream(sink, is_size_exact=fmt.wav_size is WavSize.EXACT)
    encoding = PcmLayout.encoding_of(fmt.sample_format)
    if encoding is None:
        return open_codec(fmt.sample_format, sink)
    if fmt.sample_rate_hz is None or fmt.channels is None:
        raise AudioDecodeError(
            f"raw {fmt.sample_format.value} needs a sample rate and a channel count, found"
            f" {fmt.sample_rate_hz} Hz and {fmt.channels} channels; name them in the contract"
        )
    return PcmStream(PcmLayout(encoding, fmt.channels, fmt.sample_rate_hz), sink)


def _without_text_encoding(data: Buffer, encoding: PayloadEncoding) -> Buffer:
    """The bytes inside one chunk's text encoding.

    Raises:
        AudioDecodeError: not valid base64 or hex.
    """
    if encoding is PayloadEncoding.RAW:
        return data
    text = _WHITE_SPACE.sub(b"", bytes(data))
    try:
        if encoding is PayloadEncoding.HEX:
            return bytes.fromhex(text.decode("ascii"))
        return b"".join(_from_base64(piece) for piece in _BASE64_PIECES.findall(text))
    except (ValueError, UnicodeDecodeError) as fault:
        raise AudioDecodeError(f"payload is not {encoding.value}: {fault}") from None


def _from_base64(piece: bytes) -> bytes:
    # URL-safe letters and missing padding are both seen in the wild and both unambiguous.
    piece = piece.replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
    return bytes(pybase64.b64decode(piece + b"=" * (-len(piece) % 4), validate=True))


def _to_mono(pcm: FloatArray) -> FloatArray:
    if pcm.shape[1] == 1:
        return pcm[:, 0]
    return np.asarray(pcm.mean(axis=1), dtype=np.float32)
