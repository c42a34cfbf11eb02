"""What the server did for each request: timings by stage, chunks, slack, and how it ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reference_engine.clock import NS_PER_MS
from reference_engine.messages import SAMPLE_RATE_HZ, EndReason, RequestStats

__all__ = ["Entry", "Ledger", "Outcome", "Transport", "stage_times"]


class Transport(StrEnum):
    """How the request came."""

    HTTP = "http"
    WEBSOCKET = "websocket"


class Outcome(StrEnum):
    """Where a request stands, or how it ended. Only `complete` is a plain success."""

    RUNNING = "running"
    COMPLETE = "complete"
    LENGTH = "length"
    CANCELLED = "cancelled"
    SLOW_READER = "slow_reader"
    FAILED = "failed"
    SHUTDOWN = "shutdown"
    REFUSED = "refused"


_OUTCOMES = {reason: Outcome(reason.value) for reason in EndReason}


@dataclass(slots=True)
class Entry:
    """One request. Written by its handler alone; times are ns on the engine's clock.

    text_ready_ns: when the text was prepared and the engine asked.
    num_chunks_sent, audio_bytes_sent: what the connection was given.
    """

    request_id: str
    transport: Transport
    received_ns: int
    num_characters: int = 0
    text_ready_ns: int | None = None
    first_sent_ns: int | None = None
    ended_ns: int | None = None
    outcome: Outcome = Outcome.RUNNING
    text: str = ""
    num_chunks_sent: int = 0
    audio_bytes_sent: int = 0
    stats: RequestStats | None = field(default=None, repr=False)

    def end(self, reason: EndReason, text: str = "") -> None:
        """Note how the engine ended it, unless the connection's own end was noted before."""
        if self.outcome is Outcome.RUNNING:
            self.outcome, self.text = _OUTCOMES[reason], text

    def fail(self, outcome: Outcome, text: str) -> None:
        """Note an end that the engine does not know of."""
        if self.outcome is Outcome.RUNNING:
            self.outcome, self.text = outcome, text[:300]

    def as_json(self) -> dict[str, Any]:
        """Plain values; milliseconds from arrival, null where a moment did not come."""
        stats = self.stats
        slack = None if stats is None else stats.min_slack_ns
        return {
            "request_id": self.request_id,
            "transport": self.transport.value,
            "outcome": self.outcome.value,
            "reason": self.text,
            "num_characters": self.num_characters,
            "num_chunks_sent": self.num_chunks_sent,
            "audio_bytes_sent": self.audio_bytes_sent,
            "num_codec_frames": 0 if stats is None else stats.num_codec_frames,
            "trimmed_ms": 0.0 if stats is None else _samples_ms(stats.trimmed_samples),
            "min_slack_ms": None if slack is None else slack / NS_PER_MS,
            "stages_ms": dict(stage_times(self)),
            "at_ms": {
                "text_ready": self._after(self.text_ready_ns),
                "admitted": self._after(stats.admitted_ns if stats else None),
                "first_step": self._after(stats.first_step_ns if stats else None),
                "first_codec": self._after(stats.first_codec_ns if stats else None),
                "first_pcm": self._after(stats.first_routed_ns if stats else None),
                "first_sent": self._after(self.first_sent_ns),
                "ended": self._after(self.ended_ns),
            },
            "chunks": [
                {
                    "at_ms": self._after(chunk.routed_ns),
                    "codec_frames": chunk.num_codec_frames,
                    "samples": chunk.num_samples,
                    "slack_ms": None if chunk.slack_ns is None else chunk.slack_ns / NS_PER_MS,
                }
                for chunk in (stats.chunks if stats else ())
            ],
        }

    def _after(self, moment_ns: int | None) -> float | None:
        return None if moment_ns is None else (moment_ns - self.received_ns) / NS_PER_MS


def _samples_ms(num_samples: int) -> float:
    return num_samples * 1000 / SAMPLE_RATE_HZ


def stage_times(entry: Entry) -> Iterator[tuple[str, float]]:
    """What the way to the first sound is made of: stage and milliseconds, in order.

    `text` reading and tokenising (over a WebSocket also waiting for it), `queue` for a slot,
    `turn` until the first step, `model` and codec until samples exist, `deliver` until they are
    handed on. `first_pcm` is all of it. Stages that have not come to an end are left out.
    """
    stats = entry.stats
    if stats is None:
        return
    moments = (
        ("text", entry.text_ready_ns),
        ("queue", stats.admitted_ns),
        ("turn", stats.first_step_ns),
        ("model", stats.first_codec_ns),
        ("deliver", stats.first_routed_ns),
    )
    before = entry.received_ns
    for name, moment in moments:
        if moment is None:
            return
        yield name, (moment - before) / NS_PER_MS
        before = moment
    yield "first_pcm", (before - entry.received_ns) / NS_PER_MS


class Ledger:
    """The latest `capacity` requests by id; an id used again replaces its older entry."""

    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self._capacity = capacity
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def add(self, entry: Entry) -> None:
        """Remember a request, and forget the oldest where there are too many."""
        self._entries[entry.request_id] = entry
        self._entries.move_to_end(entry.request_id)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def get(self, request_id: str) -> Entry | None:
        """The latest request of this id, or None where it is unknown or forgotten."""
        return self._entries.get(request_id)
