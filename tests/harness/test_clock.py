"""The run clock and the way from the kernel's wall time to it."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from harness.clock import ClockReading, ClockWatch, FakeClock, OffsetTracker, RunClock
from harness.loop import run

EPOCH_NS = 1_700_000_000_000_000_000


def test_readings_narrow_the_offset_to_their_intersection():
    """Two bounds that overlap by 30 ns leave an offset known to 15 ns."""
    tracker = OffsetTracker()
    tracker.add(ClockReading(0, EPOCH_NS, 100))
    tracker.add(ClockReading(1000, EPOCH_NS + 930, 1100))

    assert (EPOCH_NS - 85, 15) == (tracker.offset_ns, tracker.uncertainty_ns)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=50))
def test_true_offset_stays_inside_the_uncertainty(delays: list[tuple[int, int]]):
    """However long each of the three reads took, the truth is never excluded."""
    tracker = OffsetTracker()
    now = 0
    for first, second in delays:
        now += 1_000_000
        tracker.add(ClockReading(now, EPOCH_NS + now + first, now + first + second))

    assert tracker.offset_ns is not None
    assert abs(tracker.offset_ns - EPOCH_NS) <= tracker.uncertainty_ns
    assert [] == tracker.steps


def test_a_wall_clock_that_is_set_is_one_step_of_its_size():
    """The bounds contradict each other: 5 s forward is found between the two readings around it."""
    clock = FakeClock()
    clock.advance_ns(100)
    clock.sample()
    clock.advance_ns(100)
    clock.set_wall_clock(5_000_000_000)
    clock.sample()

    assert [(100, 200, 5_000_000_000)] == [
        (step.after_ns, step.detected_ns, step.size_ns) for step in clock.steps
    ]


def test_stamps_around_a_step_are_void_and_later_ones_are_not():
    """Only what was received between the two readings around the step cannot be believed."""
    clock = FakeClock()
    clock.advance_ns(1000)
    clock.sample()
    clock.set_wall_clock(-5_000_000_000)
    clock.advance_ns(1000)
    clock.sample()

    assert [True, True, False, False] == [
        clock.is_void(500, 1500),
        clock.is_void(1500, 2500),
        clock.is_void(100, 900),
        clock.is_void(2000, 2500),
    ]


def test_a_change_below_a_millisecond_is_no_step():
    """The estimate begins anew, and the run is not blamed for it."""
    clock = FakeClock()
    clock.advance_ns(100)
    clock.set_wall_clock(500_000)
    clock.sample()

    assert [] == clock.steps
    assert 100 == clock.from_realtime_ns(clock.realtime_ns())


def test_conversion_follows_the_wall_clock_after_a_step():
    """The new offset is used at once."""
    clock = FakeClock()
    clock.set_wall_clock(7_000_000_000)
    clock.advance_ns(50)
    clock.sample()

    assert 50 == clock.from_realtime_ns(clock.realtime_ns())


def test_offsets_are_kept_once_a_second_and_at_every_change():
    """An hour of samples must not fill the run record."""
    clock = FakeClock()
    for _ in range(30):
        clock.advance_ns(100_000_000)
        clock.sample()
    before = len(clock.offsets)
    clock.set_wall_clock(2_000_000_000)
    clock.sample()

    assert (4, 5) == (before, len(clock.offsets))


def test_real_clock_converts_a_wall_stamp_to_within_its_uncertainty():
    """A wall-clock read between two reads of the run clock lands between them."""
    import time

    clock = RunClock()
    for _ in range(50):
        clock.sample()
    before = clock.now_ns()
    stamp = clock.from_realtime_ns(time.time_ns())
    after = clock.now_ns()

    assert stamp is not None
    assert before - clock.uncertainty_ns <= stamp <= after + clock.uncertainty_ns
    assert clock.uncertainty_ns < 100_000


def test_watch_samples_from_its_start_and_stops_clean():
    """Starting takes a reading at once; stopping leaves no timer and no descriptor behind."""
    clock = FakeClock()
    clock.set_wall_clock(3_000_000_000)

    async def main() -> None:
        watch = ClockWatch(asyncio.get_running_loop(), clock)
        watch.start()
        watch.stop()
        watch.stop()

    run(main())

    assert 1 == len(clock.steps)
