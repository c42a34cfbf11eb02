"""One stored reply, decoded as far as it was recorded: samples, and how many each chunk completed.

A run may keep all of a payload, its head, or none of it. Where samples can be counted from bytes
alone (raw PCM), they are, so that playback can be judged without the sound. What cannot be known
is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.audio import DecodedAudio, DurationBasis, IncrementalDecoder, decode_chunks
from analysis.errors import AudioDecodeError, UnsupportedAudioError
from analysis.pcm import PcmEncoding, PcmLayout
from engines.base import AudioFormat, PayloadEncoding, SampleFormat
from harness.records import RequestRecord

__all__ = ["Reply", "decode_reply"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What is known of a reply's audio.

    audio: the decoded samples; None where nothing was recorded or nothing can decode it.
    samples_per_chunk: for every chunk of the record; None where it cannot be known.
    dangling_bytes: of a last PCM frame that never became complete; None where it cannot be known.
    is_whole: `audio` is the whole clip, not its head.
    error: why the bytes are not what their format says, or None.
    note: why `audio` is missing although nothing went wrong, or None.
    """

    audio: DecodedAudio | None
    samples_per_chunk: tuple[int, ...] | None
    sample_rate_hz: int | None
    channels: int | None
    basis: DurationBasis | None
    dangling_bytes: int | None
    is_whole: bool
    error: str | None = None
    note: str | None = None

    @property
    def num_samples(self) -> int | None:
        """Of the whole reply; None where it cannot be known."""
        return None if self.samples_per_chunk is None else sum(self.samples_per_chunk)

    @property
    def duration_s(self) -> float | None:
        """Of the whole reply; None where it cannot be known."""
        if self.num_samples is None or not self.sample_rate_hz:
            return None
        return self.num_samples / self.sample_rate_hz

    @property
    def can_find_onset(self) -> bool:
        """Whether the absence of an onset would mean silence."""
        return self.audio is not None and self.is_whole


def decode_reply(record: RequestRecord, payload: bytes | None) -> Reply:
    """Decode what was stored of one reply.

    Args:
        record: its chunks and format.
        payload: the stored bytes: all, a head, or None.
    """
    fmt = record.format
    sizes = [chunk.num_bytes for chunk in record.chunks]
    if fmt is None or not sizes:
        return _without_audio(fmt, (0,) * len(sizes), note=None)
    payload = payload or b""
    try:
        if len(payload) >= sum(sizes):
            return _whole(payload, sizes, fmt)
        if payload:
            return _head(payload, sizes, fmt)
    except AudioDecodeError as fault:
        return _without_audio(fmt, None, error=str(fault))
    except UnsupportedAudioError as fault:
        return _without_audio(fmt, None, note=str(fault))
    return _without_audio(
        fmt,
        _counts_by_arithmetic(sizes, fmt),
        dangling_bytes=_dangling_by_arithmetic(sizes, fmt),
        note="audio was not recorded",
    )


def _whole(payload: bytes, sizes: Sequence[int], fmt: AudioFormat) -> Reply:
    chunked = decode_chunks(payload, sizes, fmt)
    return Reply(
        audio=chunked.audio,
        samples_per_chunk=chunked.samples_per_chunk,
        sample_rate_hz=chunked.audio.sample_rate_hz,
        channels=chunked.audio.channels,
        basis=chunked.basis,
        dangling_bytes=chunked.audio.dangling_bytes,
        is_whole=True,
    )


def _head(payload: bytes, sizes: Sequence[int], fmt: AudioFormat) -> Reply:
    """Decode the recorded head; count the rest from its bytes where they map to samples."""
    decoder = IncrementalDecoder(fmt)
    at = 0
    for size in sizes:
        piece = payload[at : at + size]
        at += size
        decoder.push(piece if len(piece) == size else _whole_letters(piece, fmt.encoding))
        if at >= len(payload):
            break
    audio = decoder.finish()
    counts = _counts_by_arithmetic(sizes, fmt)
    if counts is None and fmt.encoding is PayloadEncoding.RAW:
        counts = _continue_counts(decoder.samples_per_chunk, audio, sizes, len(payload))
    return Reply(
        audio=audio,
        samples_per_chunk=counts,
        sample_rate_hz=audio.sample_rate_hz,
        channels=audio.channels,
        basis=decoder.basis,
        dangling_bytes=_dangling_by_arithmetic(sizes, fmt),
        is_whole=False,
        note="only the head of the audio was recorded",
    )


def _whole_letters(piece: bytes, encoding: PayloadEncoding) -> bytes:
    """The part of a cut piece of text that decodes by itself."""
    group = {PayloadEncoding.RAW: 1, PayloadEncoding.BASE64: 4, PayloadEncoding.HEX: 2}[encoding]
    return piece[: len(piece) - len(piece) % group]


def _counts_by_arithmetic(sizes: Sequence[int], fmt: AudioFormat) -> tuple[int, ...] | None:
    """Samples per chunk from sizes alone: raw samples in no text encoding."""
    width = _bytes_per_frame(fmt)
    if width is None:
        return None
    ends = np.cumsum(np.asarray(sizes, dtype=np.int64)) // width
    return tuple(int(n) for n in np.diff(ends, prepend=0))


def _dangling_by_arithmetic(sizes: Sequence[int], fmt: AudioFormat) -> int | None:
    """The same for what is left over."""
    width = _bytes_per_frame(fmt)
    return None if width is None else sum(sizes) % width


def _bytes_per_frame(fmt: AudioFormat) -> int | None:
    """Of a PCM frame in the stored payload; None in a container, a codec or a text encoding."""
    width = fmt.sample_format.bytes_per_sample
    if width is None or fmt.encoding is not PayloadEncoding.RAW or not fmt.channels:
        return None
    return width * fmt.channels


def _continue_counts(
    head: Sequence[int], audio: DecodedAudio, sizes: Sequence[int], num_recorded: int
) -> tuple[int, ...] | None:
    """Counts of a WAV whose header is in the recorded head and whose data goes on behind it."""
    if audio.encoding is None or audio.channels is None or audio.sample_rate_hz is None:
        return None
    layout = PcmLayout(PcmEncoding(audio.encoding), audio.channels, audio.sample_rate_hz)
    num_before = sum(head)
    carried = audio.dangling_bytes
    ends = []
    at = 0
    for index, size in enumerate(sizes):
        at += size
        if at <= num_recorded:
            ends.append(sum(head[: index + 1]))
        else:
            ends.append(num_before + (carried + at - num_recorded) // layout.bytes_per_frame)
    return tuple(int(n) for n in np.diff(np.array(ends, dtype=np.int64), prepend=0))


def _without_audio(
    fmt: AudioFormat | None,
    counts: tuple[int, ...] | None,
    *,
    dangling_bytes: int | None = None,
    error: str | None = None,
    note: str | None = None,
) -> Reply:
    is_container = fmt is None or fmt.sample_format is SampleFormat.WAV
    return Reply(
        audio=None,
        samples_per_chunk=counts,
        sample_rate_hz=None if fmt is None or is_container else fmt.sample_rate_hz,
        channels=None if fmt is None or is_container else fmt.channels,
        basis=DurationBasis.EXACT if counts else None,
        dangling_bytes=dangling_bytes,
        is_whole=False,
        error=error,
        note=note,
    )
