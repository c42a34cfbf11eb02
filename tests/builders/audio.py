"""Clips, payloads and WAV headers for tests: tones, ramps, silence, every dialect."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from engines.base import AudioFormat, OddByte, PayloadEncoding, RateSource, SampleFormat, WavSize

__all__ = [
    "RATE_HZ",
    "buzz",
    "clip",
    "faded",
    "fmt_block",
    "noise",
    "pcm16",
    "pcm_format",
    "pieces",
    "ramp",
    "silence",
    "tone",
    "wav",
    "wav_format",
]

RATE_HZ = 24_000
FloatArray = NDArray[np.float64]


def num_samples(length_ms: float, rate_hz: int = RATE_HZ) -> int:
    """Samples in a length of time."""
    return round(length_ms * rate_hz / 1000)


def silence(length_ms: float, rate_hz: int = RATE_HZ) -> FloatArray:
    """Digital zero."""
    return np.zeros(num_samples(length_ms, rate_hz))


def tone(
    length_ms: float,
    rate_hz: int = RATE_HZ,
    *,
    frequency_hz: float = 1000.0,
    level_dbfs: float = -20.0,
) -> FloatArray:
    """A sine whose RMS is `level_dbfs`, from phase zero."""
    n = np.arange(num_samples(length_ms, rate_hz))
    amplitude = np.sqrt(2) * 10 ** (level_dbfs / 20)
    return np.asarray(amplitude * np.sin(2 * np.pi * frequency_hz * n / rate_hz))


def noise(
    length_ms: float, rate_hz: int = RATE_HZ, *, level_dbfs: float = -50.0, seed: int = 0
) -> FloatArray:
    """White noise of that RMS."""
    random = np.random.default_rng(seed)
    return random.normal(0.0, 10 ** (level_dbfs / 20), num_samples(length_ms, rate_hz))


def buzz(
    length_ms: float, rate_hz: int = RATE_HZ, *, pitch_hz: float = 120.0, level_dbfs: float = -20.0
) -> FloatArray:
    """A steady vowel, as far as pitch is concerned: harmonics up to 3 kHz, falling as 1 / k."""
    n = np.arange(num_samples(length_ms, rate_hz))
    orders = range(1, int(3000 // pitch_hz) + 1)
    waves = sum(np.sin(2 * np.pi * k * pitch_hz * n / rate_hz) / k for k in orders)
    level = np.sqrt(np.mean(np.square(waves)))
    return np.asarray(waves * 10 ** (level_dbfs / 20) / level)


def faded(samples: FloatArray, fade_ms: float, rate_hz: int = RATE_HZ) -> FloatArray:
    """With a linear rise over the first `fade_ms`."""
    envelope = np.minimum(1.0, np.arange(len(samples)) / num_samples(fade_ms, rate_hz))
    return samples * envelope


def clip(*parts: FloatArray) -> NDArray[np.float32]:
    """Parts one after the other, as the analysis takes them."""
    return np.concatenate(parts).astype(np.float32)


def ramp(length: int = 48_000) -> NDArray[np.int16]:
    """0, 1, 2, ... as int16 (wrapping): every sample tells where it stood."""
    return np.arange(length).astype(np.int16)


def pcm16(samples: NDArray[np.floating] | FloatArray) -> bytes:
    """Float samples as little-endian int16 bytes."""
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes()


def pcm_format(
    sample_format: SampleFormat = SampleFormat.S16LE,
    *,
    rate_hz: int = RATE_HZ,
    channels: int = 1,
    encoding: PayloadEncoding = PayloadEncoding.RAW,
    odd_byte: OddByte = OddByte.REPORT,
) -> AudioFormat:
    """A raw format as a contract would name it."""
    return AudioFormat(
        sample_format, rate_hz, channels, RateSource.CONTRACT, encoding=encoding, odd_byte=odd_byte
    )


def wav_format(
    *,
    wav_size: WavSize = WavSize.IGNORED,
    encoding: PayloadEncoding = PayloadEncoding.RAW,
) -> AudioFormat:
    """A WAV, whose header says the rest."""
    return AudioFormat(
        SampleFormat.WAV, None, None, RateSource.CONTAINER, encoding=encoding, wav_size=wav_size
    )


def fmt_block(
    *,
    tag: int = 1,
    bits: int = 16,
    channels: int = 1,
    rate_hz: int = RATE_HZ,
    extra: bytes = b"",
) -> bytes:
    """The contents of a fmt chunk; `extra` follows the 16 bytes that all have."""
    align = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate_hz, rate_hz * align, align, bits) + extra


def wav(
    data: bytes,
    *,
    fmt: bytes | None = None,
    before_data: bytes = b"",
    declared: int | None = None,
    riff_declared: int | None = None,
    magic: bytes = b"RIFF",
) -> bytes:
    """A WAV around `data`; `declared` replaces the data size in the header."""
    fmt = fmt_block() if fmt is None else fmt
    size = len(data) if declared is None else declared
    head = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + before_data
    riff = len(head) + 8 + size if riff_declared is None else riff_declared
    return (
        magic
        + struct.pack("<I", riff & 0xFFFFFFFF)
        + head
        + b"data"
        + struct.pack("<I", size)
        + data
    )


def chunk(ident: bytes, body: bytes) -> bytes:
    """A RIFF chunk, padded to an even length."""
    return ident + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def pieces(payload: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """`payload` cut into pieces of `sizes`, repeating."""
    at = turn = 0
    while at < len(payload):
        size = sizes[turn % len(sizes)]
        yield payload[at : at + size]
        at += size
        turn += 1
