"""One request as the metrics see it: record, sound, onset, playback, outcome.

Built once per request from what was stored; every metric is a function of it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

from analysis.onset import DEFAULT, NARI_V1, Onset, OnsetPreset, find_onset
from analysis.outcomes import FinalOutcome, Runaway, final_outcome
from analysis.playback import (
    IMMEDIATE,
    UNDERRUN_MIN_MS,
    MediaArrival,
    PlaybackTimeline,
    StartKind,
    StartRule,
    simulate_playback,
)
from analysis.reply import Reply, decode_reply
from analysis.stamps import StampRule, chunk_uncertainties
from analysis.voice_activity import find_speech_onset
from engines.outcomes import TransportOutcome
from harness.records import RequestRecord, StampSource

__all__ = ["AnalysisContext", "AnalysisSettings", "RequestView", "view_request"]

# Raised whenever the same settings would give other numbers, so that stored results are redone.
RULES_VERSION = 4


@dataclass(frozen=True, slots=True)
class AnalysisSettings:
    """Everything a person may choose about how a run is read; stored with the results."""

    onset: OnsetPreset = DEFAULT
    comparison_onset: OnsetPreset = NARI_V1
    start: StartRule = IMMEDIATE
    underrun_min_ms: float = UNDERRUN_MIN_MS
    runaway: Runaway = field(default_factory=Runaway)

    def digest(self) -> str:
        """Changes with any setting and with the rules behind them."""
        text = json.dumps({"rules": RULES_VERSION, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class AnalysisContext:
    """Settings, and what a run says about its stamps and its text."""

    settings: AnalysisSettings = field(default_factory=AnalysisSettings)
    stamps: StampRule = field(default_factory=lambda: StampRule(StampSource.USER, 0))
    is_incremental: bool = False


@dataclass(frozen=True, slots=True)
class RequestView:
    """One request, ready to be measured.

    onset: by the chosen preset (or known, in simulated runs); comparison_onset: by the other one.
    speech_onset: where a voice begins, at or after the onset; None also where no sound was kept.
    left_ns: when the listener of a reply that was cut off was gone; None where it was not.
    timeline: playback by the chosen start rule, up to then; None where no sample is known to have
        come, or nothing had begun to play.
    uncertainty_ns: one per chunk.
    """

    record: RequestRecord
    reply: Reply
    outcome: FinalOutcome
    reason: str | None
    onset: Onset | None
    comparison_onset: Onset | None
    speech_onset: Onset | None
    left_ns: int | None
    timeline: PlaybackTimeline | None
    uncertainty_ns: tuple[int, ...]
    context: AnalysisContext

    @property
    def has_continuity(self) -> bool:
        """Whether stalls mean anything: a finished reply in more than one playable chunk."""
        return (
            not self.outcome.is_failure
            and self.timeline is not None
            and self.timeline.is_continuity_applicable
        )


def view_request(
    record: RequestRecord, payload: bytes | None, context: AnalysisContext
) -> RequestView:
    """Decode, find the onset, replay, and decide the outcome of one request."""
    settings = context.settings
    reply = decode_reply(record, payload)
    uncertainty = chunk_uncertainties(record.chunks, context.stamps)
    onset = _onset(record, reply, settings.onset)
    verdict = final_outcome(record, reply, onset=onset, runaway=settings.runaway)
    left_ns = _left_ns(record)
    return RequestView(
        record=record,
        reply=reply,
        outcome=verdict.outcome,
        reason=verdict.reason,
        onset=onset,
        comparison_onset=_onset(record, reply, settings.comparison_onset),
        speech_onset=_speech_onset(reply, onset),
        left_ns=left_ns,
        timeline=_timeline(record, reply, uncertainty, start=settings.start, left_ns=left_ns),
        uncertainty_ns=uncertainty,
        context=context,
    )


def _onset(record: RequestRecord, reply: Reply, preset: OnsetPreset) -> Onset | None:
    if not reply.sample_rate_hz or not reply.num_samples:
        return None
    if record.known_onset_sample is not None:
        sample = record.known_onset_sample
        if sample >= reply.num_samples:
            return None  # the reply ended before it
        return Onset(sample, round(sample * 1_000_000_000 / reply.sample_rate_hz))
    if reply.audio is None:
        return None
    return find_onset(reply.audio.samples, reply.sample_rate_hz, preset=preset)


def _speech_onset(reply: Reply, onset: Onset | None) -> Onset | None:
    if reply.audio is None or not reply.sample_rate_hz or onset is None:
        return None
    return find_speech_onset(reply.audio.samples, reply.sample_rate_hz, begin=onset.sample)


def _left_ns(record: RequestRecord) -> int | None:
    """The scenario's cancel, or the interrupt of the run; later bytes had no listener."""
    if record.transport_outcome is not TransportOutcome.CANCELLED:
        return None
    return record.finished_ns if record.cancel_ns is None else record.cancel_ns


def _timeline(
    record: RequestRecord,
    reply: Reply,
    uncertainty: tuple[int, ...],
    *,
    start: StartRule,
    left_ns: int | None,
) -> PlaybackTimeline | None:
    if not reply.sample_rate_hz or reply.samples_per_chunk is None:
        return None
    arrivals: list[MediaArrival] = []
    latest_ns = 0
    per_chunk = zip(record.chunks, reply.samples_per_chunk, uncertainty, strict=True)
    for chunk, num_samples, uncertain_ns in per_chunk:
        # Bytes come in order, so a stamp before its predecessor's can only be the stamp's fault.
        latest_ns = max(latest_ns, chunk.arrival_ns)
        has_listener = left_ns is None or latest_ns <= left_ns
        arrivals.append(MediaArrival(latest_ns, num_samples if has_listener else 0, uncertain_ns))
    if not any(arrival.num_samples for arrival in arrivals):
        return None
    timeline = simulate_playback(arrivals, reply.sample_rate_hz, start=start)
    return timeline if left_ns is None or _had_begun(timeline, left_ns) else None


def _had_begun(timeline: PlaybackTimeline, left_ns: int) -> bool:
    """Whether the player of a reply that was cut off had started; it cannot know of the end."""
    start = timeline.start
    is_full = timeline.num_samples * 1000 >= start.value_ms * timeline.sample_rate_hz
    return timeline.start_ns <= left_ns and (start.kind is not StartKind.BUFFER_MS or is_full)
