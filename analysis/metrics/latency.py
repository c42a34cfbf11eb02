"""When: from dispatch to the first byte, the first sample, the first sound, the end.

Each event is counted from the dispatch; the names ending in `_from_schedule` and `_from_send`
count the same event from the planned arrival and from the request body's first byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from analysis.metrics.base import Better, Cohort, RequestMetric, ms_between
from analysis.onset import Onset
from analysis.view import RequestView

__all__ = ["METRICS", "audible_ns"]


def dispatch_lag(view: RequestView) -> float | None:
    return ms_between(view.record.scheduled_ns, view.record.dispatched_ns)


def connect_time(view: RequestView) -> float | None:
    record = view.record
    # Dispatched is the first attempt; when a later one began to connect is not known.
    if record.connection_reused is not False or record.attempts > 1:
        return None
    ready_ns = record.connected_ns if record.tls_ns is None else record.tls_ns
    return ms_between(record.dispatched_ns, ready_ns)


def first_byte_ns(view: RequestView) -> int | None:
    return _before_leaving(view, view.record.first_byte_ns)


def first_playable_ns(view: RequestView) -> int | None:
    """Arrival of the chunk that completes the first decodable sample."""
    return _arrived_ns(view, 0)


def audible_received_ns(view: RequestView) -> int | None:
    """Arrival of the chunk that completes the onset sample."""
    return None if view.onset is None else _arrived_ns(view, view.onset.sample)


def audible_ns(view: RequestView, onset: Onset | None) -> int | None:
    """When the player plays the onset sample."""
    timeline = view.timeline
    if onset is None or timeline is None or onset.sample >= timeline.num_samples:
        return None
    return _before_leaving(view, timeline.sample_played_ns(onset.sample))


def _arrived_ns(view: RequestView, sample: int) -> int | None:
    """Arrival of the chunk that completes a sample."""
    counts = view.reply.samples_per_chunk
    if counts is None:
        return None
    arrived = zip(view.record.chunks, accumulate(counts), strict=True)
    return _before_leaving(view, next((c.arrival_ns for c, end in arrived if end > sample), None))


def _before_leaving(view: RequestView, when_ns: int | None) -> int | None:
    """`when_ns`, unless it was after the listener of a reply that was cut off had gone."""
    is_too_late = when_ns is not None and view.left_ns is not None and when_ns > view.left_ns
    return None if is_too_late else when_ns


def finished_ns(view: RequestView) -> int | None:
    return view.record.finished_ns


def leading_silence(view: RequestView) -> float | None:
    return None if view.onset is None else view.onset.media_ns / 1e6


def comparison_leading_silence(view: RequestView) -> float | None:
    onset = view.comparison_onset
    return None if onset is None else onset.media_ns / 1e6


def speech_onset(view: RequestView) -> float | None:
    return None if view.speech_onset is None else view.speech_onset.media_ns / 1e6


def onset_gap(view: RequestView) -> float | None:
    if view.onset is None or view.speech_onset is None:
        return None
    return (view.speech_onset.media_ns - view.onset.media_ns) / 1e6


def silence_cost(view: RequestView) -> float | None:
    return ms_between(first_playable_ns(view), audible_ns(view, view.onset))


def final_text_to_audible(view: RequestView) -> float | None:
    return ms_between(view.record.last_text_ns, audible_ns(view, view.onset))


def audible_before_text_end(view: RequestView) -> float | None:
    """Share of the reply's audio that had arrived when the last text was sent."""
    record, counts, total = view.record, view.reply.samples_per_chunk, view.reply.num_samples
    if not record.text_events or record.last_text_ns is None or counts is None or not total:
        return None
    chunks = zip(record.chunks, counts, strict=True)
    return sum(n for c, n in chunks if c.arrival_ns <= record.last_text_ns) / total


# -- declarations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    what: str
    when: Callable[[RequestView], int | None]


_EVENTS = (
    _Event("ttfb", "the first response body byte", first_byte_ns),
    _Event(
        "ttfp",
        "arrival of the chunk that completes the first decodable sample (first playable)",
        first_playable_ns,
    ),
    _Event(
        "audible_received",
        "arrival of the chunk that completes the onset sample: what a player that cuts leading"
        " silence could achieve",
        audible_received_ns,
    ),
    _Event(
        "audible_ttfa",
        "the moment the player plays the onset sample: playback start, media before the onset and"
        " stalls before it",
        lambda view: audible_ns(view, view.onset),
    ),
    _Event("e2e", "the clean end of the reply", finished_ns),
)


@dataclass(frozen=True, slots=True)
class _Origin:
    suffix: str
    what: str
    when: Callable[[RequestView], int | None]


_ORIGINS = (
    _Origin("", "dispatch", lambda view: view.record.dispatched_ns),
    _Origin("_from_schedule", "the planned arrival", lambda view: view.record.scheduled_ns),
    _Origin("_from_send", "the request body's first byte", lambda view: view.record.sent_ns),
)


def _latency(event: _Event, origin: _Origin, view: RequestView) -> float | None:
    return ms_between(origin.when(view), event.when(view))


def _comparison_ttfa(view: RequestView) -> float | None:
    return ms_between(view.record.sent_ns, audible_ns(view, view.comparison_onset))


METRICS = (
    RequestMetric(
        "dispatch_lag",
        "ms",
        Better.LOWER,
        "From the planned arrival to the dispatch: the client's own lateness; decides validity",
        dispatch_lag,
    ),
    RequestMetric(
        "connect_time",
        "ms",
        Better.LOWER,
        "DNS, TCP and TLS together; null where a warm connection was re-used, or after a retry",
        connect_time,
    ),
    *(
        RequestMetric(
            event.name + origin.suffix,
            "ms",
            Better.LOWER,
            f"From {origin.what} to {event.what}",
            partial(_latency, event, origin),
            cohort=Cohort.ALL,
        )
        for origin in _ORIGINS
        for event in _EVENTS
    ),
    RequestMetric(
        "leading_silence", "ms", Better.LOWER, "Media time before the onset sample", leading_silence
    ),
    RequestMetric(
        "speech_onset",
        "ms",
        Better.LOWER,
        "Media time before the first sample of speech, found by its voicing; null where no voice"
        " is found",
        speech_onset,
    ),
    RequestMetric(
        "onset_gap",
        "ms",
        Better.LOWER,
        "speech_onset - leading_silence: how long the first sound was not yet speech",
        onset_gap,
    ),
    RequestMetric(
        "silence_cost",
        "ms",
        Better.LOWER,
        "audible_ttfa - ttfp: how much of the wait is silence or stall",
        silence_cost,
    ),
    RequestMetric(
        "final_text_to_audible",
        "ms",
        Better.LOWER,
        "From the last text append to the moment the onset sample plays; incremental text only",
        final_text_to_audible,
        cohort=Cohort.ALL,
        is_for_incremental_text=True,
    ),
    RequestMetric(
        "audio_before_text_end",
        "share",
        Better.HIGHER,
        "Share of the reply's audio that had arrived when the last text was sent; incremental"
        " text only",
        audible_before_text_end,
        is_for_incremental_text=True,
    ),
    RequestMetric(
        "audible_ttfa_from_send_nari_v1",
        "ms",
        Better.LOWER,
        "audible_ttfa_from_send with the onset preset nari-v1, for reading beside published"
        " figures",
        _comparison_ttfa,
        cohort=Cohort.ALL,
    ),
    RequestMetric(
        "leading_silence_nari_v1",
        "ms",
        Better.LOWER,
        "Media time before the onset by the preset nari-v1",
        comparison_leading_silence,
    ),
)
