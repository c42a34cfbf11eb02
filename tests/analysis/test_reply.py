"""Samples per chunk of whole, partial and absent recordings."""

from __future__ import annotations

import base64

import pytest

from analysis.reply import decode_reply
from engines.base import AudioFormat, PayloadEncoding, RateSource, SampleFormat
from tests.builders.audio import pcm16, pcm_format, ramp, tone, wav, wav_format
from tests.builders.runs import chunks_of, record

SIZES = (3, 1, 997, 5000, 999)
DATA = pcm16(tone(7000 / 48))[:7000]


def reply_of(payload: bytes | None, sizes=SIZES, fmt=None):
    chunks = chunks_of([(10.0 * i, size) for i, size in enumerate(sizes)])
    return decode_reply(record(chunks=chunks, format=fmt or pcm_format()), payload)


def test_whole_recording_is_decoded_and_attributed():
    """Seven thousand bytes in five chunks are 3,500 samples."""
    reply = reply_of(DATA)

    assert (1, 1, 498, 2500, 500) == reply.samples_per_chunk
    assert (3500, True) == (len(reply.audio.samples), reply.is_whole)


@pytest.mark.parametrize("payload", [None, b"", DATA[:1500], DATA[:4]])
def test_raw_samples_are_counted_whatever_was_recorded(payload):
    """Bytes map to samples without the sound."""
    assert (1, 1, 498, 2500, 500) == reply_of(payload).samples_per_chunk


def test_wav_is_counted_behind_its_recorded_head():
    """The header was in the head; the rest follows by arithmetic, as in the whole."""
    payload = wav(DATA, declared=0)
    sizes = (44, 3, 1001, 5996)
    whole = reply_of(payload, sizes, wav_format())
    head = reply_of(payload[:551], sizes, wav_format())

    assert (0, 1, 501, 2998) == whole.samples_per_chunk
    assert whole.samples_per_chunk == head.samples_per_chunk
    assert not head.is_whole


def test_wav_without_its_header_cannot_be_counted():
    """Null, not a guess."""
    assert reply_of(None, (44, 4000), wav_format()).samples_per_chunk is None


def test_head_of_base64_is_decoded_as_far_as_it_goes():
    """Cut inside a group of four letters."""
    text = base64.b64encode(ramp(300).tobytes())
    fmt = pcm_format(encoding=PayloadEncoding.BASE64)
    reply = reply_of(text[:401], (len(text),), fmt)

    assert (150, None) == (len(reply.audio.samples), reply.samples_per_chunk)


def test_reply_that_is_no_mp3_is_an_error():
    """Bytes that are not what the format says are the engine's fault, and are shown."""
    fmt = AudioFormat(SampleFormat.MP3, None, None, RateSource.CONTAINER)
    reply = reply_of(b"x" * 100, (100,), fmt)

    assert (None, None) == (reply.audio, reply.samples_per_chunk)
    assert "xxx" in reply.error


def test_reply_without_a_format_holds_nothing():
    """It never got as far as audio."""
    reply = decode_reply(record(format=None, chunks=[]), None)

    assert (0, None) == (reply.num_samples, reply.duration_s)
