"""The onset rule against sounds whose beginning is known without it.

Synthetic clips say by construction where they begin; real speech by a plain reading of its level
in blocks of a millisecond, which shares nothing with the detector.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audio import IncrementalDecoder, decode
from analysis.onset import DEFAULT, NARI_V1, find_onset
from harness.truth.sound import Sound, Voice, render
from tests.builders.audio import pcm16, pcm_format

DATA = Path(__file__).parent / "data"
SPEECH = ("nasal", "plosive", "fricative", "vowel")
SPEECH_RATE_HZ = 22_050

FAMILIES = {
    "abrupt tone": {},
    "abrupt noise": {"voice": "noise"},
    "5 ms rise": {"rise_ms": 5.0},
    "50 ms rise": {"rise_ms": 50.0},
    "20 ms rise over noise": {"rise_ms": 20.0, "floor_dbfs": -55.0},
    "over noise": {"floor_dbfs": -50.5},
    "over an offset": {"dc": 0.3},
    "dithered": {"is_dithered": True},
    "behind clicks": {"clicks": True},
    "over everything": {"floor_dbfs": -55.0, "dc": -0.2, "is_dithered": True, "clicks": True},
}


def sound(family: str, *, lead_ms: float, level_dbfs: float = -20.0, **more: object) -> Sound:
    """One of the families; clicks lie at a third and at two thirds of the silence."""
    fields = {"duration_ms": lead_ms + 400.0, "lead_ms": lead_ms, "level_dbfs": level_dbfs}
    fields |= {name: value for name, value in FAMILIES[family].items() if name != "clicks"}
    if "clicks" in FAMILIES[family] and lead_ms > 20:
        fields["clicks_ms"] = (lead_ms / 3, 2 * lead_ms / 3)
    return Sound.model_validate({**fields, **more}, strict=False)


def error_ms(made: Sound) -> float:
    """Found minus true; early is negative."""
    clip = render(made)
    found = find_onset(clip.samples.astype(np.float32) / 32_768, clip.sample_rate_hz)
    assert found is not None
    assert clip.onset_sample is not None
    return (found.sample - clip.onset_sample) * 1000 / clip.sample_rate_hz


@pytest.mark.parametrize("lead_ms", [0.0, 3.4, 55.0, 400.7])
@pytest.mark.parametrize("level_dbfs", [-6.0, -20.0, -38.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_onset_is_right_to_2_ms(family: str, level_dbfs: float, lead_ms: float):
    """Every family, loud and quiet, at once and late."""
    assert abs(error_ms(sound(family, lead_ms=lead_ms, level_dbfs=level_dbfs))) <= 2.0


@pytest.mark.parametrize("sample_rate_hz", [8_000, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("frequency_hz", [90.0, 1_000.0, 3_500.0])
def test_rate_and_pitch_do_not_matter(sample_rate_hz: int, frequency_hz: float):
    """From 8 to 48 kHz."""
    made = sound(
        "abrupt tone", lead_ms=123.4, sample_rate_hz=sample_rate_hz, frequency_hz=frequency_hz
    )

    assert abs(error_ms(made)) <= 2.0


SLOW_FADES = [(50.0, -38.0), (100.0, -38.0), (200.0, -30.0), (100.0, -30.0)]


@pytest.mark.parametrize(("rise_ms", "level_dbfs"), SLOW_FADES)
@pytest.mark.parametrize("frequency_hz", [150.0, 440.0, 2_000.0])
def test_slow_fade_is_found_where_it_becomes_audible(
    frequency_hz: float, rise_ms: float, level_dbfs: float
):
    """At 0.2 dB/ms too."""
    made = sound(
        "abrupt tone", lead_ms=150.0, level_dbfs=level_dbfs, rise_ms=rise_ms,
        frequency_hz=frequency_hz,
    )  # fmt: skip

    assert abs(error_ms(made)) <= 2.0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("voice", "limit_db"), [("tone", 1.0), ("noise", 1.5)])
@pytest.mark.parametrize(("rise_ms", "level_dbfs"), SLOW_FADES)
def test_slow_fade_over_noise_begins_where_its_level_is_the_threshold(
    voice: str, limit_db: float, rise_ms: float, level_dbfs: float, seed: int
):
    """Noise 5.5 dB below the threshold leaves a level that unsure, and so a fade's moment."""
    made = sound(
        "abrupt tone", lead_ms=150.0, level_dbfs=level_dbfs, rise_ms=rise_ms, floor_dbfs=-50.5,
        voice=voice, seed=seed,
    )  # fmt: skip
    clip = render(made)
    found = find_onset(clip.samples.astype(np.float32) / 32_768, clip.sample_rate_hz)

    assert found is not None
    share = (found.media_ns / 1e6 - 150.0) / rise_ms
    level = 10 ** (-50.5 / 10) + 10 ** (level_dbfs / 10) * max(0.0, share) ** 2
    assert abs(10 * np.log10(level) + 45.0) <= limit_db


@pytest.mark.parametrize("lead_ms", [0.5, 2.5, 5.0, 9.0])
@pytest.mark.parametrize("family", ["abrupt tone", "abrupt noise", "over an offset", "5 ms rise"])
@pytest.mark.parametrize("seed", range(3))
def test_loud_sound_does_not_move_the_silence_just_before_it(
    family: str, lead_ms: float, seed: int
):
    """A lead too short for a window of its own is still silence, whatever its offset."""
    made = sound(family, lead_ms=lead_ms, level_dbfs=-6.0, seed=seed)

    assert -2.0 <= error_ms(made) <= 2.0


@pytest.mark.parametrize("seed", range(10))
def test_noise_floor_never_makes_it_early(seed: int):
    """-50.5 dBFS of noise under a second of silence."""
    assert -2.0 <= error_ms(sound("over noise", lead_ms=1_000.0, seed=seed)) <= 2.0


@pytest.mark.parametrize(
    "fields",
    [
        {"floor_dbfs": -50.0},
        {"dc": 0.4},
        {"dc": 1.0},
        {"is_dithered": True},
        {"lead_ms": 900.0, "clicks_ms": [100.0, 350.0, 351.0, 600.0]},
        {"floor_dbfs": -50.0, "dc": 0.2, "lead_ms": 900.0, "clicks_ms": [200.0]},
    ],
)
def test_what_is_no_voice_has_no_onset(fields: dict[str, object]):
    """Noise, offsets, rails and clicks alone."""
    made = Sound.model_validate(
        {"duration_ms": 1_000.0, "voice": Voice.NONE, **fields}, strict=False
    )
    clip = render(made)

    assert find_onset(clip.samples.astype(np.float32) / 32_768, clip.sample_rate_hz) is None


# -- real speech -----------------------------------------------------------------------------------


@cache
def spoken(name: str) -> np.ndarray:
    """An utterance, cut where it begins: at the first of 20 ms that are audible in 15 of 20 blocks.

    A block is a millisecond; audible is -45 dBFS.
    """
    samples, rate_hz = soundfile.read(DATA / f"{name}.flac", dtype="float32")
    assert rate_hz == SPEECH_RATE_HZ
    block = rate_hz // 1000
    blocks = samples[: len(samples) // block * block].reshape(-1, block)
    is_audible = np.sqrt((blocks**2).mean(axis=1)) >= 10 ** (-45 / 20)
    begins = [
        i for i in range(len(blocks) - 20) if is_audible[i] and is_audible[i : i + 20].sum() >= 15
    ]
    return samples[begins[0] * block :]


@pytest.mark.parametrize("floor_dbfs", [None, -55.0])
@pytest.mark.parametrize("silence_ms", [0.0, 41.3, 400.0, 1_500.0])
@pytest.mark.parametrize("name", SPEECH)
def test_speech_is_found_behind_inserted_silence(name: str, silence_ms: float, floor_dbfs):
    """Right to 10 ms, and never early by more than 2."""
    silence = np.zeros(round(silence_ms * SPEECH_RATE_HZ / 1000), dtype=np.float32)
    clip = np.concatenate((silence, spoken(name)))
    if floor_dbfs is not None:
        random = np.random.default_rng(len(name))
        clip = clip + random.normal(0, 10 ** (floor_dbfs / 20), len(clip)).astype(np.float32)
    found = find_onset(clip, SPEECH_RATE_HZ)

    assert found is not None
    assert -2.0 <= found.media_ns / 1e6 - silence_ms <= 10.0


@pytest.mark.parametrize("name", SPEECH)
def test_speech_is_found_at_the_same_place_wherever_it_lies(name: str):
    """More silence moves the onset by as much, to the sample."""
    places = set()
    for num_silent in (2_000, 2_001, 9_999):
        clip = np.concatenate((np.zeros(num_silent, dtype=np.float32), spoken(name)))
        found = find_onset(clip, SPEECH_RATE_HZ)
        assert found is not None
        places.add(found.sample - num_silent)

    assert max(places) - min(places) <= SPEECH_RATE_HZ // 1000


# -- presets and splits ----------------------------------------------------------------------------


def nari_rule(samples: np.ndarray, rate_hz: int) -> int | None:
    """The published rule, one window after the other: 20 ms every 10 ms, -45 dBFS, two in a row."""
    window, hop = round(0.020 * rate_hz), rate_hz / 100
    was_active, index = False, 0
    while round(index * hop) + window <= len(samples):
        part = samples[round(index * hop) :][:window].astype(np.float64)
        is_active = np.sqrt(np.mean((part - part.mean()) ** 2)) >= 10 ** (-45 / 20)
        if is_active and was_active:
            return round((index - 1) * hop)
        was_active, index = is_active, index + 1
    return None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lead_ms", [0.0, 33.3, 250.0])
def test_nari_preset_is_the_published_rule(family: str, lead_ms: float):
    """On synthetic sounds of every kind."""
    clip = render(sound(family, lead_ms=lead_ms))
    samples = clip.samples.astype(np.float32) / 32_768
    found = find_onset(samples, clip.sample_rate_hz, preset=NARI_V1)

    assert found is not None
    assert nari_rule(samples, clip.sample_rate_hz) == found.sample


@pytest.mark.parametrize("name", SPEECH)
def test_the_two_rules_differ_by_less_than_the_coarser_ones_window(name: str):
    """On speech the published rule says up to 20 ms earlier, never later."""
    clip = np.concatenate((np.zeros(5_000, dtype=np.float32), spoken(name)))
    ours, theirs = (find_onset(clip, SPEECH_RATE_HZ, preset=p) for p in (DEFAULT, NARI_V1))

    assert ours is not None
    assert theirs is not None
    assert 0 <= (ours.media_ns - theirs.media_ns) / 1e6 <= 20


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 700), min_size=1, max_size=12), st.sampled_from(SPEECH))
def test_onset_does_not_depend_on_how_bytes_were_cut(sizes: list[int], name: str):
    """Any pieces, odd ones too, give the same samples and so the same onset."""
    payload = pcm16(np.concatenate((np.zeros(1_500), spoken(name)[:6_000])))
    fmt = pcm_format(rate_hz=SPEECH_RATE_HZ)
    decoder, at, turn = IncrementalDecoder(fmt), 0, 0
    while at < len(payload):
        size = sizes[turn % len(sizes)]
        decoder.push(payload[at : at + size])
        at, turn = at + size, turn + 1
    whole, pieces = decode(payload, fmt).samples, decoder.finish().samples

    assert find_onset(whole, SPEECH_RATE_HZ) == find_onset(pieces, SPEECH_RATE_HZ)
