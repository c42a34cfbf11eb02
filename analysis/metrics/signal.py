"""What the waveform says about itself: length, rails, offsets, holes, seams, ends.

Only clips that were recorded whole; a failed request keeps none of these (its audio is a fragment).
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from analysis import signal
from analysis.audio import DecodedAudio
from analysis.metrics.base import Better, RequestMetric
from analysis.view import RequestView

__all__ = ["METRICS"]


def _clip(view: RequestView) -> DecodedAudio | None:
    """The decoded clip, where it is the whole of what was to be heard."""
    audio = view.reply.audio
    if audio is None or not view.reply.is_whole or not len(audio.samples):
        return None
    return None if view.record.transport_outcome.value != "ok" else audio


def audio_duration(view: RequestView) -> float | None:
    return view.reply.duration_s if not view.outcome.is_failure else None


def seconds_per_character(view: RequestView) -> float | None:
    seconds, num_characters = view.reply.duration_s, len(view.record.text.strip())
    is_ended = view.record.transport_outcome.value == "ok"
    return seconds / num_characters if is_ended and seconds and num_characters else None


def clipped_share(view: RequestView) -> float | None:
    clip = _clip(view)
    return None if clip is None else signal.share_clipped(clip.pcm)


def dc_offset(view: RequestView) -> float | None:
    clip = _clip(view)
    if clip is None:
        return None
    finite = clip.samples[np.isfinite(clip.samples)]
    return float(abs(finite.mean(dtype=np.float64))) if len(finite) else None


def num_not_finite(view: RequestView) -> float | None:
    clip = _clip(view)
    return None if clip is None else float(np.count_nonzero(~np.isfinite(clip.pcm)))


def seam_clicks(view: RequestView) -> float | None:
    clip, counts = _clip(view), view.reply.samples_per_chunk
    if clip is None or clip.sample_rate_hz is None or counts is None or len(counts) < 2:
        return None
    borders = sorted(set(accumulate(counts[:-1])))
    return float(signal.count_seam_clicks(clip.samples, clip.sample_rate_hz, borders))


def num_internal_silences(view: RequestView) -> float | None:
    clip = _clip(view)
    if clip is None or clip.sample_rate_hz is None:
        return None
    return float(len(signal.internal_silences(clip.samples, clip.sample_rate_hz)))


def dropouts(view: RequestView) -> float | None:
    clip = _clip(view)
    if clip is None or clip.sample_rate_hz is None:
        return None
    return float(signal.count_dropouts(clip.samples, clip.sample_rate_hz))


def abrupt_end(view: RequestView) -> float | None:
    clip = _clip(view)
    if clip is None or clip.sample_rate_hz is None:
        return None
    is_abrupt = signal.ends_abruptly(clip.samples, clip.sample_rate_hz)
    return None if is_abrupt is None else float(is_abrupt)


def dangling_bytes(view: RequestView) -> float | None:
    clip = _clip(view)
    return None if clip is None else float(clip.dangling_bytes)


METRICS = (
    RequestMetric(
        "audio_duration", "s", Better.NEITHER, "Length of the reply's audio", audio_duration
    ),
    RequestMetric(
        "seconds_per_character",
        "s",
        Better.NEITHER,
        "Audio per character of text; outliers are speech that runs away or is cut",
        seconds_per_character,
    ),
    RequestMetric(
        "clipped_share", "share", Better.LOWER, "Share of samples at the rail", clipped_share
    ),
    RequestMetric("dc_offset", "full scale", Better.LOWER, "Size of the clip's mean", dc_offset),
    RequestMetric(
        "num_not_finite",
        "count",
        Better.LOWER,
        "Samples that are NaN or infinite, per clip",
        num_not_finite,
    ),
    RequestMetric(
        "seam_clicks",
        "count",
        Better.LOWER,
        "Chunk borders at which the waveform jumps by more than three times the steepest step"
        " within 20 ms around it, per clip",
        seam_clicks,
    ),
    RequestMetric(
        "internal_silences",
        "count",
        Better.LOWER,
        "Silences of more than 500 ms between the first and the last sound, per clip",
        num_internal_silences,
    ),
    RequestMetric(
        "dropouts",
        "count",
        Better.LOWER,
        "Near-zero runs of at least 20 ms with sound up to both edges, per clip",
        dropouts,
    ),
    RequestMetric(
        "abrupt_end",
        "share",
        Better.LOWER,
        "1 where the last 5 ms of a clip are still loud (-35 dBFS), else 0",
        abrupt_end,
    ),
    RequestMetric(
        "dangling_bytes",
        "bytes",
        Better.LOWER,
        "Bytes of a last PCM frame that never became complete, per clip",
        dangling_bytes,
    ),
)
