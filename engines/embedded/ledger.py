# SPDX-License-Identifier: GPL-3.0-or-later
"""What the server did for each request, so that a client's count can be checked against it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Entry", "Ledger", "RequestStatus"]


class RequestStatus(StrEnum):
    """Where a request stands or how it ended."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"  # the client went away, or did not read for too long
    FAILED = "failed"
    REFUSED = "refused"  # the queue was full


@dataclass(slots=True)
class Entry:
    """One request; times in ns on the server's monotonic clock. Written by its HTTP handler.

    `body_bytes` counts what was handed to the connection as body, framing apart; `audio_bytes`
    the samples among it (a WAV header is body, not audio).
    """

    request_id: str
    num_characters: int
    response_format: str
    received_ns: int
    status: RequestStatus = RequestStatus.RUNNING
    body_bytes: int = 0
    audio_bytes: int = 0
    num_chunks: int = 0
    num_steps: int = 0
    inference_ns: int = 0
    first_audio_ns: int | None = None
    ended_ns: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values; durations from arrival, null where the moment did not come."""
        return {
            "request_id": self.request_id,
            "status": self.status.value,
            "num_characters": self.num_characters,
            "response_format": self.response_format,
            "body_bytes": self.body_bytes,
            "audio_bytes": self.audio_bytes,
            "num_chunks": self.num_chunks,
            "num_steps": self.num_steps,
            "inference_ns": self.inference_ns,
            "first_audio_after_ns": self._after(self.first_audio_ns),
            "ended_after_ns": self._after(self.ended_ns),
        }

    def _after(self, moment_ns: int | None) -> int | None:
        return None if moment_ns is None else moment_ns - self.received_ns


class Ledger:
    """The latest `capacity` requests by id; an id used again replaces its older entry."""

    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self._capacity = capacity
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._num_seen = 0

    def add(self, entry: Entry) -> None:
        """Remember a request, forgetting the oldest where there are too many."""
        self._num_seen += 1
        self._entries[entry.request_id] = entry
        self._entries.move_to_end(entry.request_id)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def get(self, request_id: str) -> Entry | None:
        """The latest request with this id, or None where it is unknown or forgotten."""
        return self._entries.get(request_id)

    def as_json(self) -> dict[str, Any]:
        """Every remembered request, oldest first."""
        return {
            "num_seen": self._num_seen,
            "capacity": self._capacity,
            "requests": [entry.as_json() for entry in self._entries.values()],
        }
