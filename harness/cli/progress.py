"""How a run is told to a person on stderr: one line a point, rewritten while it lasts.

Plain text, not a drawing library: this is written on the loop that also sends and stamps, and a
line costs it microseconds.
"""

from __future__ import annotations

from typing import TextIO

from engines.base import EngineInfo
from engines.redact import shown_place
from harness.dispatcher import Progress
from harness.observer import Preflight
from harness.plan import RunPlan, redactor
from harness.scenario import Point
from harness.schedule import Schedule

__all__ = ["CountLine", "ProgressLine"]

_BAR_WIDTH = 20
_CLEAR = "\r\x1b[K"
# How often a count is told where no line can be rewritten.
_NUM_TOLD = 8


class ProgressLine:
    """A `RunObserver` that writes to a stream; moving lines only where that is a terminal."""

    def __init__(self, plan: RunPlan, stream: TextIO) -> None:
        self._plan = plan
        self._stream = stream
        self._is_terminal = stream.isatty()
        # What a server says of itself may hold what it was told.
        self._redact = redactor(plan.secrets)
        self._waiting: dict[str, str] = {}
        self._begun = 0
        phases = plan.scenario.phases
        self._arrivals_s = phases.warmup_s + phases.measure_s
        self._total_s = self._arrivals_s + phases.drain_s

    def on_waiting(self, engine: str, reason: str) -> None:
        """Each new reason once."""
        if self._waiting.get(engine) != reason:
            self._waiting[engine] = reason
            limit_s = self._plan.scenario.timeouts.ready_s
            self._say(f"{engine}: waiting up to {limit_s:g} s until it is ready: {reason}")

    def on_engine(self, engine: str, info: EngineInfo) -> None:
        """Who answered, or that nobody can tell."""
        adapter = self._plan.adapters[engine]
        words = [word for word in (info.server_name, info.server_version) if word]
        if info.models:
            words.append(f"models {', '.join(info.models[:5])}")
        where = shown_place(adapter.base_url)
        if words or not info.reason:
            self._say(f"{engine}: {' '.join(words) or 'ready'} at {where}")
        else:
            self._say(f"{engine}: {where} ({info.reason})")
        if info.is_match is None:
            self._say(
                f"{engine}: warning: this server cannot tell who it is, so nothing shows that it "
                f"is {adapter.name}"
            )

    def on_preflight(self, engine: str, found: Preflight) -> None:
        """How the first request ended; a bad end does not yet mean that the others will."""
        after = "" if found.duration_ms is None else f" after {found.duration_ms:.0f} ms"
        why = f": {found.error_text}" if found.error_text else ""
        self._say(f"{engine}: one request before the load: {found.outcome}{after}{why}")

    def on_point(self, point: Point, schedule: Schedule) -> None:
        """The next point begins."""
        self._begun += 1
        self._end_line()
        if not self._is_terminal:
            self._say(
                f"point {self._begun} of {len(self._plan.points)}: {point.point_id}, "
                f"{schedule.num_measured} requests and {schedule.num_warmup} of warm-up"
            )

    def on_progress(self, progress: Progress) -> None:
        """Rewrite the line."""
        if self._is_terminal:
            self._stream.write(f"{_CLEAR}{self._line(progress)}")
            self._stream.flush()

    def close(self) -> None:
        """Leave the line as it stands."""
        self._end_line()

    def _line(self, progress: Progress) -> str:
        share = min(1.0, max(0.0, progress.elapsed_s / self._total_s))
        phase = "drain" if progress.elapsed_s >= self._arrivals_s else "load"
        return (
            f"{_bar(share)} "
            f"{self._begun}/{len(self._plan.points)} {progress.point_id} {phase}: "
            f"{progress.num_arrived}/{progress.num_planned} sent, "
            f"{progress.num_in_flight} in flight, {progress.num_failed} failed"
        )

    def _say(self, text: str) -> None:
        self._stream.write(f"{self._redact(text)}\n")
        self._stream.flush()

    def _end_line(self) -> None:
        if self._is_terminal and self._begun:
            self._stream.write("\n")
            self._stream.flush()


class CountLine:
    """`label [####....] n/m`: rewritten in place on a terminal, else a line every eighth."""

    def __init__(self, label: str, stream: TextIO) -> None:
        self._label = label
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_open = False
        self._num_told = 0

    def show(self, done: int, total: int) -> None:
        """So many are done."""
        text = f"{self._label} {_bar(done / total)} {done}/{total}"
        if self._is_terminal:
            self._stream.write(f"{_CLEAR}{text}")
            self._is_open = True
        elif done * _NUM_TOLD // total > self._num_told:
            self._num_told = done * _NUM_TOLD // total
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """End the line."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()
        self._is_open, self._num_told = False, 0


def _bar(share: float) -> str:
    filled = round(share * _BAR_WIDTH)
    return f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}]"
