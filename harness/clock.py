"""The run clock: monotonic nanoseconds from the run's anchor, and the way from wall time to it.

The kernel stamps what it receives in wall time (CLOCK_REALTIME). Durations must never use that
clock, so stamps are converted: readings of the two clocks, taken together, bound the offset
between them; intersecting the bounds of many readings narrows it to some hundred nanoseconds.
Both clocks are slewed alike, so the offset is constant until somebody sets the wall clock. Then
the bounds contradict each other, and a new offset is begun.

Source: analysis/METRICS.md, "Clock and stamps".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from harness.timerfd import WallClockAlarm

__all__ = [
    "SAMPLE_INTERVAL_NS",
    "STEP_MIN_NS",
    "Clock",
    "ClockReading",
    "ClockWatch",
    "FakeClock",
    "OffsetTracker",
    "RunClock",
    "WallClockStep",
]

# Readings are taken this often; a step inside the interval voids the stamps of that interval.
SAMPLE_INTERVAL_NS = 100_000_000
# A smaller change of the offset restarts its estimate but is no step.
STEP_MIN_NS = 1_000_000
# Offsets kept for the run record: one a second, and one at every change.
_KEPT_INTERVAL_NS = 1_000_000_000
# The two clocks are rounded apart, so bounds may miss each other by this much without meaning it.
_ROUNDING_NS = 2
_READINGS_PER_SAMPLE = 5


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The wall clock, read between two reads of the run clock."""

    before_ns: int
    realtime_ns: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class WallClockStep:
    """The wall clock was set: somewhere between two moments of the run clock, by `size_ns`."""

    after_ns: int
    detected_ns: int
    size_ns: int


class Clock(Protocol):
    """The run clock as the rest of the harness sees it."""

    def now_ns(self) -> int:
        """Nanoseconds since the anchor."""
        ...

    def monotonic_ns(self, run_ns: int) -> int:
        """A moment of this clock on the system's CLOCK_MONOTONIC, for the kernel's timers."""
        ...

    def from_realtime_ns(self, realtime_ns: int) -> int | None:
        """A wall-clock stamp on this clock; None before the first reading."""
        ...

    def is_void(self, floor_ns: int, read_ns: int) -> bool:
        """Whether the wall clock was set within an interval, so that stamps in it mean nothing."""
        ...

    def to_realtime_ns(self, run_ns: int) -> int:
        """What the wall clock shows at a moment of this clock."""
        ...

    def sample(self) -> None:
        """Read both clocks together once more."""
        ...

    @property
    def steps(self) -> list[WallClockStep]:
        """Every time the wall clock was set by a millisecond or more."""
        ...

    @property
    def uncertainty_ns(self) -> int:
        """How far a converted stamp can be off."""
        ...


class OffsetTracker:
    """Wall clock minus run clock, as the intersection of what every reading allows."""

    __slots__ = ("_epoch_start_ns", "_high_ns", "_kept_ns", "_last_ns", "_low_ns", "kept", "steps")

    def __init__(self) -> None:
        self._low_ns: int | None = None
        self._high_ns = 0
        self._last_ns = 0
        self._epoch_start_ns = -1
        self._kept_ns = 0
        self.steps: list[WallClockStep] = []
        self.kept: list[list[int]] = []

    def add(self, reading: ClockReading) -> None:
        """Narrow the offset by one reading, or begin anew where it contradicts the others."""
        low = reading.realtime_ns - reading.after_ns
        high = reading.realtime_ns - reading.before_ns
        if self._low_ns is None:
            self._begin(low, high)
        else:
            narrow_low, narrow_high = max(low, self._low_ns), min(high, self._high_ns)
            if narrow_low <= narrow_high + _ROUNDING_NS:
                self._low_ns, self._high_ns = narrow_low, max(narrow_low, narrow_high)
            else:
                size = (low + high) // 2 - (self._low_ns + self._high_ns) // 2
                if abs(size) >= STEP_MIN_NS:
                    self.steps.append(WallClockStep(self._last_ns, reading.after_ns, size))
                    self._epoch_start_ns = reading.after_ns
                self._begin(low, high)
        self._last_ns = reading.before_ns
        self._keep(reading)

    def _begin(self, low: int, high: int) -> None:
        self._low_ns, self._high_ns = low, high
        self._kept_ns = -_KEPT_INTERVAL_NS

    def _keep(self, reading: ClockReading) -> None:
        if reading.before_ns - self._kept_ns >= _KEPT_INTERVAL_NS and self.offset_ns is not None:
            self._kept_ns = reading.before_ns
            realtime_ns = reading.before_ns + self.offset_ns
            self.kept.append([reading.before_ns, realtime_ns, self.uncertainty_ns])

    @property
    def offset_ns(self) -> int | None:
        """The middle of what is allowed; None before the first reading."""
        return None if self._low_ns is None else (self._low_ns + self._high_ns) // 2

    @property
    def uncertainty_ns(self) -> int:
        """Half the width of what is allowed, rounded up."""
        return 0 if self._low_ns is None else (self._high_ns - self._low_ns + 1) // 2

    def is_void(self, floor_ns: int, read_ns: int) -> bool:
        """Whether the last step may have happened within [floor, read]."""
        if floor_ns >= self._epoch_start_ns:
            return False
        return any(s.after_ns < read_ns and floor_ns < s.detected_ns for s in self.steps)


class _Tracked:
    """A clock that knows where the wall clock stands beside it, by the readings taken so far."""

    __slots__ = ("_tracker",)

    def __init__(self) -> None:
        self._tracker = OffsetTracker()

    def from_realtime_ns(self, realtime_ns: int) -> int | None:
        """A wall-clock stamp on this clock; None before the first reading."""
        offset = self._tracker.offset_ns
        return None if offset is None else realtime_ns - offset

    def to_realtime_ns(self, run_ns: int) -> int:
        """What the wall clock shows at a moment of this clock."""
        return run_ns + (self._tracker.offset_ns or 0)

    def is_void(self, floor_ns: int, read_ns: int) -> bool:
        """Whether the wall clock was set within [floor, read]."""
        return self._tracker.is_void(floor_ns, read_ns)

    @property
    def offsets(self) -> list[list[int]]:
        """Kept readings: [run_ns, realtime_ns, uncertainty_ns], one a second and at each change."""
        return self._tracker.kept

    @property
    def steps(self) -> list[WallClockStep]:
        """Every time the wall clock was set by a millisecond or more."""
        return self._tracker.steps

    @property
    def uncertainty_ns(self) -> int:
        """How far a converted stamp can be off."""
        return self._tracker.uncertainty_ns


class RunClock(_Tracked):
    """`time.perf_counter_ns` from an anchor, with the offset of the wall clock beside it."""

    __slots__ = ("_anchor_ns", "_counter", "_realtime", "anchor_utc")

    def __init__(
        self,
        *,
        counter_ns: Callable[[], int] = time.perf_counter_ns,
        realtime_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__()
        self._counter = counter_ns
        self._realtime = realtime_ns
        self._anchor_ns = counter_ns()
        self.anchor_utc = datetime.fromtimestamp(realtime_ns() / 1e9, UTC).isoformat()
        self.sample()

    def now_ns(self) -> int:
        """Nanoseconds since the anchor."""
        return self._counter() - self._anchor_ns

    def monotonic_ns(self, run_ns: int) -> int:
        """A moment of the run clock on CLOCK_MONOTONIC (which `perf_counter` reads on Linux)."""
        return run_ns + self._anchor_ns

    def from_monotonic_ns(self, monotonic_ns: int) -> int:
        """A moment of CLOCK_MONOTONIC, perhaps of another process here, on the run clock."""
        return monotonic_ns - self._anchor_ns

    def sample(self) -> None:
        """Read both clocks together a few times and keep the closest reading."""
        best: ClockReading | None = None
        for _ in range(_READINGS_PER_SAMPLE):
            before = self.now_ns()
            realtime = self._realtime()
            after = self.now_ns()
            if best is None or after - before < best.after_ns - best.before_ns:
                best = ClockReading(before, realtime, after)
        assert best is not None
        self._tracker.add(best)


class FakeClock(_Tracked):
    """A clock that stands still until it is told to move; its wall clock can be set."""

    def __init__(self, *, now_ns: int = 0, realtime_ns: int = 1_700_000_000_000_000_000) -> None:
        super().__init__()
        self._now_ns = now_ns
        self._offset_ns = realtime_ns - now_ns
        self.anchor_utc = datetime.fromtimestamp(realtime_ns / 1e9, UTC).isoformat()
        self.sample()

    def now_ns(self) -> int:
        """Where it was last put."""
        return self._now_ns

    def advance_ns(self, by_ns: int) -> None:
        """Move on."""
        assert by_ns >= 0
        self._now_ns += by_ns

    def set_wall_clock(self, by_ns: int) -> None:
        """Step the wall clock against the run clock."""
        self._offset_ns += by_ns

    def realtime_ns(self) -> int:
        """What the wall clock shows."""
        return self._now_ns + self._offset_ns

    def monotonic_ns(self, run_ns: int) -> int:
        """The same number: this clock is its own system clock."""
        return run_ns

    def sample(self) -> None:
        """Take one exact reading."""
        self._tracker.add(ClockReading(self._now_ns, self.realtime_ns(), self._now_ns))


class ClockWatch:
    """Samples a clock every 100 ms, and at once when somebody set the wall clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._alarm: WallClockAlarm | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; needs to run on the loop's thread."""
        try:
            self._alarm = WallClockAlarm()
        except OSError:
            self._alarm = None  # the 100 ms samples still find a step, only later
        else:
            self._loop.add_reader(self._alarm.fd, self._on_alarm)
        self._tick()

    def stop(self) -> None:
        """End, and give the descriptor back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._alarm is not None:
            self._loop.remove_reader(self._alarm.fd)
            self._alarm.close()
            self._alarm = None

    def _tick(self) -> None:
        self._clock.sample()
        self._timer = self._loop.call_later(SAMPLE_INTERVAL_NS / 1e9, self._tick)

    def _on_alarm(self) -> None:
        if self._alarm is not None and self._alarm.acknowledge():
            self._clock.sample()
