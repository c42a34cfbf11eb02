"""Payload bytes become samples: every format, every WAV dialect, split anywhere."""

from __future__ import annotations

import base64
import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audio import IncrementalDecoder, decode, decode_chunks
from analysis.errors import AudioDecodeError
from engines.base import AudioFormat, PayloadEncoding, RateSource, SampleFormat, WavSize
from tests.builders.audio import (
    chunk,
    clip,
    fmt_block,
    pcm16,
    pcm_format,
    pieces,
    ramp,
    silence,
    tone,
    wav,
    wav_format,
)

OPEN_SIZES = (0, 0xFFFFFFFF, 2_000_000_000, 100_000)


def push_all(decoder: IncrementalDecoder, parts) -> list[int]:
    return [decoder.push(part) for part in parts]


def as_int16(samples) -> np.ndarray:
    return np.rint(samples * 32768).astype(np.int64)


# -- raw samples --------------------------------------------------------------------------------


def test_ramp_survives_pieces_that_split_samples():
    """Pieces of 3, 1, 4093 and 1697 bytes give 48,000 exact samples, 2.000 s."""
    decoder = IncrementalDecoder(pcm_format())
    push_all(decoder, pieces(ramp().tobytes(), [3, 1, 4093, 1697]))
    audio = decoder.finish()

    assert ramp().tolist() == as_int16(audio.samples).tolist()
    assert audio.duration_s == 2.0


def test_split_sample_counts_to_the_chunk_that_completes_it():
    """3 bytes hold one sample and half of the next; 1 more byte completes it."""
    decoder = IncrementalDecoder(pcm_format())

    assert [1, 1, 2] == push_all(decoder, [b"\1\0\2", b"\0", b"\3\0\4\0"])


def test_counts_by_arithmetic_equal_counts_by_decoding():
    """The short cut for raw samples attributes as the incremental decoder does."""
    payload = ramp(5000).tobytes()
    parts = list(pieces(payload, [3, 1, 409, 1697]))
    decoder = IncrementalDecoder(pcm_format())
    push_all(decoder, parts)
    sizes = [len(part) for part in parts]

    assert (
        decoder.samples_per_chunk == decode_chunks(payload, sizes, pcm_format()).samples_per_chunk
    )


def test_stray_byte_is_one_dangling_byte():
    """It is neither padded into a sample nor lost without a word."""
    audio = decode(ramp().tobytes() + b"\x7f", pcm_format())

    assert (48_000, 1) == (len(audio.samples), audio.dangling_bytes)


def test_stray_byte_behind_declared_data_is_dangling_whatever_its_value():
    """Also one with which the name of a chunk could begin, as "R" does."""
    payload = wav(ramp(100).tobytes())
    found = [decode(payload + bytes([value]), wav_format()) for value in range(256)]

    assert {(100, 1)} == {(len(audio.samples), audio.dangling_bytes) for audio in found}
    assert {("more data than the header declared",)} == {audio.notes for audio in found}


def test_stereo_split_inside_a_pcm_frame_keeps_its_channels():
    """4-byte PCM frames split anywhere: left stays left."""
    left, right = ramp(1000), ramp(1000)[::-1]
    payload = np.stack([left, right], axis=1).tobytes()
    decoder = IncrementalDecoder(pcm_format(channels=2))
    push_all(decoder, pieces(payload, [3, 1, 7]))
    audio = decoder.finish()

    assert left.tolist() == as_int16(audio.pcm[:, 0]).tolist()
    assert right.tolist() == as_int16(audio.pcm[:, 1]).tolist()


def test_stereo_is_averaged_to_mono():
    """The onset is looked for in the mean of the channels."""
    audio = decode(struct.pack("<hh", 1000, 3000), pcm_format(channels=2))

    assert [2000] == as_int16(audio.samples).tolist()


def test_stray_bytes_of_a_stereo_frame_are_all_dangling():
    """Three bytes of a 4-byte PCM frame."""
    audio = decode(b"\0" * 7, pcm_format(channels=2))

    assert (1, 3) == (len(audio.samples), audio.dangling_bytes)


def test_24_bit_samples_keep_their_sign_and_size():
    """Extremes and ones of signed 24-bit."""
    values = [0, 1, -1, 0x7FFFFF, -0x800000]
    payload = b"".join(struct.pack("<i", value)[:3] for value in values)
    audio = decode(payload, pcm_format(SampleFormat.S24LE))

    assert values == [round(float(s) * (1 << 23)) for s in audio.samples]


def test_float_samples_are_taken_as_they_are():
    """Also above full scale, and NaN, which the signal metrics count."""
    audio = decode(
        struct.pack("<4f", 0.25, -1.5, float("nan"), 1.0), pcm_format(SampleFormat.F32LE)
    )

    assert [0.25, -1.5, 1.0] == audio.samples[[0, 1, 3]].tolist()
    assert np.isnan(audio.samples[2])


@pytest.mark.parametrize(
    ("sample_format", "subtype"), [(SampleFormat.MULAW, "ULAW"), (SampleFormat.ALAW, "ALAW")]
)
def test_g711_equals_an_independent_decoder(sample_format, subtype, tmp_path):
    """All 256 codes, against libsndfile."""
    codes = bytes(range(256))
    path = tmp_path / "codes.raw"
    path.write_bytes(codes)
    expected, _ = soundfile.read(
        str(path), dtype="float32", samplerate=8000, channels=1, format="RAW", subtype=subtype
    )

    assert (
        expected.tolist() == decode(codes, pcm_format(sample_format, rate_hz=8000)).samples.tolist()
    )


# -- text encodings -----------------------------------------------------------------------------


def test_each_base64_chunk_is_an_encoding_of_its_own():
    """Padding in the middle of the stored payload is not its end."""
    parts = [ramp(1000).tobytes()[:7], ramp(1000).tobytes()[7:]]
    stored = [base64.b64encode(part) for part in parts]
    fmt = pcm_format(encoding=PayloadEncoding.BASE64)
    chunked = decode_chunks(b"".join(stored), [len(text) for text in stored], fmt)

    assert ramp(1000).tolist() == as_int16(chunked.audio.samples).tolist()
    assert (3, 997) == chunked.samples_per_chunk
    assert ramp(1000).tolist() == as_int16(decode(b"".join(stored), fmt).samples).tolist()


def test_unpadded_and_url_safe_base64_are_read():
    """Both are seen in the wild and neither is ambiguous inside one chunk."""
    payload = np.array([-1, -5, 3], dtype="<i2").tobytes() + b"\xfb"
    text = base64.urlsafe_b64encode(payload).rstrip(b"=")
    audio = decode(text, pcm_format(encoding=PayloadEncoding.BASE64))

    assert ([-1, -5, 3], 1) == (as_int16(audio.samples).tolist(), audio.dangling_bytes)


def test_hex_is_read():
    """One protocol sends hexadecimal."""
    audio = decode(b"0100FFff", pcm_format(encoding=PayloadEncoding.HEX))

    assert [1, -1] == as_int16(audio.samples).tolist()


@pytest.mark.parametrize("encoding", [PayloadEncoding.BASE64, PayloadEncoding.HEX])
def test_text_that_is_not_encoded_is_an_error(encoding):
    """Bytes that don't decode are named, not skipped."""
    with pytest.raises(AudioDecodeError, match=encoding.value):
        decode(b"*** not audio ***", pcm_format(encoding=encoding))


# -- WAV ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [4800, *OPEN_SIZES])
def test_repeated_headers_are_not_samples(declared):
    """Three pieces of header + 4,800 bytes of ramp are 7,200 samples, 0.300 s, for any size."""
    payload = b"".join(
        wav(part, declared=declared) for part in pieces(ramp(7200).tobytes(), [4800])
    )
    audio = decode(payload, wav_format())

    assert ramp(7200).tolist() == as_int16(audio.samples).tolist()
    assert audio.duration_s == pytest.approx(0.3)
    assert 1 == np.abs(np.diff(as_int16(audio.samples))).max()


@pytest.mark.parametrize("declared", [4800, *OPEN_SIZES])
def test_header_split_over_chunks_is_attributed_to_none_of_them(declared):
    """Counts per chunk stay those of the data although a repeated header is cut in two."""
    first, second = (wav(part, declared=declared) for part in pieces(ramp(4800).tobytes(), [4800]))
    decoder = IncrementalDecoder(wav_format())
    push_all(decoder, [first + second[:20], second[20:44], second[44:]])
    decoder.finish()

    assert (2400, 0, 2400) == decoder.samples_per_chunk


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("18-byte fmt and fact", wav(
            ramp(1000).tobytes(), fmt=fmt_block(extra=b"\0\0"),
            before_data=chunk(b"fact", struct.pack("<I", 1000)))),
        ("LIST before data", wav(
            ramp(1000).tobytes(), before_data=chunk(b"LIST", b"INFOISFT\x0e\0\0\0Lavf60.16.100\0"),
            declared=0xFFFFFFFF)),
        ("odd chunk before data", wav(
            ramp(1000).tobytes(), before_data=chunk(b"junk", b"abc"))),
        ("size 0 in RIFF of 36", wav(ramp(1000).tobytes(), declared=0, riff_declared=36)),
        ("false finite size", wav(ramp(1000).tobytes(), declared=2_000_000_000)),
        ("size below the truth", wav(ramp(1000).tobytes(), declared=500)),
        ("LIST after data", wav(ramp(1000).tobytes()) + chunk(b"LIST", b"INFOabcd")),
        ("RF64", wav(ramp(1000).tobytes(), declared=0xFFFFFFFF, magic=b"RF64",
                     before_data=chunk(b"ds64", b"\0" * 28))),
        ("header again at the end", wav(ramp(1000).tobytes(), declared=0xFFFFFFFF) + wav(b"")),
    ],
)  # fmt: skip
def test_wav_dialects_give_the_payload_exactly(name, payload):
    """Whatever stands around the data, the samples are the data's."""
    assert ramp(1000).tolist() == as_int16(decode(payload, wav_format()).samples).tolist()


def test_extensible_wav_of_float_is_read():
    """WAVE_FORMAT_EXTENSIBLE hides the real tag in its sub-format."""
    extra = struct.pack("<HHIH14s", 22, 32, 4, 3, b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71")
    fmt = fmt_block(tag=0xFFFE, bits=32, extra=extra)
    audio = decode(wav(struct.pack("<2f", 0.5, -0.25), fmt=fmt), wav_format())

    assert [0.5, -0.25] == audio.samples.tolist()


def test_24_bit_wav_is_read():
    """Three bytes a sample, by the header alone."""
    data = b"".join(struct.pack("<i", value)[:3] for value in (1, -1, 5000))
    audio = decode(wav(data, fmt=fmt_block(bits=24)), wav_format())

    assert [1, -1, 5000] == [round(float(s) * (1 << 23)) for s in audio.samples]


def test_rate_and_channels_come_from_the_header():
    """They are what the container says."""
    audio = decode(wav(b"\0" * 8, fmt=fmt_block(channels=2, rate_hz=44_100)), wav_format())

    assert (44_100, 2) == (audio.sample_rate_hz, audio.channels)


@pytest.mark.parametrize("fmt", [pcm_format(), wav_format()])
def test_samples_that_spell_riff_are_untouched(fmt):
    """Four letters are no header, in bare samples and inside WAV data of open size."""
    data = ramp(100).tobytes() + b"RIFF" + ramp(100).tobytes() + b"RIFFxxxxWAVE" + b"RIFF"
    payload = data if fmt.sample_format is SampleFormat.S16LE else wav(data, declared=0)
    expected = np.frombuffer(data, dtype="<i2").tolist()

    assert expected == as_int16(decode(payload, fmt).samples).tolist()


def test_whole_wav_file_sent_as_bare_samples_is_untouched():
    """Where the contract says pcm, nothing is looked for in the bytes."""
    payload = wav(ramp(100).tobytes())

    assert len(payload) // 2 == len(decode(payload, pcm_format()).samples)


def test_exact_size_ends_the_data():
    """Where the contract vouches for sizes, what follows is no audio and is noted."""
    payload = wav(ramp(1000).tobytes(), declared=1000)
    audio = decode(payload, wav_format(wav_size=WavSize.EXACT))

    assert 500 == len(audio.samples)
    assert audio.notes


def test_header_alone_holds_no_samples():
    """A header-only delivery is a chunk with 0 samples."""
    decoder = IncrementalDecoder(wav_format())

    assert [0, 240] == push_all(decoder, [wav(b"", declared=0), b"\1\0" * 240])


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"ID3\4\0\0\0\0", "RIFF"),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0", "RIFF"),
        (wav(b"\0\0", fmt=fmt_block(tag=0x55, bits=0)), "MP3"),
        (wav(b"\0\0", fmt=fmt_block(channels=0)), "channels"),
        (wav(b"\0\0", fmt=b"\1\0\1\0"), "16"),
        (wav(b"\0\0", fmt=fmt_block(bits=12)), "12 bits"),
        (b"RIFF\0\0\0\0WAVE" + chunk(b"data", b"\0\0"), "before any fmt"),
        (wav(b"\0\0") + wav(b"\0\0", fmt=fmt_block(rate_hz=16_000)), "16000"),
    ],
)
def test_unreadable_wav_is_refused_by_name(payload, words):
    """The message says what was found."""
    with pytest.raises(AudioDecodeError, match=words):
        decode(payload, wav_format())


def test_wav_with_an_unfinished_header_is_empty_and_noted():
    """Ten bytes of a header: no sample, a note."""
    audio = decode(wav(b"")[:10], wav_format())

    assert (0, None) == (len(audio.samples), audio.sample_rate_hz)
    assert audio.notes


def test_libsndfile_reads_the_same_samples(tmp_path):
    """An ordinary file, through an independent reader."""
    path = tmp_path / "ordinary.wav"
    soundfile.write(path, clip(silence(10), tone(50)), 24_000, subtype="PCM_16")
    expected, _ = soundfile.read(path, dtype="float32")

    assert expected.tolist() == decode(path.read_bytes(), wav_format()).samples.tolist()


# -- any split ------------------------------------------------------------------------------------


def dialects() -> st.SearchStrategy[tuple[bytes, AudioFormat]]:
    data = ramp(300).tobytes()
    three = b"".join(wav(part, declared=0) for part in pieces(data, [200]))
    return st.sampled_from(
        [
            (data, pcm_format()),
            (data + b"\1", pcm_format(channels=2)),
            (data, pcm_format(SampleFormat.S24LE)),
            (pcm16(tone(10)), pcm_format(SampleFormat.MULAW)),
            (wav(data), wav_format()),
            (wav(data, declared=0xFFFFFFFF), wav_format()),
            (three, wav_format()),
            (wav(data, declared=300), wav_format()),
            (wav(data[:-1]) + chunk(b"LIST", b"INFO"), wav_format()),
            (wav(data + b"RIFFxxxxWAVEfmt " + data, declared=0), wav_format()),
        ]
    )


@settings(max_examples=150, deadline=None)
@given(dialects(), st.lists(st.integers(1, 97), min_size=1, max_size=8))
def test_any_split_decodes_as_the_whole(case, sizes):
    """How bytes were cut never changes a sample, and counts add up to all of them."""
    payload, fmt = case
    decoder = IncrementalDecoder(fmt)
    push_all(decoder, pieces(payload, sizes))
    audio = decoder.finish()
    whole = decode(payload, fmt)

    assert whole.samples.tolist() == audio.samples.tolist()
    assert whole.dangling_bytes == audio.dangling_bytes
    assert len(whole.samples) == sum(decoder.samples_per_chunk)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.sampled_from([pcm_format(), wav_format()]))
def test_hostile_bytes_end_in_samples_or_in_one_named_error(payload, fmt):
    """No other exception, and never more samples than bytes."""
    for prefix in (b"", wav(b"", declared=0), wav(b"")[:20]):
        try:
            audio = decode(prefix + payload, fmt)
        except AudioDecodeError:
            continue
        assert len(audio.samples) <= len(prefix + payload)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_stream_of_nothing_but_headers_ends_soon_and_empty(size):
    """20,000 of them; the work grows with their number, not with its square."""
    decoder = IncrementalDecoder(wav_format())
    push_all(decoder, pieces(wav(b"", declared=0) * (20_000 if size > 100 else 200), [size]))

    assert 0 == len(decoder.finish().samples)


def test_raw_samples_without_a_rate_are_refused():
    """A rate is never guessed."""
    fmt = AudioFormat(SampleFormat.S16LE, None, 1, RateSource.CONTRACT)
    with pytest.raises(AudioDecodeError, match="sample rate"):
        IncrementalDecoder(fmt)
