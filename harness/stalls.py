"""Why the event loop stood still, as far as the system's accounting can tell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["STALL_MIN_NS", "Stall", "StallCause", "StallEvidence", "explain_stall"]

# A loop that was away this long in the measurement phase makes a point suspect.
STALL_MIN_NS = 20_000_000


class StallCause(StrEnum):
    """The most likely reason, in the words of the report."""

    STOPPED = "stopped"  # the process was stopped and continued
    GC = "gc"  # the garbage collector
    CALLBACK = "callback"  # code on the loop's thread was busy
    CPU = "cpu"  # ready to run, but the CPU was given to others
    DISK = "disk"  # the loop's thread waited for a disk
    INTERPRETER = "interpreter"  # another thread of this process held the interpreter
    BLOCKED = "blocked"  # asleep in a call, or the whole machine was paused


@dataclass(frozen=True, slots=True)
class StallEvidence:
    """What the counters moved by while the loop was away."""

    length_ns: int
    was_continued: bool
    gc_ns: int
    thread_cpu_ns: int
    process_cpu_ns: int
    run_delay_ns: int | None
    num_disk_waits: int


@dataclass(slots=True)
class Stall:
    """One stall: its end on the run clock, how long at least, and why."""

    end_ns: int
    length_ns: int
    cause: StallCause


def explain_stall(evidence: StallEvidence) -> StallCause:
    """The first reason, from the surest to the vaguest, that accounts for half of the stall."""
    half_ns = evidence.length_ns // 2
    if evidence.was_continued:
        return StallCause.STOPPED
    if evidence.gc_ns >= half_ns:
        return StallCause.GC
    if evidence.thread_cpu_ns >= half_ns:
        return StallCause.CALLBACK
    if (evidence.run_delay_ns or 0) >= half_ns:
        return StallCause.CPU
    if evidence.num_disk_waits > 0:
        return StallCause.DISK
    if evidence.process_cpu_ns >= half_ns:
        return StallCause.INTERPRETER
    return StallCause.BLOCKED
