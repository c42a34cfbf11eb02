# SPDX-License-Identifier: GPL-3.0-or-later
"""Which request gets the next free inference thread: pure rules, no threads and no clock.

The unit of work is one step of a request: a frontend call or the decoding of one chunk. A step
that has begun runs to its end, so the rule is asked again only when a thread becomes free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

__all__ = [
    "POLICIES",
    "Policy",
    "PolicyName",
    "ReadyWork",
    "deadline_first",
    "fifo",
    "next_playback_deadline_ns",
    "retry_after_s",
]

MAX_RETRY_AFTER_S = 60


class PolicyName(StrEnum):
    """The rules a server can be started with."""

    DEADLINE = "deadline"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True)
class ReadyWork:
    """A request that could run its next step now.

    `arrival_seq` counts admitted requests. `playback_deadline_ns` is when its listener runs dry,
    on the server's monotonic clock; None: nothing was sent yet, the listener waits for sound.
    """

    arrival_seq: int
    playback_deadline_ns: int | None = None


Policy = Callable[[Sequence[ReadyWork]], ReadyWork]


def deadline_first(ready: Sequence[ReadyWork]) -> ReadyWork:
    """The oldest request that still waits for its first sound, else the earliest deadline.

    Ties go to the older request. Under lasting overload newcomers are served first and listeners
    who already hear something run dry: that is the price of a short wait for first sound.
    """
    assert ready

    def urgency(work: ReadyWork) -> tuple[bool, int, int]:
        deadline_ns = work.playback_deadline_ns
        return (deadline_ns is not None, deadline_ns or 0, work.arrival_seq)

    return min(ready, key=urgency)


def fifo(ready: Sequence[ReadyWork]) -> ReadyWork:
    """The oldest request, which so runs to its end before a younger one gets that thread."""
    assert ready
    return min(ready, key=lambda work: work.arrival_seq)


POLICIES: Mapping[PolicyName, Policy] = MappingProxyType(
    {PolicyName.DEADLINE: deadline_first, PolicyName.FIFO: fifo}
)


def next_playback_deadline_ns(deadline_ns: int | None, now_ns: int, *, audio_ns: int) -> int:
    """When the listener runs dry once a chunk of `audio_ns` is handed over at `now_ns`.

    The listener starts with the first chunk. If it ran dry before (`deadline_ns` is past), it
    resumes at `now_ns`: lost time is not owed back.
    """
    starts_ns = now_ns if deadline_ns is None else max(deadline_ns, now_ns)
    return starts_ns + audio_ns


def retry_after_s(num_open: int, num_workers: int, *, mean_service_ns: int) -> int:
    """Whole seconds until about one place is free, between 1 and 60.

    With every thread busy, one request ends each `mean_service_ns / num_workers`; half of the
    open ones must end before the queue is comfortably short again.
    """
    wait_ns = mean_service_ns * num_open // (2 * num_workers)
    return min(MAX_RETRY_AFTER_S, max(1, -(-wait_ns // 1_000_000_000)))
