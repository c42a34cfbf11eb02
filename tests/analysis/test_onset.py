"""The onset rule: within 2 ms of the truth, never fooled by what is not sound."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.audio import decode
from analysis.onset import DEFAULT, NARI_V1, Onset, OnsetPreset, find_onset
from tests.builders.audio import (
    RATE_HZ,
    clip,
    faded,
    noise,
    num_samples,
    pcm16,
    pcm_format,
    silence,
    tone,
)

THRESHOLD = 10 ** (-45 / 20)


def onset_ms(samples, rate_hz=RATE_HZ, preset=DEFAULT) -> float | None:
    found = find_onset(samples, rate_hz, preset=preset)
    return None if found is None else found.sample * 1000 / rate_hz


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("level_dbfs", [-6, -20, -40])
@pytest.mark.parametrize("frequency_hz", [100, 440, 3000])
@pytest.mark.parametrize("offset_ms", [0, 3.3, 17, 400.3])
def test_abrupt_tone_is_found_within_2_ms(rate_hz, level_dbfs, frequency_hz, offset_ms):
    """Whatever rate, level, pitch and offset."""
    sound = tone(200, rate_hz, frequency_hz=frequency_hz, level_dbfs=level_dbfs)
    samples = clip(silence(offset_ms, rate_hz), sound)

    assert num_samples(offset_ms, rate_hz) * 1000 / rate_hz == pytest.approx(
        onset_ms(samples, rate_hz), abs=2.0
    )


@pytest.mark.parametrize("floor_dbfs", [-70, -55, -50])
@pytest.mark.parametrize("seed", range(5))
def test_tone_over_a_noise_floor_is_found_within_2_ms(floor_dbfs, seed):
    """Steady noise below the threshold neither hides nor hastens the onset."""
    samples = clip(silence(100), tone(300)) + noise(400, level_dbfs=floor_dbfs, seed=seed)

    assert 100 == pytest.approx(onset_ms(samples.astype(np.float32)), abs=2.0)


@pytest.mark.parametrize("fade_ms", [5, 20, 50])
@pytest.mark.parametrize("level_dbfs", [-10, -20, -30])
@pytest.mark.parametrize("frequency_hz", [220, 1000])
def test_fade_in_is_found_where_its_level_passes_the_threshold(fade_ms, level_dbfs, frequency_hz):
    """A rise is heard once it is loud enough, not where it starts from nothing."""
    sound = faded(tone(300, frequency_hz=frequency_hz, level_dbfs=level_dbfs), fade_ms)
    crossing_ms = fade_ms * THRESHOLD / 10 ** (level_dbfs / 20)

    assert 50 + crossing_ms == pytest.approx(onset_ms(clip(silence(50), sound)), abs=2.0)


def test_constant_offset_neither_hides_nor_hastens_an_onset():
    """A strong offset under the whole clip."""
    samples = clip(silence(120), tone(300)) + np.float32(0.3)

    assert 120 == pytest.approx(onset_ms(samples), abs=2.0)


def test_loud_tone_is_found_to_the_sample():
    """An abrupt full tone passes the level with its second sample (the first is zero)."""
    assert (
        120 * RATE_HZ // 1000 + 1
        == find_onset(clip(silence(120), tone(300, level_dbfs=-6)), RATE_HZ).sample
    )


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("nothing", silence(0)),
        ("digital silence", silence(1000)),
        ("shorter than a window", tone(5)),
        ("one sample click", np.concatenate([silence(100), [1.0], silence(400)])),
        ("3 ms click", np.concatenate([silence(100), tone(3, level_dbfs=-3), silence(400)])),
        ("clicks every 50 ms", np.tile(np.concatenate([[0.9], silence(50)]), 10)),
        ("constant offset", np.full(12_000, 0.5)),
        ("offset that steps", np.concatenate([silence(200), np.full(7200, 0.4)])),
        ("stuck at the rail", np.full(12_000, 1.0)),
        ("stuck at the lower rail after silence", np.concatenate([silence(99), -np.ones(9000)])),
        ("steady -50 dBFS noise", noise(3000, level_dbfs=-50, seed=3)),
        ("NaN", np.full(12_000, np.nan)),
        ("infinity", np.full(12_000, np.inf)),
        ("tone below the threshold", tone(1000, level_dbfs=-47)),
        ("20 ms of tone", np.concatenate([silence(100), tone(20), silence(400)])),
    ],
)
def test_what_is_not_a_sound_is_no_onset(name, samples):
    """Clicks, offsets, rails, low noise: silent."""
    assert find_onset(samples.astype(np.float32), RATE_HZ) is None


def test_click_before_the_sound_is_passed_over():
    """The onset is that of the sound 80 ms later."""
    samples = clip(silence(20), np.array([0.99]), silence(80), tone(300))

    assert 100 == pytest.approx(onset_ms(samples), abs=2.0)


def test_nan_before_the_sound_is_passed_over():
    """A broken stretch does not poison the sums behind it."""
    samples = clip(np.full(2400, np.nan), silence(100), tone(300))

    assert 200 == pytest.approx(onset_ms(samples), abs=2.0)


def test_onset_after_a_long_silence_is_found():
    """Beyond the stretch that is looked at first."""
    assert 4321 == pytest.approx(onset_ms(clip(silence(4321), tone(100))), abs=2.0)


@pytest.mark.parametrize("offset_ms", [0, 15, 400])
def test_nari_preset_is_never_late_and_as_coarse_as_its_hop(offset_ms):
    """The start of the first of two 20 ms windows, on a 10 ms grid."""
    found = onset_ms(clip(silence(offset_ms), tone(300)), preset=NARI_V1)

    assert offset_ms - 20 <= found <= offset_ms
    assert 0 == found % 10


def test_nari_preset_needs_two_windows_in_a_row():
    """A click is in at most two windows that overlap, unless it sits where they do."""
    samples = clip(silence(105), np.array([0.9]), silence(300))
    alone = OnsetPreset("one", window_ms=20, hop_ms=20, sustain_ms=20, short_time_ms=None)

    assert 100 == onset_ms(samples, preset=alone)
    assert 90 == onset_ms(samples, preset=NARI_V1)
    assert onset_ms(samples) is None


def test_quantised_payload_keeps_the_onset():
    """Through int16 bytes and back."""
    payload = pcm16(clip(silence(400), tone(500)))
    audio = decode(payload, pcm_format())

    assert 400 == pytest.approx(onset_ms(audio.samples), abs=2.0)


def test_media_time_is_that_of_the_sample():
    """In whole nanoseconds."""
    found = find_onset(clip(silence(100), tone(300)), RATE_HZ)

    assert Onset(found.sample, round(found.sample * 1e9 / RATE_HZ)) == found


def test_preset_with_no_duration_is_refused():
    """A bad setting is an error, not a default."""
    with pytest.raises(ValueError, match="durations"):
        OnsetPreset("bad", sustain_ms=0)
