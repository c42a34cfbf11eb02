"""Clips begin where they say they do."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from harness.config_errors import validate
from harness.errors import ScenarioError
from harness.truth.sound import Sound, Voice, render


def sound(**fields: object) -> Sound:
    """Half a second at 24 kHz."""
    return validate(Sound, {"duration_ms": 500.0, **fields}, where="sound", error=ScenarioError)


def test_onset_of_an_abrupt_tone_is_its_first_sample():
    """Silence before it, the tone's crest at it."""
    clip = render(sound(lead_ms=100))

    assert 2400 == clip.onset_sample
    assert 0 == np.abs(clip.samples[:2400]).max()
    assert round(32_767 * 0.1 * np.sqrt(2)) == clip.samples[2400]


def test_level_is_the_rms_of_the_voice():
    """-20 dBFS, tone or noise."""
    for voice in ("tone", "noise"):
        samples = render(sound(voice=voice)).samples / 32_767

        assert -20 == pytest.approx(20 * np.log10(np.sqrt(np.mean(samples**2))), abs=0.2)


def test_onset_of_a_rise_is_where_it_becomes_audible():
    """-25 dB below the tone's level is a share of 0.056 of the rise."""
    clip = render(sound(lead_ms=100, rise_ms=100, level_dbfs=-20))

    assert round(2400 + 2400 * 10 ** (-25 / 20)) == clip.onset_sample


def test_what_lies_under_the_voice_does_not_move_it():
    """Noise, clicks, an offset and dither are in the clip, the onset stays."""
    clip = render(sound(lead_ms=100, floor_dbfs=-60, dc=0.1, clicks_ms=[40], is_dithered=True))

    assert 2400 == clip.onset_sample
    assert 32_767 == clip.samples[960]
    assert 3277 == pytest.approx(np.mean(clip.samples[:900]), abs=20)


def test_silent_clip_has_no_onset():
    """Nothing to hear, nothing to find."""
    clip = render(sound(voice="none", floor_dbfs=-60))

    assert clip.onset_sample is None
    assert np.abs(clip.samples).max() > 0


def test_same_sound_is_the_same_every_time():
    """Noise comes from the seed."""
    first, second, other = (render(sound(voice="noise", seed=seed)).samples for seed in (1, 1, 2))

    assert (first == second).all()
    assert (first != other).any()


def test_recording_is_put_behind_the_silence(tmp_path: Path):
    """Its own onset counts from where it was put."""
    path = tmp_path / "voice.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(np.arange(100, 1300, dtype="<i2").tobytes())
    clip = render(sound(voice="recording", file=str(path), lead_ms=50, onset_ms=10))

    assert 1200 + 240 == clip.onset_sample
    assert [0, 100, 101] == clip.samples[1199:1202].tolist()


def test_recording_of_another_kind_is_refused(tmp_path: Path):
    """By name, with what was found and what was expected."""
    path = tmp_path / "stereo.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((2, 2, 48_000, 0, "NONE", ""))
        file.writeframes(bytes(400))
    with pytest.raises(ScenarioError, match="2 channels, 16 bits, 48000 Hz; expected mono"):
        render(sound(voice="recording", file=str(path)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"voice": "recording"}, "a recording needs `file`"),
        ({"level_dbfs": -50}, "is not audible; say voice: none"),
        ({"clicks_ms": [10], "lead_ms": 5}, "clicks lie in the leading silence"),
        ({"voice": "tonne"}, "'tonne' is not one of tone, noise, recording, none"),
        ({"floor_dbfs": -40}, "floor_dbfs"),
    ],
)
def test_sound_that_makes_no_sense_is_refused(fields: dict[str, object], said: str):
    """One line that says why."""
    with pytest.raises(ScenarioError, match=said):
        sound(**fields)


def test_every_voice_can_be_made():
    """All but the one that needs a file."""
    for voice in Voice:
        if voice is not Voice.RECORDING:
            assert 12_000 == len(render(sound(voice=voice.value)).samples)
