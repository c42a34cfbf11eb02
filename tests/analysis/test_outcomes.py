"""The final outcome of a request: the wire's word first, then what the audio says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.outcomes import FinalOutcome
from analysis.view import AnalysisSettings
from engines.base import OddByte, SampleFormat
from engines.outcomes import TransportOutcome
from tests.builders.audio import (
    clip,
    fmt_block,
    noise,
    pcm16,
    pcm_format,
    silence,
    tone,
    wav,
    wav_format,
)
from tests.builders.runs import chunks_of
from tests.builders.views import view

PCM = pcm_format()


def one_chunk(payload: bytes, **fields):
    return view(chunks=chunks_of([(10, len(payload))]), payload=payload, **fields)


@pytest.mark.parametrize("ending", [o for o in TransportOutcome if o is not TransportOutcome.OK])
def test_wire_failure_stays_what_it_was(ending):
    """Even with perfect sound in what was received."""
    assert ending.value == view([(10, tone(300))], transport_outcome=ending).outcome


def test_every_wire_outcome_has_a_final_one():
    """The final list is the wire's plus four."""
    added = {"empty_audio", "silent", "runaway", "wrong_format"}

    assert {o.value for o in TransportOutcome} | added == {o.value for o in FinalOutcome}


def test_sound_and_a_clean_end_is_ok():
    """The ordinary case."""
    assert FinalOutcome.OK is view([(10, tone(300))]).outcome


def test_clean_end_without_a_body_is_empty_audio():
    """No chunk at all."""
    assert FinalOutcome.EMPTY_AUDIO is view().outcome


def test_header_and_nothing_else_is_empty_audio():
    """44 bytes are bytes, not audio."""
    assert FinalOutcome.EMPTY_AUDIO is one_chunk(wav(b""), audio_format=wav_format()).outcome


@pytest.mark.parametrize(
    "samples",
    [silence(800), noise(800, level_dbfs=-50), clip(silence(300), tone(3), silence(300))],
)
def test_samples_without_an_onset_are_silent(samples):
    """Zeros, low noise, a click."""
    assert FinalOutcome.SILENT is view([(10, samples)]).outcome


def test_bytes_that_do_not_decode_are_wrong_format():
    """The reason says what was found."""
    found = one_chunk(b"ID3\4" + bytes(400), audio_format=wav_format())

    assert FinalOutcome.WRONG_FORMAT is found.outcome
    assert "RIFF" in found.reason


@pytest.mark.parametrize(
    ("header", "expected", "words"),
    [
        ({"rate_hz": 22_050}, pcm_format(), "22050"),
        ({"channels": 2}, pcm_format(), "2 channels"),
        ({"bits": 8}, pcm_format(), "samples are wav"),
    ],
)
def test_container_that_breaks_the_contracts_promise_is_wrong_format(header, expected, words):
    """Rate, channels or sample format differ."""
    payload = wav(pcm16(tone(400)), fmt=fmt_block(**header))
    found = one_chunk(payload, audio_format=wav_format(), expected_format=expected)

    assert FinalOutcome.WRONG_FORMAT is found.outcome
    assert words in found.reason


def test_wav_around_the_promised_samples_is_no_lie():
    """The contract promised 16-bit samples and they are inside."""
    found = one_chunk(wav(pcm16(tone(400))), audio_format=wav_format(), expected_format=PCM)

    assert FinalOutcome.OK is found.outcome


@pytest.mark.parametrize("expected", [pcm_format(), replace(wav_format(), sample_rate_hz=24_000)])
def test_container_that_was_not_recorded_has_broken_no_promise(expected):
    """Its header would say rate, channels and samples; what was not measured is no failure."""
    chunks = chunks_of([(10, 9644)])
    found = view(chunks=chunks, payload=b"", audio_format=wav_format(), expected_format=expected)

    assert (FinalOutcome.OK, None) == (found.outcome, found.reason)


def test_other_raw_samples_than_promised_are_wrong_format():
    """Float against 16-bit."""
    found = one_chunk(bytes(4000), audio_format=pcm_format(SampleFormat.F32LE), expected_format=PCM)

    assert FinalOutcome.WRONG_FORMAT is found.outcome


@pytest.mark.parametrize("num_kept", [14_401, 9_600, 0])
@pytest.mark.parametrize(
    ("odd_byte", "outcome"),
    [(OddByte.REPORT, FinalOutcome.OK), (OddByte.ERROR, FinalOutcome.WRONG_FORMAT)],
)
def test_odd_byte_is_an_error_only_where_the_contract_says_so(odd_byte, outcome, num_kept):
    """One stray byte behind the last sample, however much of the sound was kept."""
    payload = pcm16(tone(300)) + b"\1"
    fmt = replace(PCM, odd_byte=odd_byte)
    chunks = chunks_of([(10, len(payload))])

    assert outcome is view(chunks=chunks, payload=payload[:num_kept], audio_format=fmt).outcome


@pytest.mark.parametrize(("seconds", "outcome"), [(4.9, "ok"), (5.2, "runaway")])
def test_runaway_needs_more_than_five_seconds(seconds, outcome):
    """12 characters may take 3 s by the rate alone, and 5 s in any case."""
    assert outcome == view([(10, tone(1000 * seconds))], text="Hello there.").outcome


@pytest.mark.parametrize(("seconds", "outcome"), [(9.9, "ok"), (10.1, "runaway")])
def test_runaway_needs_more_than_a_quarter_second_per_character(seconds, outcome):
    """40 characters."""
    assert outcome == view([(10, tone(1000 * seconds))], text="x" * 40).outcome


def test_runaway_cannot_be_told_without_the_text():
    """The run kept none."""
    assert FinalOutcome.OK is view([(10, tone(8000))], text="").outcome


def test_reply_recorded_without_audio_is_not_called_silent():
    """What was not recorded is not known."""
    found = view(chunks=chunks_of([(10, 4800)]), payload=b"")

    assert FinalOutcome.OK is found.outcome


def test_head_of_a_recording_without_an_onset_is_not_called_silent():
    """The sound may come later."""
    found = view(chunks=chunks_of([(10, 4800), (20, 4800)]), payload=bytes(4800))

    assert FinalOutcome.OK is found.outcome


def test_cancelled_is_neither_good_nor_failed():
    """It ranks nowhere; the others do."""
    assert not FinalOutcome.CANCELLED.is_failure
    assert not FinalOutcome.OK.is_failure
    assert FinalOutcome.TRUNCATED.is_failure


def test_onset_of_the_preset_decides_what_is_silent():
    """A tone of -50 dBFS is silent by default and heard by a lower threshold."""
    quiet = AnalysisSettings()
    keen = replace(quiet, onset=replace(quiet.onset, name="keen", threshold_dbfs=-60))

    assert "silent" == view([(10, tone(400, level_dbfs=-50))], settings=quiet).outcome
    assert "ok" == view([(10, tone(400, level_dbfs=-50))], settings=keen).outcome
