"""Tells a burst from overload, by how long a newcomer would have had to wait and for how long so.

The wait is measured, not modelled: how often a place came free lately while somebody wanted one,
times those in front. A short fright of the load guard, which takes places away for as long as steps
are slow, therefore changes next to nothing here.
"""

from __future__ import annotations

from reference_engine.clock import NS_PER_S

__all__ = ["StandingQueue"]

_WINDOW = 16  # places that came free: two generations of a small machine's streams


class StandingQueue:
    """How long newcomers wait, and since when that has been too long.

    It is too long once a newcomer's wait passes `max_wait_s`, and until it is half of that or
    nobody waits: refusals hold the wait at its limit, and must not end what they are the answer to.
    After `patience_s` of it a queue stands. The engine's thread writes, others may read.

    Args:
        max_wait_s: the longest wait behind a standing queue; None: any.
        patience_s: for how long a wait may be too long.
    """

    def __init__(self, *, max_wait_s: float | None, patience_s: float) -> None:
        self._max_wait_s, self._patience_ns = max_wait_s, round(patience_s * NS_PER_S)
        self._interval_ns: float | None = None
        self._num_intervals = 0
        self._interval_from_ns: int | None = None  # None: nobody wants a place
        self._too_long_since_ns: int | None = None

    @property
    def place_s(self) -> float | None:
        """Seconds from one place to the next while somebody wants one; None: none came yet."""
        return None if self._interval_ns is None else self._interval_ns / NS_PER_S

    def wanted(self, now_ns: int) -> None:
        """Somebody waits for a place, or was turned away for want of one."""
        if self._interval_from_ns is None:
            self._interval_from_ns = now_ns

    def freed(self, num_waiting: int, now_ns: int) -> None:
        """A place came free, and so many wait for one."""
        if self._interval_from_ns is not None:
            # A plain mean at first: the places of a burst come free one soon after the other.
            self._num_intervals = min(self._num_intervals + 1, _WINDOW)
            before_ns, interval_ns = self._interval_ns or 0.0, now_ns - self._interval_from_ns
            self._interval_ns = before_ns + (interval_ns - before_ns) / self._num_intervals
        self._interval_from_ns = now_ns if num_waiting else None

    def look(self, num_waiting: int, now_ns: int) -> None:
        """Take note of a queue's length as it is now."""
        if not num_waiting:
            self._too_long_since_ns = None
            return
        self.wanted(now_ns)
        if self._max_wait_s is None or self._interval_ns is None:
            return
        wait_s = (num_waiting + 1) * self._interval_ns / NS_PER_S
        if wait_s > self._max_wait_s:
            if self._too_long_since_ns is None:
                self._too_long_since_ns = now_ns
        elif wait_s <= self._max_wait_s / 2:
            self._too_long_since_ns = None

    def max_waiting(self, now_ns: int) -> int | None:
        """How many may queue behind a queue that stands; None: it does not stand."""
        since_ns, place_s = self._too_long_since_ns, self.place_s
        if since_ns is None or not place_s or now_ns - since_ns < self._patience_ns:
            return None
        assert self._max_wait_s is not None
        return int(self._max_wait_s / place_s)
