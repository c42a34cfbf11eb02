"""Where sound begins in a decoded clip.

A level detector on short windows with the mean removed, so that neither a constant offset nor a
signal stuck at the rail is sound, and with a minimum duration, so that a click is not. The rule
looks at samples alone: how they were cut into chunks cannot matter.

Source: analysis/METRICS.md, "Onset".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.pcm import FloatArray

__all__ = ["DEFAULT", "NARI_V1", "PRESETS", "Onset", "OnsetPreset", "find_onset", "first_run"]


@dataclass(frozen=True, slots=True)
class OnsetPreset:
    """One rule for onset, printed with every figure that depends on it.

    A run of windows lasts as long as its windows advance (their number x `hop_ms`).
    `short_time_ms` is the window of the refinement; None: the onset is the start of a window.
    """

    name: str
    window_ms: float = 10.0
    hop_ms: float = 1.0
    threshold_dbfs: float = -45.0
    sustain_ms: float = 30.0
    short_time_ms: float | None = 2.0

    def __post_init__(self) -> None:
        if min(self.window_ms, self.hop_ms, self.sustain_ms) <= 0 or self.threshold_dbfs >= 0:
            raise ValueError(f"onset preset {self.name!r}: durations must be > 0, level < 0 dBFS")

    @property
    def num_windows(self) -> int:
        """Active windows in a row that make an onset."""
        return max(1, round(self.sustain_ms / self.hop_ms))

    def window_samples(self, sample_rate_hz: int) -> int:
        """Length of a window."""
        return max(2, round(self.window_ms * sample_rate_hz / 1000))

    def short_samples(self, sample_rate_hz: int) -> int:
        """Length of the window of the refinement."""
        assert self.short_time_ms is not None
        return max(_MIN_SHORT_TIME_SAMPLES, round(self.short_time_ms * sample_rate_hz / 1000))

    @property
    def threshold_power(self) -> float:
        """Mean square at the threshold, full scale = 1."""
        return float(10.0 ** (self.threshold_dbfs / 10.0))


DEFAULT = OnsetPreset("default")
# The rule behind published figures of the Nari comparison; for reading beside ours.
NARI_V1 = OnsetPreset("nari-v1", window_ms=20.0, hop_ms=10.0, sustain_ms=20.0, short_time_ms=None)
PRESETS = (DEFAULT, NARI_V1)

# Beyond this a float payload is mis-scaled anyway; the bound keeps sums of squares exact enough.
_CLIP_AT = 16.0
# Most clips begin within the first second, so look there before the whole clip; and first of all in
# its first quarter.
_FIRST_LOOK_S = 1.0
_SOON_S = 0.25
# With fewer samples the level of steady noise strays above the threshold by chance (8 kHz audio).
_MIN_SHORT_TIME_SAMPLES = 24
# A 100 Hz tone falls to a quarter of its power for the 2 ms around a zero crossing, so one that is
# just audible elsewhere is taken for a whole.
_DIP_SHARE = 0.4
# The quietest of some windows is a little quieter than their noise; short ones stray above it.
_CLEAR_OF_NOISE = 2.5
_LOOK_BACK_WINDOWS = 10
# The offset at the start of a clip: how quiet and how near its first moment must be (of the clip).
_QUIET_SHARE = 0.01
_NEAR_SHARE = 0.1

FloatArray64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Onset:
    """The first audible sample: its index, and its media time in ns from the clip's start."""

    sample: int
    media_ns: int


def find_onset(
    samples: FloatArray, sample_rate_hz: int, *, preset: OnsetPreset = DEFAULT
) -> Onset | None:
    """The first sustained sound of a mono clip, or None where there is none.

    Args:
        samples: float32 [n], full scale = 1; NaN and infinities count as 0.
        sample_rate_hz: of those samples.
        preset: window, level and duration.

    Source: analysis/METRICS.md, "Onset".
    """
    num_samples = len(samples)
    second = min(num_samples, round(_FIRST_LOOK_S * sample_rate_hz))
    # Sums over the beginning are those over the whole, as far as they go.
    soon = min(second, round(_SOON_S * sample_rate_hz))
    for look in sorted({soon, second, num_samples}):
        x = _clean(samples[:look])
        start = _first_active(x, sample_rate_hz, preset)
        if start is None:
            continue
        if preset.short_time_ms is not None:
            if len(x) < second and not _is_enough(x, start, sample_rate_hz, preset):
                x = _clean(samples[:second])
            start = _refine(x, start, sample_rate_hz, preset)
        return Onset(start, round(start * 1_000_000_000 / sample_rate_hz))
    return None


def _clean(samples: FloatArray) -> NDArray[np.float64]:
    values = np.clip(samples, -_CLIP_AT, _CLIP_AT).astype(np.float64)
    values[~np.isfinite(samples)] = 0.0
    return values


def _first_active(x: NDArray[np.float64], sample_rate_hz: int, preset: OnsetPreset) -> int | None:
    """Start of the first run of active windows that lasts long enough."""
    window = preset.window_samples(sample_rate_hz)
    if len(x) < window:
        return None
    hop = preset.hop_ms * sample_rate_hz / 1000
    num_windows = int((len(x) - window) * 1000 / (preset.hop_ms * sample_rate_hz)) + 1
    # Rounded one by one: a hop that is no whole number of samples must not drift.
    starts = np.rint(np.arange(num_windows) * hop).astype(np.int64)
    starts = starts[starts + window <= len(x)]
    is_active = _window_power(x, starts, window) >= preset.threshold_power
    first = first_run(is_active, preset.num_windows)
    return None if first is None else int(starts[first])


def _window_power(
    x: NDArray[np.float64], starts: NDArray[np.int64], window: int
) -> NDArray[np.float64]:
    """Variance of each window: its mean square with its own mean removed."""
    ends = starts + window
    sums = np.zeros(len(x) + 1)
    squares = np.zeros(len(x) + 1)
    np.cumsum(x, out=sums[1:])
    np.cumsum(x * x, out=squares[1:])
    mean = (sums[ends] - sums[starts]) / window
    power: NDArray[np.float64] = (squares[ends] - squares[starts]) / window - np.square(mean)
    return power


def first_run(is_active: NDArray[np.bool_], length: int) -> int | None:
    """Index of the first of `length` True in a row."""
    if len(is_active) < length:
        return None
    counts = np.concatenate(([0], np.cumsum(is_active)))
    is_run = (counts[length:] - counts[:-length]) == length
    first = int(np.argmax(is_run))
    return first if is_run[first] else None


def _is_enough(
    x: NDArray[np.float64], start: int, sample_rate_hz: int, preset: OnsetPreset
) -> bool:
    """Whether a refinement at `start` would see no more of a longer beginning than of this."""
    window = preset.window_samples(sample_rate_hz)
    return start >= preset.short_samples(sample_rate_hz) and start + 2 * window <= len(x)


def _refine(x: NDArray[np.float64], start: int, sample_rate_hz: int, preset: OnsetPreset) -> int:
    """The first sample in the window at `start` that is loud, and so are its surroundings.

    Loud: the mean square of the last `short_time_ms` up to and including it passes the threshold.
    Its surroundings, `window_ms` around it, must pass as well: in a fade over noise the short-time
    level strays above the threshold long before the level itself does. From there the onset moves
    back over a dip in which neither falls to the noise, which is a wave near its zero crossing.
    """
    threshold, window = preset.threshold_power, preset.window_samples(sample_rate_hz)
    short = preset.short_samples(sample_rate_hz)
    begin = max(0, start - window)
    power = np.square(x[begin : start + 2 * window] - _offset(x, start, window, short))
    at = np.arange(start, min(start + window, len(x))) - begin
    level = _mean_up_to(power, at + 1, short)
    is_loud_around = _mean_up_to(power, at + window // 2, window) >= preset.threshold_power
    onsets = np.flatnonzero((level >= threshold) & is_loud_around)
    if not len(onsets):  # rises so slowly that only a whole window tells it from the noise
        onsets = np.flatnonzero(level >= threshold)
        return start + int(onsets[0]) if len(onsets) else start
    first = int(onsets[0])
    if start >= window:
        noise = _noise_power(x[max(0, start - _LOOK_BACK_WINDOWS * window) : start], window)
    else:
        noise = _noise_power(x[: start + first], short)
    enough = np.clip(_CLEAR_OF_NOISE * noise, _DIP_SHARE * threshold, threshold)
    is_quiet = ~((level >= enough) & is_loud_around)
    quiet_before = np.flatnonzero(is_quiet[:first])
    return start + (int(quiet_before[-1]) + 1 if len(quiet_before) else 0)


def _mean_up_to(power: NDArray[np.float64], ends: NDArray[np.int64], length: int) -> FloatArray64:
    """Mean of the last `length` values before each of `ends`; nothing lies before the first."""
    sums = np.concatenate(([0.0], np.cumsum(power)))
    ends = np.minimum(ends, len(power))
    means: FloatArray64 = (sums[ends] - sums[np.maximum(0, ends - length)]) / length
    return means


def _offset(x: NDArray[np.float64], start: int, window: int, short: int) -> float:
    """The constant under the sound: the median of the quiet before the window at `start`.

    A window's own mean is pulled by the sound. At the start of a clip there may be no quiet. Then
    it is the median of a second, unless the clip's first moment is quiet and says nearly the same,
    and so more exactly; a wave's crest is as steady as quiet, but lies elsewhere.
    """
    if start >= short:
        return float(np.median(x[max(0, start - window) : start]))
    median = float(np.median(x))
    first = x[:short]
    is_quiet = float(first.var()) < _QUIET_SHARE * float(x.var())
    is_near = abs(float(first.mean()) - median) < _NEAR_SHARE * float(x.std())
    return float(first.mean()) if is_quiet and is_near else median


def _noise_power(quiet: NDArray[np.float64], length: int) -> float:
    """Of the quietest stretch of that length; 0 where there is none."""
    num = len(quiet) // length
    stretches = quiet[len(quiet) - num * length :].reshape(num, length)
    return float(stretches.var(axis=1).min()) if num else 0.0
