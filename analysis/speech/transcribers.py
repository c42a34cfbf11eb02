"""What was said in a clip: the recogniser protocol, and the rules around every call to one.

A recogniser gets float32 mono at 16 kHz, never more seconds than it can hear, and never a clip that
holds no sound: on silence Whisper's tiny.en answers "you". What the rules did is in the
transcript, so that a figure can be doubted by its reasons.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from analysis.speech.wer import longest_loop
from analysis.speech.windows import HeardWord, join_words, plan_windows

__all__ = [
    "RECOGNISER_RATE_HZ",
    "Guard",
    "Recognised",
    "Samples",
    "Transcriber",
    "TranscriberInfo",
    "Transcript",
    "to_recogniser_rate",
    "transcribe",
]

Samples = NDArray[np.float32]

# Whisper's training rate; every recogniser here takes it.
RECOGNISER_RATE_HZ = 16_000

_OVERLAP_S = 5.0
# Below these there is nothing to recognise. The level is that of the onset rule (-45 dBFS); the
# length is that of its sustained run, below which no clip has an onset either.
_MIN_CLIP_S = 0.03
_MIN_LEVEL_DBFS = -45.0
_LEVEL_WINDOW_S = 0.03
# Whisper's own rule for "no speech here" (defaults of its `transcribe`).
_NO_SPEECH_PROBABILITY = 0.6
_NO_SPEECH_LOGPROB = -1.0
# Whisper's own rule for a looping decoder: text that compresses better than this.
_MAX_COMPRESSION = 2.4


class Guard(StrEnum):
    """Why a transcript is not plainly what the recogniser said."""

    NONE = "none"
    TOO_SHORT = "too_short"
    TOO_QUIET = "too_quiet"
    NO_SPEECH = "no_speech"
    LOOP_RETRIED = "loop_retried"  # a second, wider search got out of the loop
    LOOP = "loop"  # it did not: voice or recogniser repeats itself
    UNDECODABLE = "undecodable"  # the bytes hold no audio of the format they claim


@dataclass(frozen=True, slots=True)
class TranscriberInfo:
    """Who recognises; printed beside every figure."""

    name: str
    version: str
    model: str
    weights_sha256: str | None
    language: str
    max_window_s: float


@dataclass(frozen=True, slots=True)
class Recognised:
    """The answer to one call. `words` only where times were asked for, from the call's start."""

    text: str
    words: tuple[HeardWord, ...] = ()
    mean_logprob: float | None = None
    no_speech_probability: float | None = None


class Transcriber(Protocol):
    """A speech recogniser."""

    @property
    def info(self) -> TranscriberInfo:
        """Name, version, weights, language, longest audio of one call."""
        ...

    def recognise(
        self, samples: Samples, sample_rate_hz: int, *, with_times: bool, is_retry: bool
    ) -> Recognised:
        """One call. `is_retry` asks for a wider, still repeatable search after a loop."""
        ...


@dataclass(frozen=True, slots=True)
class Transcript:
    """One clip, heard. Durations in seconds of audio; `heard_s` counts overlaps twice."""

    text: str
    guard: Guard
    duration_s: float
    heard_s: float
    num_windows: int
    mean_logprob: float | None
    no_speech_probability: float | None


def to_recogniser_rate(samples: Samples, sample_rate_hz: int) -> Samples:
    """Resample to 16 kHz by the exact ratio, with a polyphase filter against aliasing."""
    if sample_rate_hz == RECOGNISER_RATE_HZ:
        return samples
    ratio = Fraction(RECOGNISER_RATE_HZ, sample_rate_hz)
    # Imported here: it takes a second, and a report whose clips were heard before needs none of it.
    from scipy.signal import resample_poly

    resampled = resample_poly(samples, ratio.numerator, ratio.denominator)
    return np.asarray(resampled, np.float32)


def transcribe(transcriber: Transcriber, samples: Samples, sample_rate_hz: int) -> Transcript:
    """Hear a whole clip of any length.

    Args:
        transcriber: called only with audio it can hear in full.
        samples: [n] float32 mono, full scale 1.0.
        sample_rate_hz: the true rate of `samples`.
    """
    duration_s = len(samples) / sample_rate_hz
    if guard := _nothing_to_hear(samples, sample_rate_hz):
        return Transcript("", guard, duration_s, 0.0, 0, None, None)
    audio = to_recogniser_rate(np.nan_to_num(samples), sample_rate_hz)
    max_samples = round(transcriber.info.max_window_s * RECOGNISER_RATE_HZ)
    if len(audio) <= max_samples:
        heard = transcriber.recognise(audio, RECOGNISER_RATE_HZ, with_times=False, is_retry=False)
        guard, heard = _guarded(transcriber, audio, heard)
        return _transcript(heard.text, guard, duration_s, duration_s, 1, [heard])
    return _transcribe_long(transcriber, audio, max_samples)


def _transcribe_long(transcriber: Transcriber, audio: Samples, max_samples: int) -> Transcript:
    """Window by window, joined on the words that neighbours share."""
    rate = RECOGNISER_RATE_HZ
    overlap = min(round(_OVERLAP_S * rate), max_samples // 2)
    windows = plan_windows(len(audio), max_samples=max_samples, overlap_samples=overlap)
    words: list[HeardWord] = []
    answers: list[Recognised] = []
    guards: list[Guard] = []
    for number, window in enumerate(windows):
        piece = audio[window.start : window.stop]
        if guard := _nothing_to_hear(piece, rate):
            heard = Recognised("")
        else:
            heard = transcriber.recognise(piece, rate, with_times=True, is_retry=False)
            guard, heard = _guarded(transcriber, piece, heard, with_times=True)
        at_s = window.start / rate
        shifted = [
            HeardWord(word.text, word.start_s + at_s, word.end_s + at_s) for word in heard.words
        ]
        if number == 0:
            words = shifted
        else:
            shared = (at_s, windows[number - 1].stop / rate)
            words = join_words(words, shifted, overlap=shared)
        answers.append(heard)
        guards.append(guard)
    text = " ".join(word.text.strip() for word in words)
    heard_s = sum(window.stop - window.start for window in windows) / rate
    return _transcript(text, _worst(guards), len(audio) / rate, heard_s, len(windows), answers)


def _nothing_to_hear(samples: Samples, sample_rate_hz: int) -> Guard | None:
    """A clip too short or too quiet to be speech, which a recogniser would answer all the same."""
    if len(samples) < _MIN_CLIP_S * sample_rate_hz:
        return Guard.TOO_SHORT
    size = max(1, round(_LEVEL_WINDOW_S * sample_rate_hz))
    whole = np.nan_to_num(samples[: len(samples) // size * size]).reshape(-1, size)
    # The mean of each window is taken out: a constant offset is not sound.
    levels = np.sqrt(np.mean((whole - whole.mean(axis=1, keepdims=True)) ** 2, axis=1))
    if float(levels.max(initial=0.0)) < 10 ** (_MIN_LEVEL_DBFS / 20):
        return Guard.TOO_QUIET
    return None


def _guarded(
    transcriber: Transcriber, audio: Samples, heard: Recognised, *, with_times: bool = False
) -> tuple[Guard, Recognised]:
    """Drop an answer to no speech; search once more out of a loop."""
    if _is_no_speech(heard):
        return Guard.NO_SPEECH, Recognised("", (), heard.mean_logprob, heard.no_speech_probability)
    if not _is_looping(heard.text):
        return Guard.NONE, heard
    again = transcriber.recognise(audio, RECOGNISER_RATE_HZ, with_times=with_times, is_retry=True)
    if _is_looping(again.text):
        return Guard.LOOP, heard
    return Guard.LOOP_RETRIED, again


def _is_no_speech(heard: Recognised) -> bool:
    return (
        heard.no_speech_probability is not None
        and heard.mean_logprob is not None
        and heard.no_speech_probability > _NO_SPEECH_PROBABILITY
        and heard.mean_logprob < _NO_SPEECH_LOGPROB
    )


def _is_looping(text: str) -> bool:
    """Whether a text repeats itself as a stuck decoder does."""
    raw = text.encode()
    compresses = bool(raw) and len(raw) / len(zlib.compress(raw)) > _MAX_COMPRESSION
    return compresses or longest_loop(text.casefold().split()) > 0


def _worst(guards: list[Guard]) -> Guard:
    order = (Guard.LOOP, Guard.LOOP_RETRIED, Guard.NONE)
    # All windows silent is "no speech"; one silent window among others is a pause.
    return next((guard for guard in order if guard in guards), Guard.NO_SPEECH)


def _transcript(
    text: str,
    guard: Guard,
    duration_s: float,
    heard_s: float,
    num_windows: int,
    answers: list[Recognised],
) -> Transcript:
    logprobs = [each.mean_logprob for each in answers if each.mean_logprob is not None]
    silences = [
        each.no_speech_probability for each in answers if each.no_speech_probability is not None
    ]
    return Transcript(
        text=text.strip(),
        guard=guard,
        duration_s=duration_s,
        heard_s=heard_s,
        num_windows=num_windows,
        mean_logprob=min(logprobs, default=None),
        no_speech_probability=max(silences, default=None),
    )
