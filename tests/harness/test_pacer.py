"""Absolute-time callbacks from one heap."""

from __future__ import annotations

import asyncio

import pytest

from harness.clock import RunClock
from harness.loop import run
from harness.pacer import LoopWaker, Pacer, TimerFdWaker, make_waker
from tests.builders.wire import FakeTime, ms


def test_callbacks_run_in_order_of_time_then_of_asking():
    """Equal times keep the order in which they were asked for."""
    time, ran = FakeTime(), []
    for name, at_ms in (("late", 3), ("first", 1), ("second", 1)):
        time.pacer.at(ms(at_ms), lambda name=name: ran.append(name))
    time.advance(5)

    assert ["first", "second", "late"] == ran


def test_everything_due_runs_in_one_wake_up():
    """A loop that was away for 100 ms catches up at once, not one callback a turn."""
    time, ran = FakeTime(), []
    for at_ms in range(100):
        time.pacer.at(ms(at_ms), lambda at_ms=at_ms: ran.append(at_ms))
    time.clock.advance_ns(ms(100))
    time.pacer.run_due()

    assert list(range(100)) == ran


def test_nothing_runs_early():
    """A wake-up before its time only sets the timer again."""
    time, ran = FakeTime(), []
    time.pacer.at(ms(2), lambda: ran.append("ran"))
    time.clock.advance_ns(ms(1))
    time.waker.on_wake()

    assert [] == ran
    assert [ms(2), ms(2)] == time.waker.armed


def test_callback_may_ask_for_the_next_and_get_it_in_the_same_wake_up():
    """A chain of overdue arrivals is drained whole."""
    time, ran = FakeTime(), []

    def chain(n: int) -> None:
        ran.append(n)
        if n < 50:
            time.pacer.at(ms(n), lambda: chain(n + 1))

    time.pacer.at(0, lambda: chain(0))
    time.clock.advance_ns(ms(1000))
    time.pacer.run_due()

    assert list(range(51)) == ran


def test_an_endless_chain_lets_the_loop_read_between():
    """A client that cannot keep up still reads: a wake-up has an end, and the rest is armed."""
    time, num = FakeTime(), [0]

    def again() -> None:
        num[0] += 1
        time.pacer.at(0, again)

    time.pacer.at(0, again)
    time.pacer.run_due()

    assert 256 == num[0]
    assert 0 == time.waker.armed[-1]


def test_cancelled_callback_does_not_run():
    """And what it held is dropped at once."""
    time, ran = FakeTime(), []
    timer = time.pacer.at(ms(1), lambda: ran.append("ran"))
    timer.cancel()
    time.advance(2)

    assert [] == ran
    assert timer.callback is None


def test_a_callback_that_raises_does_not_stop_the_others():
    """Its exception is handed to the owner."""
    time, ran = FakeTime(), []

    def fail() -> None:
        raise ValueError("broken")

    time.pacer.at(ms(1), fail)
    time.pacer.at(ms(1), lambda: ran.append("ran"))
    time.advance(2)

    assert ["ran"] == ran
    assert ["broken"] == [str(error) for error in time.errors]


def test_running_inside_a_callback_is_not_repeated():
    """A read callback inside a send must not run the heap a second time."""
    time, ran = FakeTime(), []
    time.pacer.at(0, lambda: (ran.append(1), time.pacer.run_due()))
    time.pacer.at(0, lambda: ran.append(2))
    time.pacer.run_due()

    assert [1, 2] == ran


def test_what_was_ready_two_wake_ups_before_the_last_has_been_served():
    """A turn of the loop lies between any two; before the third nothing is known."""
    time, seen = FakeTime(), []
    for _ in range(5):
        time.advance(4)
        time.waker.on_wake()
        seen.append(time.pacer.polled_ns)

    assert [0, 0, ms(4), ms(8), ms(12)] == seen


@pytest.mark.parametrize("use_timerfd", [True, False])
def test_wakers_of_this_system_call_back_at_or_after_the_moment(use_timerfd: bool):
    """The kernel's timer and the loop's both keep absolute time."""

    async def main() -> list[int]:
        loop, clock = asyncio.get_running_loop(), RunClock()
        pacer = Pacer(clock, make_waker(loop, clock, use_timerfd=use_timerfd), on_error=print)
        late, done = [], asyncio.Event()
        start = clock.now_ns()
        for at_ms in (2, 4, 6):
            due = start + ms(at_ms)
            pacer.at(due, lambda due=due: late.append(clock.now_ns() - due))
        pacer.at(start + ms(7), done.set)
        await asyncio.wait_for(done.wait(), 5)
        pacer.close()
        return late

    late = run(main())

    assert 3 == len(late)
    assert min(late) >= 0


def test_fallback_is_named():
    """The run record says which timer woke it."""

    async def main() -> tuple[str, str]:
        loop, clock = asyncio.get_running_loop(), RunClock()
        wakers = TimerFdWaker(loop, clock), LoopWaker(loop, clock)
        names = tuple(Pacer(clock, waker, on_error=print).waker_name for waker in wakers)
        for waker in wakers:
            waker.close()
        return names  # type: ignore[return-value]

    assert ("timerfd", "loop") == run(main())
