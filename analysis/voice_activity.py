"""Where speech begins in a decoded clip: the first voiced sound, with the consonant it grew from.

The onset rule asks for level and hears a burst of noise as well as a word. Speech is told from
noise by its vocal folds: vowels and nasals repeat with the pitch, noise does not, and a beep is a
single line where a voice has harmonics. What sounds without a break just before the first voiced
sound is the consonant it began with ("s", "f", the release of a "p") and belongs to it; a longer
hiss than any consonant does not.

Source: analysis/METRICS.md, "Onset".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from analysis.onset import DEFAULT as LEVEL_RULE
from analysis.onset import Onset, find_onset, first_run
from analysis.pcm import FloatArray

__all__ = ["find_speech_onset"]

# Two and a half periods of a voice of 70 Hz; shorter frames cannot tell a low voice from noise.
_FRAME_S = 0.04
_HOP_S = 0.005
# Pitch and the harmonics that carry it. Without its lowest ones a nasal is found late.
_BAND_HZ = (100, 3_600)
_PITCH_HZ = (70, 400)
# Measured: white noise stays below 0.4, half of the loud frames of speech lie above 0.8. Six frames
# in a row never happened in 2 minutes of noise, unless all of it lay in a band below 500 Hz.
_MIN_PERIODICITY = 0.6
_MIN_FRAMES = 6
# A pure tone has 0.99 of its power in one line, nine voiced frames of speech in ten below 0.95.
_MAX_LINE_SHARE = 0.9
_LINE_HALF_WIDTH_HZ = 60
# Steps of the autocorrelation, over the length that the spectrum has: about 0.1 ms each.
_NUM_LAGS = 1_024
# The longest consonants at the start of a word, and the shortest pause that parts two sounds.
_MAX_CONSONANT_S = 0.2
_MIN_PAUSE_S = 0.02
_LEVEL_WINDOW_S = 0.01
# Every sixth frame, looked at together: most clips speak at once, and a long silent one needs
# little memory.
_BLOCK = 12


@dataclass(frozen=True)  # without slots, which cached properties need a place beside
class _Shape:
    """Sizes at one sample rate; `bins` of the spectrum lie in the band."""

    sample_rate_hz: int

    @cached_property
    def frame(self) -> int:
        return round(_FRAME_S * self.sample_rate_hz)

    @cached_property
    def spectrum(self) -> int:
        """At least two frames long, so that the autocorrelation does not wrap around."""
        return int(max(_NUM_LAGS, 1 << (2 * self.frame - 1).bit_length()))

    @cached_property
    def bin_hz(self) -> float:
        return self.sample_rate_hz / self.spectrum

    @cached_property
    def bins(self) -> slice:
        return slice(math.ceil(_BAND_HZ[0] / self.bin_hz), int(_BAND_HZ[1] / self.bin_hz) + 1)

    @cached_property
    def lags(self) -> slice:
        """Periods of a voice, in steps of the autocorrelation."""
        step_s = 1 / (self.bin_hz * _NUM_LAGS)
        return slice(int(1 / _PITCH_HZ[1] / step_s), math.ceil(1 / _PITCH_HZ[0] / step_s) + 1)

    @cached_property
    def window(self) -> NDArray[np.float64]:
        """A period of a raised cosine, as long as a frame."""
        return np.hanning(self.frame + 1)[:-1]

    @cached_property
    def lags_of_window(self) -> NDArray[np.float64]:
        """The window's own autocorrelation at those lags, 1 at lag 0."""
        power = np.abs(np.fft.rfft(self.window, self.spectrum)) ** 2
        correlation = np.fft.irfft(power[: _NUM_LAGS // 2 + 1], _NUM_LAGS)
        return np.asarray(correlation[self.lags] / correlation[0])


@lru_cache(maxsize=8)
def _shape(sample_rate_hz: int) -> _Shape:
    return _Shape(sample_rate_hz)


def find_speech_onset(samples: FloatArray, sample_rate_hz: int, *, begin: int = 0) -> Onset | None:
    """The first sample of speech in a mono clip, or None where nothing in it is voiced.

    Args:
        samples: float32 [n], full scale = 1; NaN and infinities count as 0.
        sample_rate_hz: of those samples.
        begin: no speech before this sample, such as that of the level onset.

    Source: analysis/METRICS.md, "Onset".
    """
    clean = np.clip(samples, -1.0, 1.0)
    clean[~np.isfinite(samples)] = 0.0
    voiced = _first_voiced(clean, _shape(sample_rate_hz), begin)
    if voiced is None:
        return None
    sample = max(begin, _with_its_consonant(clean, sample_rate_hz, voiced))
    return Onset(sample, round(sample * 1_000_000_000 / sample_rate_hz))


def _first_voiced(samples: FloatArray, shape: _Shape, begin: int) -> int | None:
    """Middle of the first of `_MIN_FRAMES` voiced frames in a row: half of it is voiced.

    So many in a row hold exactly one of every `_MIN_FRAMES`-th frame, so only around those of them
    that are voiced are the others looked at.
    """
    first = max(0, begin - shape.frame // 2)
    last = len(samples) - shape.frame
    hop_s = _HOP_S * shape.sample_rate_hz
    num_frames = int((last - first) / hop_s) + 1 if last >= first else 0
    starts = first + np.rint(np.arange(num_frames) * hop_s).astype(np.int64)
    posts = np.arange(_MIN_FRAMES - 1, num_frames, _MIN_FRAMES)
    for block in range(0, len(posts), _BLOCK):
        looked_at = posts[block : block + _BLOCK]
        for post in looked_at[_voiced(samples, starts[looked_at], shape)]:
            around = starts[post - _MIN_FRAMES + 1 : post + _MIN_FRAMES]
            in_a_row = first_run(_voiced(samples, around, shape), _MIN_FRAMES)
            if in_a_row is not None:
                return int(around[in_a_row]) + shape.frame // 2
    return None


def _voiced(samples: FloatArray, starts: NDArray[np.int64], shape: _Shape) -> NDArray[np.bool_]:
    """Whether each frame is loud enough, is no single line, and repeats with a pitch.

    All three are read off the spectrum inside the band; what fails one is not asked the next. The
    autocorrelation of the windowed frame is divided by that of the window, so that a strictly
    periodic signal has 1 at its period however long that is (Boersma, 1993). A band that ends below
    half the number of lags needs no more of them, whatever the sample rate is.
    """
    frames = np.zeros((len(starts), shape.spectrum))  # [frames, samples, then zeros]
    rows = samples[starts[:, None] + np.arange(shape.frame)]
    np.multiply(rows, shape.window, out=frames[:, : shape.frame])
    whole = np.fft.rfft(frames, axis=1)
    band = np.abs(whole[:, shape.bins]) ** 2
    total = band.sum(axis=1)
    # A bin and its mirror image: twice the one-sided sum.
    power = 2 * total / shape.spectrum / np.square(shape.window).sum()
    is_voiced: NDArray[np.bool_] = power >= LEVEL_RULE.threshold_power
    is_voiced &= _of_strongest_line(band, shape) <= _MAX_LINE_SHARE * total
    if not is_voiced.any():
        return is_voiced
    spectrum = np.zeros((np.count_nonzero(is_voiced), _NUM_LAGS // 2 + 1))
    spectrum[:, shape.bins] = band[is_voiced]
    correlation = np.fft.irfft(spectrum, _NUM_LAGS, axis=1)
    energy = np.maximum(correlation[:, 0], np.finfo(np.float64).tiny)
    expected = shape.lags_of_window
    periodicity = (correlation[:, shape.lags] / energy[:, None] / expected).max(axis=1)
    is_voiced[is_voiced] = periodicity >= _MIN_PERIODICITY
    return is_voiced


def _of_strongest_line(band: NDArray[np.float64], shape: _Shape) -> NDArray[np.float64]:
    """Each frame's power within 60 Hz of its strongest line."""
    half = round(_LINE_HALF_WIDTH_HZ / shape.bin_hz)
    wide = np.zeros((len(band), band.shape[1] + 2 * half))
    wide[:, half : half + band.shape[1]] = band
    around = band.argmax(axis=1)[:, None] + np.arange(2 * half + 1)
    return np.asarray(wide[np.arange(len(band))[:, None], around].sum(axis=1))


def _with_its_consonant(samples: FloatArray, sample_rate_hz: int, voiced: int) -> int:
    """Go back from a voiced sample to where its sound began, if that is near enough."""
    begin = max(0, voiced - round((_MAX_CONSONANT_S + _MIN_PAUSE_S) * sample_rate_hz))
    quiet_end = _end_of_last_pause(samples[begin:voiced], sample_rate_hz)
    if quiet_end is None and begin > 0:
        return voiced
    start = begin + (quiet_end or 0)
    sound = find_onset(samples[start:], sample_rate_hz)
    # A frame that the voice fills by less than half can be voiced: the sound may begin behind it.
    return voiced if sound is None else start + sound.sample


def _end_of_last_pause(samples: FloatArray, sample_rate_hz: int) -> int | None:
    """Where the last pause ends, in whole windows of 10 ms; None where there is none."""
    size = max(1, round(_LEVEL_WINDOW_S * sample_rate_hz))
    skipped = len(samples) % size
    power = samples[skipped:].astype(np.float64).reshape(-1, size).var(axis=1)
    is_quiet = power < LEVEL_RULE.threshold_power
    length = round(_MIN_PAUSE_S / _LEVEL_WINDOW_S)
    pauses = [i for i in range(length, len(is_quiet) + 1) if is_quiet[i - length : i].all()]
    # One window before the pause's end: the refinement of the onset rule wants quiet before it.
    return skipped + (pauses[-1] - 1) * size if pauses else None
