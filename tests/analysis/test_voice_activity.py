"""Speech is told from other sounds by its voicing, with the consonant that it begins with."""

from __future__ import annotations

import json
import urllib.request
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from analysis.onset import find_onset
from analysis.speech import open_whisper
from analysis.speech.transcribers import RECOGNISER_RATE_HZ, to_recogniser_rate
from analysis.voice_activity import find_speech_onset
from harness.prompts import load_prompts
from tests.builders.audio import RATE_HZ, buzz, clip, noise, silence, tone
from tests.builders.embedded import embedded_server

DATA = Path(__file__).parent / "data"
SPEECH = ("nasal", "plosive", "fricative", "vowel")
VOICE_RATE_HZ = 22_050
# Where nothing parts a hiss from the vowel behind it, the vowel is found on a grid of 5 ms, by
# frames of 40 ms of which half must be voiced.
GRID_MS = 15.0


def speech_ms(samples: NDArray[np.float32], rate_hz: int = RATE_HZ) -> float | None:
    """Media time of the speech onset."""
    found = find_speech_onset(samples, rate_hz)
    return None if found is None else found.media_ns / 1e6


def hiss(length_ms: float, level_dbfs: float = -30.0) -> NDArray[np.float64]:
    """Loud white noise."""
    return noise(length_ms, level_dbfs=level_dbfs)


@cache
def spoken(name: str) -> NDArray[np.float32]:
    """A short utterance of the bundled voice, from its first sound on."""
    samples, rate_hz = soundfile.read(DATA / f"{name}.flac", dtype="float32")
    assert rate_hz == VOICE_RATE_HZ
    onset = find_onset(samples, rate_hz)
    assert onset is not None
    return np.asarray(samples[onset.sample :])


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_a_vowel_after_silence_is_found_where_it_begins(rate_hz):
    """300 ms of zeros, then a voice of 120 Hz, at any sample rate."""
    samples = clip(silence(300, rate_hz), buzz(300, rate_hz))

    assert 300 == pytest.approx(speech_ms(samples, rate_hz), abs=3.0)


@pytest.mark.parametrize("pitch_hz", [80, 120, 220, 350])
def test_low_and_high_voices_are_speech(pitch_hz):
    """From a bass to a child."""
    samples = clip(silence(100), buzz(300, pitch_hz=pitch_hz))

    assert 100 == pytest.approx(speech_ms(samples), abs=3.0)


@pytest.mark.parametrize("begin_ms", range(400, 430, 5))
def test_a_vowel_behind_a_long_hiss_is_found_wherever_it_begins(begin_ms):
    """Of frames only every sixth is looked at first; a voice may begin at any of them."""
    samples = clip(hiss(begin_ms), buzz(200), silence(200))

    assert begin_ms == pytest.approx(speech_ms(samples), abs=GRID_MS)


@pytest.mark.parametrize("burst_ms", [50, 200, 600])
@pytest.mark.parametrize("pause_ms", [30, 150])
def test_a_noise_burst_before_a_pause_is_not_speech(burst_ms, pause_ms):
    """The level rule hears the burst at 0; speech begins after burst and pause."""
    samples = clip(hiss(burst_ms), silence(pause_ms), buzz(300))
    onset = find_onset(samples, RATE_HZ)

    assert 0 == pytest.approx(onset.media_ns / 1e6, abs=2.0)
    assert burst_ms + pause_ms == pytest.approx(speech_ms(samples), abs=3.0)


def test_a_hiss_as_long_as_a_consonant_belongs_to_the_vowel_behind_it():
    """ "s" of 100 ms, then a vowel: one word that begins at 200."""
    samples = clip(silence(200), hiss(100), buzz(300))

    assert 200 == pytest.approx(speech_ms(samples), abs=3.0)


def test_a_hiss_longer_than_any_consonant_does_not():
    """400 ms of noise run into a vowel: speech begins with the vowel."""
    samples = clip(silence(200), hiss(400), buzz(300))

    assert 600 == pytest.approx(speech_ms(samples), abs=GRID_MS)


@pytest.mark.parametrize("frequency_hz", [60, 150, 350, 1000])
def test_a_beep_is_not_speech(frequency_hz):
    """One line is periodic, and no voice; a pause of 100 ms follows."""
    samples = clip(tone(200, frequency_hz=frequency_hz), silence(100), buzz(300))

    assert 300 == pytest.approx(speech_ms(samples), abs=3.0)


@pytest.mark.parametrize("level_dbfs", [-40.0, -20.0, -6.0])
def test_noise_alone_is_no_speech(level_dbfs):
    """Ten seconds of it."""
    assert speech_ms(clip(hiss(10_000, level_dbfs))) is None


@pytest.mark.parametrize(
    "samples",
    [
        clip(silence(500)),
        clip(silence(5)),
        np.zeros(0, np.float32),
        np.full(9_600, np.nan, np.float32),
        np.ones(9_600, np.float32),
        clip(buzz(300, level_dbfs=-60.0)),
    ],
    ids=["silence", "shorter than a frame", "empty", "NaN", "at the rail", "inaudible"],
)
def test_what_holds_no_voice_has_no_speech_onset(samples):
    """Null, never 0."""
    assert speech_ms(samples) is None


def test_speech_is_not_sought_before_the_sample_it_cannot_precede():
    """Two vowels; from 500 ms on only the second one counts."""
    samples = clip(buzz(200), silence(400), buzz(300))
    found = find_speech_onset(samples, RATE_HZ, begin=RATE_HZ // 2)

    assert 600 == pytest.approx(found.media_ns / 1e6, abs=3.0)


def test_speech_far_into_a_clip_is_found():
    """After 20 s of silence."""
    assert 20_000 == pytest.approx(speech_ms(clip(silence(20_000), buzz(300))), abs=3.0)


@pytest.mark.parametrize("name", SPEECH)
@pytest.mark.parametrize("lead_ms", [0, 137, 900])
def test_real_speech_is_found_after_inserted_silence(name, lead_ms):
    """A recording cut to its first sound, behind a known length of zeros: 10 ms at most."""
    samples = np.concatenate([silence(lead_ms, VOICE_RATE_HZ).astype(np.float32), spoken(name)])

    assert lead_ms == pytest.approx(speech_ms(samples, VOICE_RATE_HZ), abs=10.0)


@pytest.mark.parametrize("name", SPEECH)
def test_real_speech_is_found_after_a_burst_of_noise(name):
    """300 ms of noise that buys a first sound, 200 ms of silence, then speech."""
    burst = noise(300, VOICE_RATE_HZ, level_dbfs=-30.0)
    samples = clip(burst, silence(200, VOICE_RATE_HZ), spoken(name))

    assert 500 == pytest.approx(speech_ms(samples, VOICE_RATE_HZ), abs=10.0)


@pytest.mark.bench
@pytest.mark.timeout(900)
def test_bench_voicing_against_the_recognisers_first_word():
    """Error of both on the bundled voice behind known silence; voicing is the closer one."""
    random = np.random.default_rng(1)
    recogniser = open_whisper()
    errors: dict[str, list[float]] = {"voicing": [], "recogniser's first word": []}
    for samples in _clips(12):
        lead_s = float(random.uniform(0.0, 1.5))
        lead = np.zeros(round(lead_s * VOICE_RATE_HZ), np.float32)
        late = np.concatenate([lead, samples])
        truth_ms = (lead_s + find_onset(samples, VOICE_RATE_HZ).media_ns / 1e9) * 1000
        errors["voicing"].append(speech_ms(late, VOICE_RATE_HZ) - truth_ms)
        heard = recogniser.recognise(
            to_recogniser_rate(late, VOICE_RATE_HZ),
            RECOGNISER_RATE_HZ,
            with_times=True,
            is_retry=False,
        )
        errors["recogniser's first word"].append(heard.words[0].start_s * 1000 - truth_ms)
    for name, found in errors.items():
        low, middle, high = np.percentile(found, [5, 50, 95])
        worst = np.abs(found).max()
        print(f"{name}: n {len(found)}, 5 % {low:.0f}, median {middle:.0f}, 95 % {high:.0f} ms,"
              f" largest {worst:.0f} ms")  # fmt: skip

    median = {name: np.median(np.abs(found)) for name, found in errors.items()}
    assert median["voicing"] < median["recogniser's first word"]


@pytest.mark.bench
@pytest.mark.timeout(900)
def test_bench_voicing_on_many_sentences():
    """Error on 60 sentences behind known silence, and behind 300 ms of noise and a pause."""
    random = np.random.default_rng(1)
    errors: dict[str, list[float]] = {"silence": [], "noise and a pause": []}
    for samples in _clips(60):
        truth = find_onset(samples, VOICE_RATE_HZ)
        lead_ms = float(random.uniform(0.0, 1500.0))
        leads = {
            "silence": silence(lead_ms, VOICE_RATE_HZ),
            "noise and a pause": np.concatenate(
                [noise(300, VOICE_RATE_HZ, level_dbfs=-30.0), silence(200, VOICE_RATE_HZ)]
            ),
        }
        for name, lead in leads.items():
            truth_ms = 1000 * len(lead) / VOICE_RATE_HZ
            found = speech_ms(clip(lead, samples[truth.sample :]), VOICE_RATE_HZ)
            errors[name].append(np.inf if found is None else found - truth_ms)
    for name, found in errors.items():
        size = np.sort(np.abs(found))
        print(f"behind {name}: n {len(size)}, within 2 ms {(size <= 2).sum()}, the others"
              f" {', '.join(f'{each:.1f}' for each in size[size > 2])} ms,"
              f" largest within {size[size <= 2].max():.2f} ms")  # fmt: skip

    assert all(np.quantile(np.abs(found), 0.9) <= 10.0 for found in errors.values())


def _clips(count: int) -> list[NDArray[np.float32]]:
    prompts = load_prompts("voice-agent", tags=["wer", "short"]).prompts[:count]
    with embedded_server(mode="sentence") as base_url:
        return [_said(base_url, prompt.text) for prompt in prompts]


def _said(base_url: str, text: str) -> NDArray[np.float32]:
    body = json.dumps({"input": text, "response_format": "pcm"}).encode()
    request = urllib.request.Request(
        f"{base_url}/v1/audio/speech", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return np.frombuffer(reply.read(), "<i2").astype(np.float32) / 32768
