"""Time for the engine: the real clock, and a virtual one that moves only when told.

The only module here that reads a clock. Times are integer nanoseconds on a monotonic scale.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["NS_PER_MS", "NS_PER_S", "Clock", "MonotonicClock", "VirtualClock", "thread_cpu_ns"]

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """Where the engine gets its time."""

    def now_ns(self) -> int:
        """Nanoseconds on a monotonic scale."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary start."""
        return time.monotonic_ns()


class VirtualClock:
    """A clock for simulations and tests: stands still until `advance` or `advance_to`."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        """The virtual time."""
        return self._now_ns

    def advance(self, duration_ns: int) -> None:
        """Let time pass; it never goes back."""
        assert duration_ns >= 0
        self._now_ns += duration_ns

    def advance_to(self, at_ns: int) -> None:
        """Go to `at_ns`, or stay where it is already past."""
        self._now_ns = max(self._now_ns, at_ns)


def thread_cpu_ns() -> int:
    """CPU time of the calling thread: what a turn costs, whoever else uses the core."""
    return time.thread_time_ns()
