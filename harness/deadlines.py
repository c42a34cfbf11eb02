"""The user's limits on one request: connect, first audio, total. One timer for all three."""

from __future__ import annotations

from collections.abc import Callable

from harness.clock import Clock
from harness.pacer import Pacer, Timer
from harness.settings import TimeoutSettings

__all__ = ["Deadlines"]

_NS = 1_000_000_000
_MISSED = {"connect": "no connection", "first_audio": "no audio", "total": "not finished"}


class Deadlines:
    """Calls `on_missed(kind, text)` when a limit passes that was not met.

    A limit that is met keeps its timer until it fires, finds nothing to do and sets the next:
    cheaper than moving timers about while audio arrives.
    """

    __slots__ = ("_clock", "_due_ns", "_on_missed", "_pacer", "_timeouts", "_timer")

    def __init__(
        self,
        timeouts: TimeoutSettings,
        *,
        clock: Clock,
        pacer: Pacer,
        on_missed: Callable[[str, str], None],
    ) -> None:
        self._timeouts = timeouts
        self._clock = clock
        self._pacer = pacer
        self._on_missed: Callable[[str, str], None] | None = on_missed
        self._due_ns: dict[str, int] = {}
        self._timer: Timer | None = None

    def start(self, now_ns: int, *, first_ns: int) -> None:
        """Count from now; the total from `first_ns`, the dispatch of the first attempt."""
        for kind in _MISSED:
            limit_s = self._limit_s(kind)
            if limit_s is not None:
                start_ns = first_ns if kind == "total" else now_ns
                self._due_ns[kind] = start_ns + round(limit_s * _NS)
        self._watch()

    def meet(self, kind: str) -> None:
        """This one cannot be missed any more."""
        self._due_ns.pop(kind, None)

    def cancel(self) -> None:
        """None can. Whoever was to be told is forgotten."""
        self._due_ns.clear()
        self._on_missed = None
        if self._timer is not None:
            self._timer.cancel()

    def _limit_s(self, kind: str) -> float | None:
        limit_s: float | None = getattr(self._timeouts, f"{kind}_s")
        return limit_s

    def _watch(self) -> None:
        if not self._due_ns:
            return
        kind, due_ns = min(self._due_ns.items(), key=lambda item: item[1])
        if due_ns <= self._clock.now_ns():
            text = f"{_MISSED[kind]} within {self._limit_s(kind):g} s (timeouts.{kind}_s)"
            if self._on_missed is not None:
                self._on_missed(kind, text)
        else:
            self._timer = self._pacer.at(due_ns, self._watch)
