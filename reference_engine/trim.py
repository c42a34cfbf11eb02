"""Leading silence: withhold samples until the first sound, then let everything through.

The onset rule is that of the published measurement definitions (10 ms windows every 1 ms, mean
removed, active at -45 dBFS RMS, sustained for 30 ms, refined to the first sample whose 1 ms level
passes), computed here on its own: an engine shares no code with what measures it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reference_engine.messages import SAMPLE_RATE_HZ

__all__ = ["Cut", "FixedTrim", "ListeningTrim", "find_onset", "trailing_silence"]

_WINDOW = SAMPLE_RATE_HZ * 10 // 1000
_HOP = SAMPLE_RATE_HZ // 1000
_SUSTAIN_WINDOWS = 30
_FULL_SCALE = 32768.0
_THRESHOLD = _FULL_SCALE * math.pow(10.0, -45.0 / 20.0)

# Digital silence and the codec's own floor, far below any room tone that a voice was trained on.
_SILENT_PEAK = _FULL_SCALE * math.pow(10.0, -60.0 / 20.0)

Samples = npt.NDArray[np.int16]


def trailing_silence(samples: Samples) -> int:
    """How many samples at the end stay below -60 dBFS; all of them where none is louder."""
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) >= _SILENT_PEAK)
    return len(samples) - 1 - int(loud[-1]) if len(loud) else len(samples)


@dataclass(frozen=True, slots=True)
class Cut:
    """What a push let through: `num_samples` of it, and the samples where there are any."""

    num_samples: int
    samples: Samples | None


_NOTHING = Cut(0, None)


def find_onset(samples: Samples) -> int | None:
    """The first sample of the first sustained sound; None where there is none yet.

    Args:
        samples: [n] int16 mono at 24 kHz.
    """
    wave = samples.astype(np.float64)
    num_windows = (len(wave) - _WINDOW) // _HOP + 1
    if num_windows < _SUSTAIN_WINDOWS:
        return None
    starts = np.arange(num_windows) * _HOP
    total = np.concatenate([[0.0], np.cumsum(wave)])
    power = np.concatenate([[0.0], np.cumsum(wave * wave)])
    mean = (total[starts + _WINDOW] - total[starts]) / _WINDOW
    variance = (power[starts + _WINDOW] - power[starts]) / _WINDOW - mean * mean
    is_active = variance >= _THRESHOLD * _THRESHOLD
    active_before = np.concatenate([[0], np.cumsum(is_active)])
    run = active_before[_SUSTAIN_WINDOWS:] - active_before[:-_SUSTAIN_WINDOWS]
    sustained = np.flatnonzero(run == _SUSTAIN_WINDOWS)
    if not len(sustained):
        return None
    first = int(sustained[0])
    window = wave[first * _HOP : first * _HOP + _WINDOW]
    # The median is the constant offset alone; the mean would carry the onset into the silence.
    return _refine(window - np.median(window), first * _HOP)


def _refine(window: npt.NDArray[np.float64], start: int) -> int:
    """The first sample at the threshold of the first 1 ms whose level passes it."""
    power = np.concatenate([[0.0], np.cumsum(window * window)])
    level = (power[_HOP:] - power[:-_HOP]) / _HOP
    passing = np.flatnonzero(level >= _THRESHOLD * _THRESHOLD)
    if not len(passing):
        return start
    first = int(passing[0])
    loud = np.flatnonzero(np.abs(window[first : first + _HOP]) >= _THRESHOLD)
    return start + first + int(loud[0])


class FixedTrim:
    """Cut a known number of samples without listening (none: let everything through)."""

    def __init__(self, num_samples: int) -> None:
        self._left = num_samples
        self.trimmed_samples = 0

    def push(self, num_samples: int, samples: Samples | None) -> Cut:
        """The part of a chunk behind the cut."""
        cut = min(self._left, num_samples)
        self._left -= cut
        self.trimmed_samples += cut
        return Cut(num_samples - cut, None if samples is None else samples[cut:])

    def flush(self) -> Cut:
        """Nothing is ever withheld."""
        return _NOTHING


class ListeningTrim:
    """Withhold until the onset is heard, cut there, and pass everything after it.

    Silence longer than `max_samples` passes untrimmed, and so does a stream that ends without an
    onset: what is let through is always the whole stream less exactly `trimmed_samples`.
    """

    def __init__(self, max_samples: int) -> None:
        self._max_samples = max_samples
        self._withheld: Samples = np.empty(0, np.int16)
        self._is_open = False
        self.trimmed_samples = 0

    def push(self, num_samples: int, samples: Samples | None) -> Cut:
        """What may be let through after this chunk. It needs samples to listen to."""
        assert samples is not None, "listening needs samples"
        if self._is_open:
            return Cut(num_samples, samples)
        heard = np.concatenate([self._withheld, samples[:num_samples]])
        onset = find_onset(heard)
        if onset is None and len(heard) <= self._max_samples:
            self._withheld = heard
            return _NOTHING
        self._is_open = True
        self._withheld = np.empty(0, np.int16)
        self.trimmed_samples = onset or 0
        return Cut(len(heard) - self.trimmed_samples, heard[self.trimmed_samples :])

    def flush(self) -> Cut:
        """At the end of the stream: what was withheld and never found to be silence for nothing."""
        heard, self._withheld = self._withheld, np.empty(0, np.int16)
        self._is_open = True
        return Cut(len(heard), heard)
