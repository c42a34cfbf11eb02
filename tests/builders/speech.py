"""Fakes and small sounds for speech tests. The fake hears what is written into the samples."""

from __future__ import annotations

import numpy as np

from analysis.speech.transcribers import RECOGNISER_RATE_HZ, Recognised, TranscriberInfo
from analysis.speech.windows import HeardWord

SLOT_S = 0.5


def spoken_clip(num_words: int, sample_rate_hz: int) -> np.ndarray:
    """One word each half second: word i is a 200 Hz tone whose level says i."""
    slot = round(SLOT_S * sample_rate_hz)
    tone = np.sin(2 * np.pi * 200 * np.arange(slot) / sample_rate_hz)
    gate = (np.arange(slot) < 0.8 * slot).astype(float)
    levels = (np.arange(num_words) + 10) / (num_words + 20)
    return np.concatenate([level * tone * gate for level in levels]).astype(np.float32)


def tone(seconds: float, sample_rate_hz: int, *, level: float = 0.1) -> np.ndarray:
    """A plain 1 kHz tone."""
    times = np.arange(round(seconds * sample_rate_hz)) / sample_rate_hz
    return (level * np.sin(2 * np.pi * 1000 * times)).astype(np.float32)


class ScriptedTranscriber:
    """Answers with given texts in turn and keeps what it was asked."""

    def __init__(self, *answers: Recognised | str, language: str = "en") -> None:
        self.answers = [Recognised(a) if isinstance(a, str) else a for a in answers]
        self.calls: list[tuple[int, int, bool]] = []
        self.info = TranscriberInfo("scripted", "1", "none", None, language, 30.0)

    def recognise(self, samples, sample_rate_hz, *, with_times, is_retry):
        """The next answer; the last one again and again."""
        self.calls.append((len(samples), sample_rate_hz, is_retry))
        return self.answers[min(len(self.calls), len(self.answers)) - 1]


class ThirtySecondFake:
    """Hears the words of `spoken_clip`, but only those whole inside the first 30 s of a call."""

    def __init__(self, num_words: int) -> None:
        self.num_words = num_words
        self.calls: list[tuple[int, int]] = []
        self.info = TranscriberInfo("fake", "1", "none", None, "en", 30.0)

    def recognise(self, samples, sample_rate_hz, *, with_times, is_retry):
        """Reads each burst's level back into its word."""
        self.calls.append((len(samples), sample_rate_hz))
        heard = samples[: 30 * RECOGNISER_RATE_HZ]
        words = [
            HeardWord(f"w{self._index_of(burst)}", start / sample_rate_hz, stop / sample_rate_hz)
            for start, stop, burst in _whole_bursts(heard, sample_rate_hz)
        ]
        return Recognised(" ".join(w.text for w in words), tuple(words) if with_times else ())

    def _index_of(self, burst):
        middle = burst[len(burst) // 4 : -len(burst) // 4]
        level = np.sqrt(2 * np.mean(middle**2))
        return round(float(level) * (self.num_words + 20)) - 10


def _whole_bursts(samples, sample_rate_hz):
    """Stretches of sound that neither border of the call cuts short."""
    size = round(0.01 * sample_rate_hz)
    whole = samples[: len(samples) // size * size].reshape(-1, size)
    is_loud = np.abs(whole).max(axis=1) > 0.02
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_loud.astype(int), [0]])))
    for start, stop in zip(edges[::2] * size, edges[1::2] * size, strict=True):
        if stop - start >= 0.39 * sample_rate_hz:
            yield start, stop, samples[start:stop]
