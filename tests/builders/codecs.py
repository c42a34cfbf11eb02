"""Clips in compressed formats, made by an independent encoder, and a whole-file decoder."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import av
import numpy as np
from numpy.typing import NDArray

from engines.base import AudioFormat, PayloadEncoding, RateSource, SampleFormat

__all__ = [
    "COMPRESSED",
    "Recipe",
    "codec_format",
    "decoded_by_container",
    "encode",
    "id3_tag",
    "mp3_frames",
]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one compressed format is made."""

    sample_format: SampleFormat
    muxer: str
    codec: str
    rate_hz: int = 24_000
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


COMPRESSED = MappingProxyType(
    {
        "mp3 with information frame": Recipe(SampleFormat.MP3, "mp3", "libmp3lame"),
        "bare mp3": Recipe(
            SampleFormat.MP3,
            "mp3",
            "libmp3lame",
            options=MappingProxyType({"write_xing": "0", "id3v2_version": "0"}),
        ),
        "aac": Recipe(SampleFormat.AAC, "adts", "aac"),
        "opus": Recipe(SampleFormat.OGG_OPUS, "ogg", "libopus", rate_hz=48_000),
        "opus in short pages": Recipe(
            SampleFormat.OGG_OPUS,
            "ogg",
            "libopus",
            rate_hz=48_000,
            options=MappingProxyType({"page_duration": "20000"}),
        ),
        "flac": Recipe(SampleFormat.FLAC, "flac", "flac"),
    }
)


def codec_format(
    sample_format: SampleFormat, *, encoding: PayloadEncoding = PayloadEncoding.RAW
) -> AudioFormat:
    """A compressed format as the wire reports it: the stream says the rest."""
    return AudioFormat(sample_format, None, None, RateSource.CONTAINER, encoding=encoding)


def encode(name: str, samples: NDArray[np.floating]) -> bytes:
    """`samples` (mono, at the recipe's rate) in the format called `name`."""
    recipe = COMPRESSED[name]
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=recipe.muxer, options=dict(recipe.options)) as container:
        stream = container.add_stream(recipe.codec, rate=recipe.rate_hz)
        stream.codec_context.layout = "mono"
        stream.codec_context.bit_rate = 64_000
        pcm = np.rint(np.asarray(samples) * 32767).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(pcm, format="s16", layout="mono")
        frame.sample_rate, frame.pts = recipe.rate_hz, 0
        resampler = av.AudioResampler(
            format=stream.codec_context.format.name, layout="mono", rate=recipe.rate_hz
        )
        for ready in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(ready))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def decoded_by_container(payload: bytes) -> NDArray[np.float32]:
    """All samples (mono) as a media library reads the whole file."""
    with av.open(io.BytesIO(payload)) as container:
        pieces = [frame.to_ndarray() for frame in container.decode(audio=0)]
    whole = np.concatenate([piece.reshape(-1) for piece in pieces])
    scale = 1.0 if whole.dtype.kind == "f" else float(1 << (8 * whole.dtype.itemsize - 1))
    return (whole / scale).astype(np.float32)


def id3_tag(num_bytes: int) -> bytes:
    """An ID3v2 tag whose body is so long and spells MP3 headers."""
    size = bytes(num_bytes >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\x04\x00\x00" + size + (b"\xff\xf3\x84\xc4" * (num_bytes // 4 + 1))[:num_bytes]


def mp3_frames(payload: bytes) -> list[bytes]:
    """The frames of a 24 kHz MPEG-2 MP3 at 64 kbit/s without padding: 192 bytes each."""
    (word,) = struct.unpack_from(">I", payload)
    assert (word >> 20, word >> 12 & 15, word >> 10 & 3) == (0xFFF, 8, 1), hex(word)
    return [payload[at : at + 192] for at in range(0, len(payload), 192)]
