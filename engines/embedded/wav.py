# SPDX-License-Identifier: GPL-3.0-or-later
"""A WAV header for a stream whose length is not known, and for one whose length is."""

from __future__ import annotations

import struct

__all__ = ["HEADER_BYTES", "UNKNOWN_SIZE", "wav_header"]

HEADER_BYTES = 44
# What streaming writers put where they cannot know the size; readers then read to the end.
UNKNOWN_SIZE = 0xFFFFFFFF
_BITS_PER_SAMPLE = 16
_FORMAT_PCM = 1


def wav_header(sample_rate_hz: int, *, num_data_bytes: int | None = None) -> bytes:
    """The 44 bytes before s16le mono samples; without a length both sizes are 0xFFFFFFFF."""
    bytes_per_sample = _BITS_PER_SAMPLE // 8
    data_size = UNKNOWN_SIZE if num_data_bytes is None else num_data_bytes
    riff_size = UNKNOWN_SIZE if num_data_bytes is None else HEADER_BYTES - 8 + num_data_bytes
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        riff_size,
        b"WAVE",
        b"fmt ",
        16,
        _FORMAT_PCM,
        1,
        sample_rate_hz,
        sample_rate_hz * bytes_per_sample,
        bytes_per_sample,
        _BITS_PER_SAMPLE,
        b"data",
        data_size,
    )
