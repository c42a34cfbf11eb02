"""Absolute-time callbacks: arrivals, paced text, cancellations and timeouts, from one heap.

The kernel's timer descriptor wakes the loop. Beside it every read callback asks whether something
fell due (`run_due`): under load the loop is awake for reads anyway, and waiting for its next turn
would cost milliseconds. All that is due runs in one wake-up, never one callback a turn.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

from harness.clock import Clock
from harness.timerfd import TimerFd

__all__ = ["LoopWaker", "Pacer", "Timer", "TimerFdWaker", "Waker", "make_waker"]

_NEVER = 2**63 - 1
# A wake-up that ran this many callbacks lets the loop read before it goes on.
_MAX_CALLBACKS_PER_WAKE = 256


class Waker(Protocol):
    """Something that calls back at or after a moment; arming again replaces the moment."""

    @property
    def name(self) -> str:
        """For the run record."""
        ...

    def start(self, on_wake: Callable[[], None]) -> None:
        """Say whom to call."""
        ...

    def arm(self, due_ns: int) -> None:
        """Wake at `due_ns` of the run clock."""
        ...

    def close(self) -> None:
        """Never call again."""
        ...


class TimerFdWaker:
    """Wakes by a kernel timer on CLOCK_MONOTONIC."""

    name = "timerfd"

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        """Raises OSError where there are no timer descriptors."""
        self._loop = loop
        self._clock = clock
        self._timer = TimerFd()

    def start(self, on_wake: Callable[[], None]) -> None:
        """Watch the descriptor."""
        self._loop.add_reader(self._timer.fd, self._on_readable, on_wake)

    def arm(self, due_ns: int) -> None:
        """Wake at `due_ns` of the run clock."""
        self._timer.arm(self._clock.monotonic_ns(due_ns))

    def close(self) -> None:
        """Stop watching and give the descriptor back."""
        if self._timer.fd >= 0:
            self._loop.remove_reader(self._timer.fd)
            self._timer.close()

    def _on_readable(self, on_wake: Callable[[], None]) -> None:
        self._timer.acknowledge()
        on_wake()


class LoopWaker:
    """Wakes by the event loop's own timer: the fallback, up to milliseconds late."""

    name = "loop"

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self._on_wake: Callable[[], None] | None = None

    def start(self, on_wake: Callable[[], None]) -> None:
        """Remember whom to call."""
        self._on_wake = on_wake

    def arm(self, due_ns: int) -> None:
        """Wake at `due_ns` of the run clock."""
        assert self._on_wake is not None
        if self._handle is not None:
            self._handle.cancel()
        delay_s = max(0, due_ns - self._clock.now_ns()) / 1e9
        self._handle = self._loop.call_later(delay_s, self._on_wake)

    def close(self) -> None:
        """Forget the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def make_waker(
    loop: asyncio.AbstractEventLoop, clock: Clock, *, use_timerfd: bool = True
) -> TimerFdWaker | LoopWaker:
    """The best waker of this system; `use_timerfd=False` forces the fallback."""
    if use_timerfd:
        try:
            return TimerFdWaker(loop, clock)
        except OSError:
            return LoopWaker(loop, clock)
    return LoopWaker(loop, clock)


class Timer:
    """One callback in waiting. Cancelling drops what it holds, at once."""

    __slots__ = ("callback", "due_ns")

    def __init__(self, due_ns: int, callback: Callable[[], None]) -> None:
        self.due_ns = due_ns
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not call."""
        self.callback = None


class Pacer:
    """A heap of timers on the run clock.

    A callback that raises does not stop the others: its exception goes to `on_error`.
    """

    __slots__ = (
        "_armed_ns",
        "_clock",
        "_heap",
        "_is_running",
        "_next_ns",
        "_on_error",
        "_sequence",
        "_waker",
        "_wakes_ns",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, waker: Waker, *, on_error: Callable[[Exception], None]
    ) -> None:
        self._clock = clock
        self._waker = waker
        self._on_error = on_error
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._next_ns = _NEVER
        self._armed_ns = _NEVER
        self._is_running = False
        self._wakes_ns = (0, 0, 0)
        waker.start(self._on_wake)

    @property
    def waker_name(self) -> str:
        """What wakes it: `timerfd` or `loop`."""
        return self._waker.name

    @property
    def polled_ns(self) -> int:
        """A moment after which anything came that a watched descriptor has to be read for now.

        The loop wakes us at most once a turn, and in each turn asks all descriptors and serves all
        that are ready. So what was ready before the wake-up two before the last has been served
        by the turn of the one after it, if not earlier.
        """
        return self._wakes_ns[0]

    def at(self, due_ns: int, callback: Callable[[], None]) -> Timer:
        """Call back at `due_ns`, or as soon as possible if that is past; equal times in order."""
        timer = Timer(due_ns, callback)
        self._sequence += 1
        heapq.heappush(self._heap, (due_ns, self._sequence, timer))
        if due_ns < self._next_ns:
            self._next_ns = due_ns
            if not self._is_running:
                self._arm()
        return timer

    def run_due(self) -> None:
        """Run everything that is due now; cheap when nothing is."""
        if self._next_ns > self._clock.now_ns() or self._is_running:
            return
        self._is_running = True
        try:
            self._drain()
        finally:
            self._is_running = False
            self._arm()

    def close(self) -> None:
        """Forget all timers and stop waking."""
        self._heap.clear()
        self._next_ns = _NEVER
        self._waker.close()

    def _drain(self) -> None:
        heap = self._heap
        for _ in range(_MAX_CALLBACKS_PER_WAKE):
            callback = None
            while heap and callback is None:
                if heap[0][0] > self._clock.now_ns():
                    return
                timer = heapq.heappop(heap)[2]
                # Taken, not read: whoever keeps the timer must not keep what it called.
                callback, timer.callback = timer.callback, None
            if callback is None:
                return
            try:
                callback()
            except Exception as error:
                self._on_error(error)

    def _arm(self) -> None:
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        self._next_ns = heap[0][0] if heap else _NEVER
        if self._next_ns != self._armed_ns and heap:
            self._armed_ns = self._next_ns
            self._waker.arm(self._next_ns)

    def _on_wake(self) -> None:
        # Whatever was armed has fired; an early wake-up has to be armed again.
        self._armed_ns = _NEVER
        now_ns = self._clock.now_ns()
        self._wakes_ns = (*self._wakes_ns[1:], now_ns)
        if self._next_ns > now_ns:
            self._arm()
        else:
            self.run_due()
