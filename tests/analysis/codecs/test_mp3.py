"""MP3 framing: tags, information frames, several files in one reply."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.audio import IncrementalDecoder, decode, decode_chunks
from analysis.codecs.mp3 import InfoFrame, parse_header, parse_info
from analysis.onset import find_onset
from engines.base import SampleFormat
from tests.builders.audio import clip, pieces, tone
from tests.builders.codecs import codec_format, encode, id3_tag, mp3_frames

MP3 = codec_format(SampleFormat.MP3)
SOURCE = clip(tone(500))


@pytest.fixture(scope="module")
def bare() -> bytes:
    return encode("bare mp3", SOURCE)


@pytest.fixture(scope="module")
def told() -> bytes:
    """ID3 tag, information frame, audio."""
    return encode("mp3 with information frame", SOURCE)


def test_information_frame_brings_the_onset_back_to_the_source(told):
    """A tone that starts at sample 0 is heard within 5 ms of it, and lasts as long."""
    audio = decode(told, MP3)
    onset = find_onset(audio.samples, 24_000)

    assert onset.media_ns / 1e6 <= 5
    assert len(SOURCE) == len(audio.samples)


def test_without_it_the_offset_is_the_declared_one(bare):
    """1105 samples, 46 ms."""
    onset = find_onset(decode(bare, MP3).samples, 24_000)

    assert 1105 / 24 == pytest.approx(onset.media_ns / 1e6, abs=5)


@pytest.mark.parametrize("size", [37, 1, 192, 10_000])
def test_every_split_counts_the_same(bare, told, size):
    """With and without the frame, in pieces and whole."""
    for payload in (bare, told):
        decoder = IncrementalDecoder(MP3)
        for piece in pieces(payload, [size]):
            decoder.push(piece)

        assert len(decode(payload, MP3).samples) == len(decoder.finish().samples)


def test_tag_alone_is_not_first_audio(bare):
    """A first chunk of tag, even one that spells frame headers, completes no sample."""
    tag = id3_tag(300)
    chunked = decode_chunks(tag + bare, [len(tag), len(bare)], MP3)

    assert (0, len(decode(bare, MP3).samples)) == chunked.samples_per_chunk


def test_information_frame_alone_is_not_first_audio(told):
    """The tag and the frame behind it make no sound; the rest does."""
    first_audio = told.index(b"\xff\xf3", told.index(b"Info"))
    chunked = decode_chunks(told, [first_audio, len(told) - first_audio], MP3)

    assert (0, len(SOURCE)) == chunked.samples_per_chunk


def test_frame_counts_to_the_chunk_that_completes_it(bare):
    """Two frames less a byte are one frame; the byte brings the second."""
    chunked = decode_chunks(bare, [383, 1, len(bare) - 384], MP3)

    assert (576, 576) == chunked.samples_per_chunk[:2]


def test_files_in_a_row_are_each_trimmed(told):
    """A server that sends one file a sentence gives no gap between them."""
    audio = decode(told * 3, MP3)

    assert 3 * len(SOURCE) == len(audio.samples)
    assert () == audio.notes


def test_information_frame_that_counts_other_frames_trims_no_end(told):
    """A reply that broke off keeps its last sound, and the note tells the two numbers."""
    audio = decode(told[:-192], MP3)

    assert "23 frames, 22 came" in audio.notes[0]
    assert len(audio.samples) > len(SOURCE) - 2 * 576


def test_tags_behind_the_audio_are_skipped(bare):
    """ID3v1 at the end, 128 bytes."""
    audio = decode(bare + b"TAG" + b"\0" * 125, MP3)

    assert len(decode(bare, MP3).samples) == len(audio.samples)
    assert 1 == len(audio.notes)


def test_stream_joined_in_the_middle_is_read_from_its_next_frame(bare):
    """A first frame that is cut is foreign; the ones behind it are found."""
    audio = decode(bare[100:], MP3)

    assert len(decode(bare, MP3).samples) - 576 == len(audio.samples)
    assert any("92 bytes" in note for note in audio.notes)


def test_cut_last_frame_is_dangling(bare):
    """Its bytes never became audio, and are counted."""
    assert 92 == decode(bare[:-100], MP3).dangling_bytes


@pytest.mark.parametrize(
    ("head", "num_bytes"),
    [
        ("fff384c4", 192),  # MPEG-2, 64 kbit/s, 24 kHz
        ("fffb9064", 417),  # MPEG-1, 128 kbit/s, 44.1 kHz
        ("fffb9264", 418),  # the same with padding
        ("ffe318c4", 72),  # MPEG-2.5, 8 kbit/s, 8 kHz
    ],
)
def test_length_follows_from_the_header(head, num_bytes):
    """By the formula of the standard."""
    assert num_bytes == parse_header(bytes.fromhex(head)).num_bytes


@pytest.mark.parametrize("head", ["fff304c4", "fff3f4c4", "fff38cc4", "fff584c4", "ffeb84c4"])
def test_reserved_values_are_no_header(head):
    """Free format, bit rate 15, rate 3, layer II, reserved version."""
    assert parse_header(bytes.fromhex(head)) is None


def test_information_frame_is_read(told):
    """23 frames for 500 ms, 576 before and what fills the last frame behind."""
    at = told.index(b"\xff\xf3")
    frame = told[at : at + 192]
    info = parse_info(frame)

    assert (576, len(SOURCE)) == (info.delay, info.num_frames * 576 - info.delay - info.padding)


def test_tag_without_the_encoders_delay_says_nothing(told):
    """Zeros where the delays would stand are no statement."""
    at = told.index(b"\xff\xf3")
    frame = bytearray(told[at : at + 192])
    begin = frame.index(b"Info") + 120
    frame[begin + 21 : begin + 24] = b"\0\0\0"

    assert InfoFrame(parse_info(bytes(frame)).num_frames, None, None) == parse_info(bytes(frame))


def test_audio_frames_are_no_information(bare):
    """None of them."""
    assert [None] * len(mp3_frames(bare)) == [parse_info(f) for f in mp3_frames(bare)]


def test_decoded_tone_is_the_source(told):
    """Trimmed to the sample: the difference is the codec's noise."""
    samples = decode(told, MP3).samples

    assert np.abs(samples[1000:-1000] - SOURCE[1000:-1000]).max() < 0.02
