"""Faults that can be read from the waveform itself, without knowing what was to be said.

All functions take a decoded mono clip (float32 [n], full scale = 1). They look for faults of
delivery and synthesis: clipping, offsets, broken floats, seams, holes, cut-off ends.

Source: analysis/METRICS.md, "Signal".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.pcm import FloatArray

__all__ = [
    "SampleRun",
    "count_dropouts",
    "count_seam_clicks",
    "ends_abruptly",
    "internal_silences",
    "share_clipped",
]

# The largest positive int16 over full scale: anything from here on is at the rail.
_RAIL = 32767 / 32768
# One step of 15 bits: dithered or digital zero, far below anything audible.
_NEAR_ZERO = 1 / 16384
_SILENCE_DBFS = -45.0
_FRAME_MS = 10.0
_SILENCE_MIN_MS = 500.0
_DROPOUT_MIN_MS = 20.0
_EDGE_MS = 5.0
_SEAM_SURROUNDINGS_MS = 20.0
# A jump this many times the steepest step around it, and above -40 dBFS, is a click.
_SEAM_RATIO = 3.0
_SEAM_MIN_STEP = 0.01
_END_MS = 5.0
_END_DBFS = -35.0


@dataclass(frozen=True, slots=True)
class SampleRun:
    """Samples `start` to `end` (exclusive)."""

    start: int
    end: int


def share_clipped(pcm: FloatArray) -> float | None:
    """Share of samples at the rail, over all channels ([n, channels]); None for an empty clip."""
    if pcm.size == 0:
        return None
    return float((np.abs(pcm) >= _RAIL).mean())


def internal_silences(samples: FloatArray, sample_rate_hz: int) -> list[SampleRun]:
    """Stretches of more than 500 ms below -45 dBFS between the first and the last sound."""
    frame = max(1, round(_FRAME_MS * sample_rate_hz / 1000))
    levels = _frame_power(samples, frame)
    is_loud = levels >= 10 ** (_SILENCE_DBFS / 10)
    loud = np.flatnonzero(is_loud)
    quiet_ms = (np.diff(loud) - 1) * frame * 1000 / sample_rate_hz
    return [
        SampleRun((int(loud[i]) + 1) * frame, int(loud[i + 1]) * frame)
        for i in np.flatnonzero(quiet_ms > _SILENCE_MIN_MS)
    ]


def count_dropouts(samples: FloatArray, sample_rate_hz: int) -> int:
    """Near-zero runs of at least 20 ms with sound right up to both edges: holes, not pauses."""
    edge = max(1, round(_EDGE_MS * sample_rate_hz / 1000))
    loud = 10 ** (_SILENCE_DBFS / 10)
    count = 0
    for run in _runs(np.abs(samples) <= _NEAR_ZERO, least=_DROPOUT_MIN_MS * sample_rate_hz / 1000):
        if run.start >= edge and run.end + edge <= len(samples):
            before = samples[run.start - edge : run.start]
            after = samples[run.end : run.end + edge]
            count += bool(_power(before) >= loud and _power(after) >= loud)
    return count


def count_seam_clicks(samples: FloatArray, sample_rate_hz: int, chunk_starts: Sequence[int]) -> int:
    """Chunk borders at which the waveform jumps as it does nowhere around them.

    Args:
        samples: the clip.
        sample_rate_hz: of the clip.
        chunk_starts: index of the first sample of each chunk but the first.
    """
    around = max(2, round(_SEAM_SURROUNDINGS_MS * sample_rate_hz / 1000))
    steps = np.abs(np.diff(samples))  # step i leads from sample i to the next
    count = 0
    for border in chunk_starts:
        jump = float(steps[border - 1]) if 1 <= border < len(samples) else 0.0
        if jump <= _SEAM_MIN_STEP:
            continue
        before = steps[max(0, border - around) : border - 1]
        after = steps[border : border + around - 1]
        steepest = max(float(side.max(initial=0.0)) for side in (before, after))
        count += jump > _SEAM_RATIO * steepest
    return count


def ends_abruptly(samples: FloatArray, sample_rate_hz: int) -> bool | None:
    """Whether the last 5 ms are still loud (-35 dBFS); None for a clip shorter than that."""
    tail = max(1, round(_END_MS * sample_rate_hz / 1000))
    if len(samples) < tail:
        return None
    return _power(samples[-tail:]) >= 10 ** (_END_DBFS / 10)


def _power(samples: FloatArray) -> float:
    values = samples.astype(np.float64)
    return float(np.mean(np.square(values - values.mean())))


def _frame_power(samples: FloatArray, frame: int) -> NDArray[np.float64]:
    num_frames = len(samples) // frame
    frames = samples[: num_frames * frame].astype(np.float64).reshape(num_frames, frame)
    squares = np.einsum("ij,ij->i", frames, frames)
    return np.asarray(squares / frame - np.square(frames.mean(axis=1)))


def _runs(is_in: NDArray[np.bool_], *, least: float) -> list[SampleRun]:
    """Runs of at least so many True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_in, [False]))))
    starts, ends = edges[::2], edges[1::2]
    is_long = ends - starts >= least
    return [
        SampleRun(int(start), int(end))
        for start, end in zip(starts[is_long], ends[is_long], strict=True)
    ]
