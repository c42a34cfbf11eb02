"""Clips whose first audible sample is known, because it was put there.

A clip is int16 mono. Where its onset lies follows from how it is made, by arithmetic that shares
nothing with the detector which it is there to check.
"""

from __future__ import annotations

import math
import wave
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from harness.errors import ScenarioError
from harness.scenario_sections import NotNegative, Positive, Section

__all__ = ["Clip", "Sound", "Voice", "render"]

_FULL_SCALE = 32_767
# The level at which the measurement contract calls a sound audible.
_AUDIBLE_DBFS = -45.0

Samples = NDArray[np.int16]


class Voice(StrEnum):
    """What is heard after the leading silence."""

    TONE = "tone"
    NOISE = "noise"
    RECORDING = "recording"  # a WAV file: 16 bit, mono, at the sound's rate
    NONE = "none"  # nothing: there is no onset


class Sound(Section):
    """One clip: silence, then a voice, and what lies under both.

    duration_ms: of the whole clip. lead_ms: before the voice. rise_ms: linear, from nothing to
    `level_dbfs` (RMS). floor_dbfs: steady noise under the whole clip. dc: constant offset, full
    scale = 1. clicks_ms: single full-scale samples, all before the voice. is_dithered: one random
    bit of noise. onset_ms: where the voice of a recording begins within its file.
    """

    duration_ms: Positive
    voice: Voice = Voice.TONE
    lead_ms: NotNegative = 0.0
    rise_ms: NotNegative = 0.0
    level_dbfs: Annotated[float, Field(le=0, ge=-90)] = -20.0
    frequency_hz: Positive = 440.0
    floor_dbfs: Annotated[float, Field(lt=_AUDIBLE_DBFS)] | None = None
    dc: Annotated[float, Field(ge=-1, le=1)] = 0.0
    clicks_ms: tuple[NotNegative, ...] = ()
    is_dithered: bool = False
    file: str | None = None
    onset_ms: NotNegative = 0.0
    sample_rate_hz: Annotated[int, Field(ge=8_000, le=96_000)] = 24_000
    seed: int = 0

    @model_validator(mode="after")
    def _fits_together(self) -> Sound:
        if (self.voice is Voice.RECORDING) != (self.file is not None):
            raise ValueError("a recording needs `file`, and nothing else takes one")
        if self.voice is not Voice.NONE and self.level_dbfs <= _AUDIBLE_DBFS:
            raise ValueError(f"a voice at {self.level_dbfs:g} dBFS is not audible; say voice: none")
        if any(click >= self.lead_ms for click in self.clicks_ms):
            raise ValueError("clicks_ms: clicks lie in the leading silence")
        return self

    def num_samples(self, length_ms: float) -> int:
        """Samples in a length of time, rounded."""
        return round(length_ms * self.sample_rate_hz / 1000)


@dataclass(frozen=True, slots=True)
class Clip:
    """Samples, their rate, and the first audible one (None: there is none)."""

    samples: Samples
    sample_rate_hz: int
    onset_sample: int | None


def render(sound: Sound) -> Clip:
    """Make the clip.

    Raises:
        ScenarioError: a recording that cannot be read or is of another kind.
    """
    random = np.random.default_rng(sound.seed)
    num, lead = sound.num_samples(sound.duration_ms), sound.num_samples(sound.lead_ms)
    mix = np.zeros(num)
    voice = _voice(sound, max(0, num - lead), random)
    mix[lead : lead + len(voice)] += voice[: num - lead]
    if sound.floor_dbfs is not None:
        mix += random.normal(0.0, _amplitude(sound.floor_dbfs), num)
    mix += sound.dc
    for click_ms in sound.clicks_ms:
        mix[sound.num_samples(click_ms)] = 1.0
    if sound.is_dithered:
        mix += random.integers(-1, 2, num) / _FULL_SCALE
    samples = np.clip(np.rint(mix * _FULL_SCALE), -_FULL_SCALE - 1, _FULL_SCALE)
    return Clip(samples.astype("<i2"), sound.sample_rate_hz, _onset_sample(sound))


def _onset_sample(sound: Sound) -> int | None:
    """A rise is audible once its level is, the noise under it included; else the first sample."""
    if sound.voice is Voice.NONE:
        return None
    begin_ms = sound.lead_ms
    if sound.voice is Voice.RECORDING:
        return sound.num_samples(begin_ms + sound.onset_ms)
    needed = _power(_AUDIBLE_DBFS) - (0 if sound.floor_dbfs is None else _power(sound.floor_dbfs))
    share = math.sqrt(needed / _power(sound.level_dbfs))
    return sound.num_samples(begin_ms + sound.rise_ms * share)


def _voice(sound: Sound, num: int, random: np.random.Generator) -> NDArray[np.float64]:
    level = _amplitude(sound.level_dbfs)
    if sound.voice is Voice.NONE or num == 0:
        return np.zeros(0)
    if sound.voice is Voice.RECORDING:
        assert sound.file is not None
        return _read(Path(sound.file), sound.sample_rate_hz)
    if sound.voice is Voice.NOISE:
        wave_form = random.normal(0.0, level, num)
    else:
        # From its crest: the very first sample is as loud as the tone.
        turns = 2 * np.pi * sound.frequency_hz / sound.sample_rate_hz * np.arange(num)
        wave_form = np.sqrt(2) * level * np.cos(turns)
    rise = sound.num_samples(sound.rise_ms)
    if rise:
        wave_form = wave_form * np.minimum(1.0, np.arange(num) / rise)
    return np.asarray(wave_form, dtype=np.float64)


def _amplitude(level_dbfs: float) -> float:
    return float(10.0 ** (level_dbfs / 20.0))


def _power(level_dbfs: float) -> float:
    return float(10.0 ** (level_dbfs / 10.0))


def _read(path: Path, sample_rate_hz: int) -> NDArray[np.float64]:
    try:
        with wave.open(str(path), "rb") as file:
            shape = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            data = file.readframes(file.getnframes())
    except (OSError, wave.Error, EOFError) as fault:
        raise ScenarioError(f"{path}: the recording cannot be read: {fault}") from None
    if shape != (1, 2, sample_rate_hz):
        raise ScenarioError(
            f"{path}: has {shape[0]} channels, {8 * shape[1]} bits, {shape[2]} Hz; expected mono, "
            f"16 bits, {sample_rate_hz} Hz"
        )
    return np.frombuffer(data, dtype="<i2").astype(np.float64) / _FULL_SCALE
