"""The header of a mono s16le WAV file, with its length known or still open."""

from __future__ import annotations

import struct

__all__ = ["wav_header"]

_OPEN_ENDED = 0xFFFFFFFF  # what streaming writers state; readers then read to the end
_HEADER_BYTES = 44
_PCM = 1


def wav_header(sample_rate_hz: int, *, num_audio_bytes: int | None) -> bytes:
    """44 bytes; `num_audio_bytes` is None where the sound is still being made."""
    is_open = num_audio_bytes is None
    audio = _OPEN_ENDED if num_audio_bytes is None else num_audio_bytes
    riff = _OPEN_ENDED if is_open else audio + _HEADER_BYTES - 8
    shape = struct.pack("<HHIIHH", _PCM, 1, sample_rate_hz, 2 * sample_rate_hz, 2, 16)
    return b"".join(
        (
            struct.pack("<4sI4s", b"RIFF", riff, b"WAVE"),
            struct.pack("<4sI", b"fmt ", len(shape)),
            shape,
            struct.pack("<4sI", b"data", audio),
        )
    )
