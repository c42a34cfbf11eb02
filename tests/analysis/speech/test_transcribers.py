"""Every second is heard once, at the right rate, and silence is never turned into words."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.speech.transcribers import Guard, Recognised, to_recogniser_rate, transcribe
from analysis.speech.wer import align
from tests.builders.speech import (
    ScriptedTranscriber,
    ThirtySecondFake,
    spoken_clip,
    tone,
)

NINETY_WORDS = " ".join(f"w{i}" for i in range(90))


@pytest.mark.parametrize("sample_rate_hz", [16_000, 22_050, 24_000, 48_000])
def test_all_ninety_words_of_a_45_s_clip_are_heard(sample_rate_hz):
    """A recogniser that stops after 30 s of a call loses nothing, at any source rate."""
    heard = transcribe(ThirtySecondFake(90), spoken_clip(90, sample_rate_hz), sample_rate_hz)

    assert (NINETY_WORDS, 0.0) == (heard.text, align(NINETY_WORDS, heard.text).wer)


def test_cutting_at_30_s_would_lose_a_third():
    """The fake does stop at 30 s: one call alone hears 60 of 90 words."""
    fake = ThirtySecondFake(90)
    heard = fake.recognise(spoken_clip(90, 16_000), 16_000, with_times=False, is_retry=False)

    assert pytest.approx(30 / 90) == align(NINETY_WORDS, heard.text).wer


def test_calls_cover_the_clip_plus_the_overlap_at_16_khz():
    """45 s of audio are passed on as 50 s: one overlap of 5 s, declared as 16 kHz."""
    fake = ThirtySecondFake(90)
    transcribe(fake, spoken_clip(90, 24_000), 24_000)

    assert ({16_000}, 50.0) == (
        {rate for _, rate in fake.calls},
        sum(size for size, _ in fake.calls) / 16_000,
    )


@pytest.mark.parametrize("shift_s", [0.0, 0.13, 0.25, 0.38])
def test_a_word_on_the_seam_appears_once(shift_s):
    """Wherever the borders fall inside words, each word is there exactly once."""
    silence = np.zeros(round(shift_s * 16_000), np.float32)
    clip = np.concatenate([silence, spoken_clip(90, 16_000)])

    assert NINETY_WORDS == transcribe(ThirtySecondFake(90), clip, 16_000).text


def test_three_windows_are_joined_like_two():
    """80 s need three calls."""
    heard = transcribe(ThirtySecondFake(160), spoken_clip(160, 16_000), 16_000)

    assert (3, " ".join(f"w{i}" for i in range(160))) == (heard.num_windows, heard.text)


def test_short_clip_is_one_call():
    """No window, no seam."""
    transcriber = ScriptedTranscriber("hello")
    transcribe(transcriber, tone(2.0, 16_000), 16_000)

    assert [(32_000, 16_000, False)] == transcriber.calls


@pytest.mark.parametrize(
    ("samples", "guard"),
    [
        (np.zeros(24_000, np.float32), Guard.TOO_QUIET),
        (np.full(24_000, 0.5, np.float32), Guard.TOO_QUIET),
        (np.full(24_000, np.nan, np.float32), Guard.TOO_QUIET),
        (tone(1.0, 24_000, level=0.001), Guard.TOO_QUIET),
        (tone(0.02, 24_000), Guard.TOO_SHORT),
        (np.zeros(0, np.float32), Guard.TOO_SHORT),
    ],
    ids=["zeros", "constant offset", "not a number", "below -45 dBFS", "20 ms", "empty"],
)
def test_recogniser_is_not_asked_about_nothing(samples, guard):
    """A recogniser says "you" to silence; it must not get the chance."""
    transcriber = ScriptedTranscriber("you")
    heard = transcribe(transcriber, samples, 24_000)

    assert ("", guard, []) == (heard.text, heard.guard, transcriber.calls)


def test_silent_window_of_a_long_clip_adds_no_words():
    """The guard works window by window: silence after speech stays silent."""
    clip = np.concatenate([spoken_clip(40, 16_000), np.zeros(16_000 * 40, np.float32)])
    heard = transcribe(ThirtySecondFake(40), clip, 16_000)

    assert " ".join(f"w{i}" for i in range(40)) == heard.text


def test_unsure_answer_to_no_speech_is_dropped():
    """Whisper's own rule: likely no speech, and an unlikely text."""
    unsure = Recognised("you", (), mean_logprob=-1.7, no_speech_probability=0.86)
    heard = transcribe(ScriptedTranscriber(unsure), tone(1.0, 16_000), 16_000)

    assert ("", Guard.NO_SPEECH) == (heard.text, heard.guard)


def test_confident_text_is_kept_though_speech_seemed_unlikely():
    """Both signs are needed."""
    sure = Recognised("hello", (), mean_logprob=-0.1, no_speech_probability=0.86)
    heard = transcribe(ScriptedTranscriber(sure), tone(1.0, 16_000), 16_000)

    assert ("hello", Guard.NONE) == (heard.text, heard.guard)


def test_looping_decoder_gets_one_wider_search():
    """A stuck recogniser must not look like a stuck voice."""
    transcriber = ScriptedTranscriber("so so so so so so", "so it is")
    heard = transcribe(transcriber, tone(1.0, 16_000), 16_000)

    assert ("so it is", Guard.LOOP_RETRIED) == (heard.text, heard.guard)
    assert [False, True] == [is_retry for _, _, is_retry in transcriber.calls]


def test_loop_that_stays_is_reported_as_it_is():
    """Two searches agree: the audio repeats itself, and the transcript shows it."""
    heard = transcribe(ScriptedTranscriber("so so so so so"), tone(1.0, 16_000), 16_000)

    assert ("so so so so so", Guard.LOOP) == (heard.text, heard.guard)


def test_resampling_keeps_a_tone_at_its_pitch():
    """1 kHz at 22 050 Hz is 1 kHz at 16 kHz, and a second stays a second."""
    resampled = to_recogniser_rate(tone(1.0, 22_050), 22_050)
    spectrum = np.abs(np.fft.rfft(resampled))

    assert (16_000, 1000) == (len(resampled), int(spectrum.argmax()))


def test_resampling_keeps_out_what_16_khz_cannot_hold():
    """A 10 kHz tone must not come back as 6 kHz."""
    times = np.arange(48_000) / 48_000
    high = np.sin(2 * np.pi * 10_000 * times).astype(np.float32)

    assert np.abs(to_recogniser_rate(high, 48_000)[800:-800]).max() < 0.01
