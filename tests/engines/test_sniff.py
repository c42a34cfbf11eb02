"""First bytes and declared sizes."""

from __future__ import annotations

import struct

import pytest

from engines.base import SampleFormat
from engines.sniff import WavLength, sniff_format
from tests.builders.exchanges import ramp, wav


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (wav(b"")[:12], SampleFormat.WAV),
        (b"fLaC\x00\x00\x00\x22", SampleFormat.FLAC),
        (b"OggS\x00\x02", SampleFormat.OGG_OPUS),
        (b"ID3\x04\x00", SampleFormat.MP3),
        (b"\xff\xfb\x90\x00", SampleFormat.MP3),
        (b"\xff\xf3\x84\xc4", SampleFormat.MP3),
        (b"\xff\xf1\x50\x80", SampleFormat.AAC),
        (b"\xff\xf9\x50\x80", SampleFormat.AAC),
        (b"RIFF\x00\x00\x00\x00AVI ", None),
        (b"\xff\xff\xff\xff", None),
        (b"\x00\x00\x01\x00", None),
        (b"", None),
    ],
)
def test_a_beginning_tells_its_container(head: bytes, found: SampleFormat | None):
    """Known magic numbers, and nothing where samples merely start."""
    assert found is sniff_format(head)


def _list_chunk_wav(pcm: bytes) -> bytes:
    plain = wav(pcm)
    extra = b"LIST" + struct.pack("<I", 5) + b"INFO!\x00"
    return plain[:36] + extra + plain[36:]


@pytest.mark.parametrize("body", [wav(ramp(0, 100)), _list_chunk_wav(ramp(0, 100))])
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_wav_tells_its_length_for_every_split(body: bytes, step: int):
    """Header, padded extra chunks and samples add up to the whole file."""
    length = WavLength()
    for start in range(0, len(body), step):
        assert length.is_complete in (None, False)
        length.push(body[start : start + step])

    assert len(body) == length.num_expected_bytes
    assert length.is_complete is True


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_an_open_ended_wav_tells_nothing(size: int):
    """The two sizes that mean 'unknown' are no size."""
    length = WavLength()
    length.push(wav(ramp(0, 100), data_size=size))

    assert length.is_complete is None


def test_a_header_without_end_is_given_up():
    """Chunk after chunk, never samples: the search stops and keeps nothing."""
    length = WavLength()
    length.push(wav(b"")[:12])
    for _ in range(100):
        length.push(b"JUNK" + struct.pack("<I", 2000) + bytes(2000))

    assert length.is_complete is None
