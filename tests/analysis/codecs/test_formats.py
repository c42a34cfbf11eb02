"""The same clip through every compressed format: length, onset, and any split."""

from __future__ import annotations

import base64
import io
import sys
from functools import cache

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audio import DurationBasis, IncrementalDecoder, decode, decode_chunks
from analysis.errors import AudioDecodeError, UnsupportedAudioError
from analysis.onset import find_onset
from analysis.reply import decode_reply
from engines.base import PayloadEncoding, SampleFormat
from tests.builders.audio import clip, pcm16, pcm_format, pieces, silence, tone
from tests.builders.codecs import COMPRESSED, codec_format, decoded_by_container, encode
from tests.builders.runs import chunks_of, record

PRIMING_STATED = ("mp3 with information frame", "opus", "opus in short pages", "flac")
PRIMING_UNKNOWN = ("bare mp3", "aac")
# Samples of one frame: what an encoder without a stated length may add behind the audio.
FRAME_SAMPLES = {"bare mp3": 576, "aac": 1024}


@cache
def source(rate_hz: int) -> np.ndarray:
    """100 ms of silence, 500 ms of a tone."""
    return clip(silence(100, rate_hz), tone(500, rate_hz))


@cache
def payload_of(name: str) -> bytes:
    return encode(name, source(COMPRESSED[name].rate_hz))


def format_of(name: str, **fields):
    return codec_format(COMPRESSED[name].sample_format, **fields)


def onset_ms(name: str) -> float:
    audio = decode(payload_of(name), format_of(name))
    onset = find_onset(audio.samples, audio.sample_rate_hz)
    return onset.media_ns / 1e6


@pytest.mark.parametrize("name", PRIMING_STATED)
def test_clip_with_stated_priming_keeps_its_onset_and_its_length(name):
    """The tone begins within 5 ms of 100 ms, and not one sample is added or lost."""
    audio = decode(payload_of(name), format_of(name))

    assert 100 == pytest.approx(onset_ms(name), abs=5)
    assert len(source(audio.sample_rate_hz)) == len(audio.samples)
    assert () == audio.notes


@pytest.mark.parametrize(
    ("sample_format", "subtype"),
    [
        (SampleFormat.S16LE, "PCM_16"),
        (SampleFormat.S24LE, "PCM_24"),
        (SampleFormat.F32LE, "FLOAT"),
        (SampleFormat.MULAW, "ULAW"),
        (SampleFormat.ALAW, "ALAW"),
    ],
)
def test_clip_in_plain_samples_keeps_its_onset_and_its_length(sample_format, subtype):
    """The same clip, encoded by libsndfile: the very samples' number, onset within 5 ms."""
    buffer = io.BytesIO()
    soundfile.write(buffer, source(24_000), 24_000, format="RAW", subtype=subtype, endian="LITTLE")
    audio = decode(buffer.getvalue(), pcm_format(sample_format))
    onset = find_onset(audio.samples, audio.sample_rate_hz)

    assert 100 == pytest.approx(onset.media_ns / 1e6, abs=5)
    assert len(source(24_000)) == len(audio.samples)


@pytest.mark.parametrize(("name", "offset"), [("bare mp3", 1105), ("aac", 1024)])
def test_clip_without_stated_priming_is_late_by_a_constant_and_says_untrimmed(name, offset):
    """LAME's 576 samples and the decoder's 529; the AAC encoder's 1024."""
    audio = decode(payload_of(name), format_of(name))

    assert 100 + offset / 24 == pytest.approx(onset_ms(name), abs=5)
    assert audio.notes[0].startswith("untrimmed")
    too_long = len(audio.samples) - offset - len(source(24_000))
    assert 0 <= too_long < 2 * FRAME_SAMPLES[name]


@pytest.mark.parametrize("name", COMPRESSED)
def test_incremental_decoding_equals_the_whole_file_in_an_independent_reader(name):
    """Sample for sample, fed in pieces of 37 bytes."""
    decoder = IncrementalDecoder(format_of(name))
    for piece in pieces(payload_of(name), [37]):
        decoder.push(piece)

    assert decoded_by_container(payload_of(name)).tolist() == decoder.finish().samples.tolist()


def test_opus_equals_the_reference_decoder():
    """libsndfile decodes with libopus and trims by the same two fields."""
    expected, rate_hz = soundfile.read(io.BytesIO(payload_of("opus")), dtype="float32")
    audio = decode(payload_of("opus"), format_of("opus"))

    assert 48_000 == rate_hz == audio.sample_rate_hz
    np.testing.assert_allclose(audio.samples, expected, atol=1e-6)


def test_opus_of_another_muxer_keeps_its_length():
    """libsndfile's pages end where its granule positions say."""
    buffer = io.BytesIO()
    soundfile.write(buffer, source(48_000), 48_000, format="OGG", subtype="OPUS")

    assert len(source(48_000)) == len(decode(buffer.getvalue(), format_of("opus")).samples)


def test_flac_is_bit_exact():
    """A lossless format loses nothing: equal to the 16-bit samples that went in."""
    expected = np.rint(source(24_000) * 32767) / 32768

    assert expected.tolist() == decode(payload_of("flac"), format_of("flac")).samples.tolist()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(COMPRESSED)), st.lists(st.integers(1, 2000), min_size=1, max_size=5))
def test_any_split_gives_the_samples_of_the_whole(name, sizes):
    """How bytes were cut changes no sample, and counts add up to all of them."""
    decoder = IncrementalDecoder(format_of(name))
    for piece in pieces(payload_of(name), sizes):
        decoder.push(piece)
    audio = decoder.finish()
    whole = decode(payload_of(name), format_of(name))

    assert np.array_equal(whole.samples, audio.samples)
    assert whole.notes == audio.notes
    assert len(whole.samples) == sum(decoder.samples_per_chunk)


@pytest.mark.parametrize(
    ("name", "basis"),
    [
        ("bare mp3", DurationBasis.FRAME),
        ("aac", DurationBasis.FRAME),
        ("opus", DurationBasis.PAGE),
        ("flac", DurationBasis.WHOLE),
    ],
)
def test_basis_says_how_samples_were_attributed(name, basis):
    """Frame by frame, page by page, or only as a whole."""
    payload = payload_of(name)

    assert basis is decode_chunks(payload, [len(payload)], format_of(name)).basis


def test_flac_counts_to_its_last_chunk_alone():
    """Its timing is that of the whole reply, never a guess from byte counts."""
    payload = payload_of("flac")
    chunked = decode_chunks(payload, [1000, len(payload) - 1100, 100], format_of("flac"))

    assert (0, 0, 14_400) == chunked.samples_per_chunk


def test_opus_header_pages_hold_no_audio():
    """The first two pages name the stream and its tags; sound begins with the third."""
    payload = payload_of("opus in short pages")
    second = payload.index(b"OggS", 4)
    third = payload.index(b"OggS", second + 4)
    sizes = [third, len(payload) - third]

    assert 0 == decode_chunks(payload, sizes, format_of("opus")).samples_per_chunk[0]


def test_opus_streams_in_a_row_are_each_trimmed():
    """Two sentences as two streams: the length is that of both clips."""
    payload = payload_of("opus") * 2

    assert 2 * len(source(48_000)) == len(decode(payload, format_of("opus")).samples)


def test_event_stream_of_base64_mp3_is_read():
    """Each event is an encoding of its own, cut in the middle of a frame."""
    name = "bare mp3"
    parts = [base64.b64encode(part) for part in pieces(payload_of(name), [500])]
    fmt = format_of(name, encoding=PayloadEncoding.BASE64)
    chunked = decode_chunks(b"".join(parts), [len(part) for part in parts], fmt)

    assert len(decode(payload_of(name), format_of(name)).samples) == len(chunked.audio.samples)


# -- what is no such stream -----------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize(
    "payload", [b'{"detail": "model not loaded"}' * 4, pcm16(tone(20)), b"\0" * 500]
)
def test_other_bytes_are_refused_and_shown(name, payload):
    """An error page or bare samples under a codec's name: one line, not silence."""
    with pytest.raises(AudioDecodeError, match="found"):
        decode(payload, format_of(name))


def test_ogg_of_another_codec_is_refused_by_name():
    """Vorbis in Ogg is no Opus."""
    buffer = io.BytesIO()
    soundfile.write(buffer, source(24_000), 24_000, format="OGG", subtype="VORBIS")
    with pytest.raises(AudioDecodeError, match="vorbis"):
        decode(buffer.getvalue(), format_of("opus"))


@pytest.mark.parametrize("name", ["bare mp3", "aac", "opus in short pages"])
def test_damage_in_the_middle_is_noted_and_the_rest_is_heard(name):
    """A hundred foreign bytes inside: most samples stay, a note speaks of the damage."""
    payload = payload_of(name)
    middle = len(payload) // 2
    audio = decode(payload[:middle] + b"\x55" * 100 + payload[middle:], format_of(name))
    whole = decode(payload, format_of(name))

    assert 0.8 < len(audio.samples) / len(whole.samples) <= 1.0
    assert len(audio.notes) > len(whole.notes)


@pytest.mark.parametrize("name", sorted(set(COMPRESSED) - {"opus"}))
def test_cut_stream_keeps_what_had_come(name):
    """Nine tenths of the bytes: some samples, fewer than all, no error."""
    payload = payload_of(name)
    audio = decode(payload[: len(payload) * 9 // 10], format_of(name))

    assert 0 < len(audio.samples) < len(source(audio.sample_rate_hz))


def test_stream_cut_inside_its_only_page_holds_nothing():
    """Ogg gives nothing before a page is whole."""
    payload = payload_of("opus")
    audio = decode(payload[:-1], format_of("opus"))

    assert (0, True) == (len(audio.samples), audio.dangling_bytes > 0)


def test_flac_cut_inside_its_metadata_is_empty_and_noted():
    """A header alone is no audio and no error."""
    audio = decode(payload_of("flac")[:3000], format_of("flac"))

    assert 0 == len(audio.samples)
    assert "first frame" in audio.notes[0]


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_hostile_bytes_end_in_samples_or_in_one_named_error(data):
    """Real beginnings with flipped, cut and foreign bytes: no other exception, bounded output."""
    name = data.draw(st.sampled_from(sorted(COMPRESSED)))
    payload = bytearray(payload_of(name)[: data.draw(st.integers(0, 4000))])
    for place in data.draw(st.lists(st.integers(0, 4000), max_size=30)):
        if place < len(payload):
            payload[place] = data.draw(st.integers(0, 255))
    payload += data.draw(st.binary(max_size=300))
    try:
        audio = decode(bytes(payload), format_of(name))
    except AudioDecodeError:
        return
    # A byte of Opus can ask for 120 ms at 48 kHz, a FLAC frame of a few for 65,535 samples.
    assert len(audio.samples) <= 65_535 * (len(payload) + 1)


def test_silence_out_of_nothing_is_stopped(monkeypatch):
    """Packets of one byte that each ask for 60 ms end in one error, not in all memory."""
    monkeypatch.setattr("analysis.codecs.packets._MAX_VALUES", 100_000)
    payload = payload_of("opus in short pages")
    page = payload[payload.index(b"OggS", payload.index(b"OggS", 4) + 4) :][:14]
    head = payload[: payload.index(page)]
    flood = page + payload[14:18] + b"\0" * 8 + b"\xff" + b"\1" * 255 + b"\x18" * 255
    with pytest.raises(AudioDecodeError, match="stopped"):
        decode(head + flood * 20, format_of("opus"))


@pytest.mark.parametrize("name", ["bare mp3", "aac"])
def test_stream_of_nothing_but_sync_bytes_ends_soon(name):
    """A megabyte of them: the work grows with their number."""
    with pytest.raises(AudioDecodeError):
        decode(b"\xff\xf1\x55\xff\xfb" * 40_000, format_of(name))


# -- without the decoder --------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPRESSED)
def test_missing_decoder_is_one_line_with_the_remedy(name, monkeypatch):
    """It names the extra to install."""
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnsupportedAudioError, match=r"pip install .*\[codecs\]"):
        IncrementalDecoder(format_of(name))


def test_reply_without_a_decoder_is_unmeasured_not_failed(monkeypatch):
    """Null samples and a note; the engine did nothing wrong."""
    payload = payload_of("aac")
    monkeypatch.setitem(sys.modules, "av", None)
    reply = decode_reply(
        record(chunks=chunks_of([(10.0, len(payload))]), format=codec_format(SampleFormat.AAC)),
        payload,
    )

    assert (None, None, None) == (reply.num_samples, reply.audio, reply.error)
    assert "codecs" in reply.note


def test_head_of_a_compressed_reply_is_heard_but_not_counted():
    """What follows the recorded head cannot be known from its bytes."""
    payload = payload_of("bare mp3")
    reply = decode_reply(
        record(
            chunks=chunks_of([(10.0, 1000), (20.0, len(payload) - 1000)]),
            format=codec_format(SampleFormat.MP3),
        ),
        payload[:1000],
    )

    assert (None, DurationBasis.FRAME, False) == (
        reply.samples_per_chunk,
        reply.basis,
        reply.is_whole,
    )
    assert len(reply.audio.samples) > 0
