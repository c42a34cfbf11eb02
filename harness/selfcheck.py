"""What the load generator records about itself while it measures. It judges nothing.

Into `PointRecord.selfcheck`, over the measurement phase unless said otherwise (durations as
`{n, p50, p99, max}` in ms, percentiles to 3 %):

    loop_lag_ms        how late a probe on the loop ran
    dispatch_lag_ms    dispatched - scheduled
    self_delay_ms      read - arrival of every read with a kernel stamp
    stalls             [{end_ns, length_ms, cause}] of 20 ms or more, at most 100; `num_stalls`
    cpu                shares of one core: process, loop_thread, run_delay (ready but not run,
                       null where unknown); of the machine: steal (null where unknown);
                       threads {name: share}; num_cores
    gc                 num, total_ms, max_ms, is_frozen
    wall_clock_steps   [{after_ns, detected_ns, size_ms}] over the whole point
    stamp_uncertainty_ns  of a converted kernel stamp
    stamp_source, pacing, loop   kernel|user, timerfd|loop, uvloop|asyncio
    reads              num, bytes, kernel_stamps, user_stamps, full, clamped (whole point)
    coalesced          gaps between chunks: num, below_1ms (whole point)
    connections        opened, reused, closed_idle, failed, failures[] (whole point)
    max_in_flight      highest number of requests in flight (whole point)

Once a second some of it also becomes telemetry: loop_lag_max_ms, cpu_process, cpu_loop_thread,
in_flight, rss_mb.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.clock import Clock
from harness.cpu import (
    CpuMeter,
    CpuTimes,
    MachineTimes,
    ThreadTimes,
    num_usable_cores,
    read_machine_times,
    read_thread_times,
)
from harness.histogram import DurationHistogram
from harness.pacer import Pacer, Timer
from harness.records import TelemetrySample
from harness.stalls import STALL_MIN_NS, Stall, StallCause, StallEvidence, explain_stall

__all__ = ["OnTelemetry", "SelfCheck"]

OnTelemetry = Callable[[Sequence[TelemetrySample]], None]

PROBE_INTERVAL_NS = 4_000_000
_TELEMETRY_INTERVAL_NS = 1_000_000_000
# A finished request leaves no cycles, so the collector has nothing to find; it stays on, but rare,
# for adapters from elsewhere that do leave some.
_GC_THRESHOLD = (50_000, 50, 100)
_MAX_STALLS = 100
_MAX_THREADS = 16
# A SIGCONT that is seen this soon after a stall ended it.
_CONTINUED_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class _Usage:
    """CPU accounting at one moment."""

    at_ns: int
    cpu: CpuTimes
    machine: MachineTimes | None
    threads: dict[int, ThreadTimes]


class _GarbageMeter:
    """Pauses of the garbage collector, through its own callbacks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ns = 0
        self.num = self.total_ns = self.max_ns = 0

    def on_phase(self, phase: str, _info: dict[str, int]) -> None:
        now_ns = self._clock.now_ns()
        if phase == "start":
            self._start_ns = now_ns
        else:
            pause_ns = now_ns - self._start_ns
            self.num += 1
            self.total_ns += pause_ns
            self.max_ns = max(self.max_ns, pause_ns)

    def clear(self) -> None:
        self.num = self.max_ns = 0
        self.total_ns = 0


class SelfCheck:
    """Probes and counters of one point. `start`, `begin`, `end`, `stop`, in this order.

    Args:
        num_in_flight: asked once a second for the telemetry.
        on_telemetry: where the rows go.
        is_gc_frozen: move what lives now out of the collector's sight and make it rare (both are
            undone at `stop`).
    """

    def __init__(
        self,
        clock: Clock,
        pacer: Pacer,
        *,
        point_id: str,
        num_in_flight: Callable[[], int] = lambda: 0,
        on_telemetry: OnTelemetry | None = None,
        is_gc_frozen: bool = True,
    ) -> None:
        self._clock = clock
        self._pacer = pacer
        self._point_id = point_id
        self._num_in_flight = num_in_flight
        self._on_telemetry = on_telemetry
        self._is_gc_frozen = is_gc_frozen
        self.loop_lag = DurationHistogram()
        self.dispatch_lag = DurationHistogram()
        self.self_delay = DurationHistogram()
        self._garbage = _GarbageMeter(clock)
        self._meter: CpuMeter | None = None
        self._timers: list[Timer] = []
        self._stalls: list[Stall] = []
        self._num_stalls = 0
        self._last_cpu: CpuTimes | None = None
        self._last_gc_ns = 0
        self._continued_ns = -_CONTINUED_NS
        self._worst_lag_ns = 0
        self._begin: _Usage | None = None
        self._last_second: _Usage | None = None
        self._old_threshold = gc.get_threshold()
        self._old_handler: Any = None
        self._has_handler = False
        self._summary: dict[str, Any] = {}

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Freeze the collector, begin to probe."""
        self._meter = CpuMeter()
        if self._is_gc_frozen:
            gc.collect()
            gc.freeze()
            self._old_threshold = gc.get_threshold()
            gc.set_threshold(*_GC_THRESHOLD)
        gc.callbacks.append(self._garbage.on_phase)
        self._watch_signal()
        now_ns = self._clock.now_ns()
        self._last_cpu = self._meter.read()
        self._last_second = self._usage()
        self._timers = [
            self._pacer.at(now_ns + PROBE_INTERVAL_NS, self._probe),
            self._pacer.at(now_ns + _TELEMETRY_INTERVAL_NS, self._second),
        ]

    def begin(self) -> None:
        """The measurement phase begins: forget what was counted in the warm-up."""
        for histogram in (self.loop_lag, self.dispatch_lag, self.self_delay):
            histogram.clear()
        self._garbage.clear()
        self._last_gc_ns = 0
        self._stalls.clear()
        self._num_stalls = 0
        self._begin = self._usage()

    def end(self) -> None:
        """The measurement phase is over: keep what was counted."""
        self._summary = {
            "loop_lag_ms": self.loop_lag.summary().in_ms(),
            "dispatch_lag_ms": self.dispatch_lag.summary().in_ms(),
            "self_delay_ms": self.self_delay.summary().in_ms(),
            "stalls": [
                {"end_ns": s.end_ns, "length_ms": s.length_ns / 1e6, "cause": s.cause.value}
                for s in self._stalls
            ],
            "num_stalls": self._num_stalls,
            "cpu": {} if self._begin is None else _shares(self._begin, self._usage()),
            "gc": {
                "num": self._garbage.num,
                "total_ms": self._garbage.total_ns / 1e6,
                "max_ms": self._garbage.max_ns / 1e6,
                "is_frozen": self._is_gc_frozen,
            },
        }

    def stop(self) -> dict[str, Any]:
        """Undo everything and give the summary (as far as it got, if the run was interrupted)."""
        if self._begin is not None and not self._summary:
            self.end()
        for timer in self._timers:
            timer.cancel()
        if self._garbage.on_phase in gc.callbacks:
            gc.callbacks.remove(self._garbage.on_phase)
        if self._is_gc_frozen:
            gc.unfreeze()
            gc.set_threshold(*self._old_threshold)
        if self._has_handler:
            signal.signal(signal.SIGCONT, self._old_handler)
            self._has_handler = False
        if self._meter is not None:
            self._meter.close()
            self._meter = None
        return {
            **self._summary,
            "wall_clock_steps": [
                {"after_ns": s.after_ns, "detected_ns": s.detected_ns, "size_ms": s.size_ns / 1e6}
                for s in self._clock.steps
            ],
            "stamp_uncertainty_ns": self._clock.uncertainty_ns,
            "pacing": self._pacer.waker_name,
        }

    # -- probes ------------------------------------------------------------------------------

    def _probe(self) -> None:
        now_ns = self._clock.now_ns()
        due_ns = self._timers[0].due_ns
        lag_ns = now_ns - due_ns
        self.loop_lag.add(lag_ns)
        self._worst_lag_ns = max(self._worst_lag_ns, lag_ns)
        assert self._meter is not None
        cpu = self._meter.read()
        # A stall began up to one interval before the probe was due; half of it, on average.
        if lag_ns + PROBE_INTERVAL_NS // 2 >= STALL_MIN_NS and self._last_cpu is not None:
            self._note_stall(now_ns, lag_ns, cpu)
        self._last_cpu = cpu
        self._last_gc_ns = self._garbage.total_ns
        # From now, not from when it was due: a stall is one late probe, not many.
        self._timers[0] = self._pacer.at(now_ns + PROBE_INTERVAL_NS, self._probe)

    def _note_stall(self, now_ns: int, lag_ns: int, cpu: CpuTimes) -> None:
        last = self._last_cpu
        assert last is not None
        delay_ns = None
        if cpu.run_delay_ns is not None and last.run_delay_ns is not None:
            delay_ns = cpu.run_delay_ns - last.run_delay_ns
        evidence = StallEvidence(
            length_ns=lag_ns,
            was_continued=now_ns - self._continued_ns < _CONTINUED_NS,
            gc_ns=self._garbage.total_ns - self._last_gc_ns,
            thread_cpu_ns=cpu.thread_ns - last.thread_ns,
            process_cpu_ns=cpu.process_ns - last.process_ns,
            run_delay_ns=delay_ns,
            num_disk_waits=cpu.num_disk_waits - last.num_disk_waits,
        )
        self._num_stalls += 1
        if len(self._stalls) < _MAX_STALLS:
            self._stalls.append(Stall(now_ns, lag_ns, explain_stall(evidence)))

    def _second(self) -> None:
        usage, before = self._usage(), self._last_second
        self._last_second = usage
        now_ns = usage.at_ns
        self._timers[1] = self._pacer.at(now_ns + _TELEMETRY_INTERVAL_NS, self._second)
        worst_ns, self._worst_lag_ns = self._worst_lag_ns, 0
        if self._on_telemetry is None or before is None:
            return
        wall_ns = max(1, now_ns - before.at_ns)
        values = {
            "loop_lag_max_ms": worst_ns / 1e6,
            "cpu_process": (usage.cpu.process_ns - before.cpu.process_ns) / wall_ns,
            "cpu_loop_thread": (usage.cpu.thread_ns - before.cpu.thread_ns) / wall_ns,
            "in_flight": float(self._num_in_flight()),
        }
        rss_mb = _rss_mb()
        if rss_mb is not None:
            values["rss_mb"] = rss_mb
        self._on_telemetry(
            [
                TelemetrySample(self._point_id, now_ns, "selfcheck", name, value)
                for name, value in values.items()
            ]
        )

    # -- helpers -----------------------------------------------------------------------------

    def _usage(self) -> _Usage:
        assert self._meter is not None
        return _Usage(
            self._clock.now_ns(), self._meter.read(), read_machine_times(), read_thread_times()
        )

    def _watch_signal(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and hasattr(signal, "SIGCONT"):
            self._old_handler = signal.signal(signal.SIGCONT, self._on_continued)
            self._has_handler = True

    def _on_continued(self, _signal: int, _frame: object) -> None:
        """The process was stopped and goes on; it may be heard before or after the late probe."""
        now_ns = self._continued_ns = self._clock.now_ns()
        if self._stalls and now_ns - self._stalls[-1].end_ns < _CONTINUED_NS:
            self._stalls[-1].cause = StallCause.STOPPED


def _shares(begin: _Usage, end: _Usage) -> dict[str, Any]:
    """CPU between two moments as shares of wall time."""
    wall_ns = max(1, end.at_ns - begin.at_ns)
    run_delay = steal = None
    if end.cpu.run_delay_ns is not None and begin.cpu.run_delay_ns is not None:
        run_delay = (end.cpu.run_delay_ns - begin.cpu.run_delay_ns) / wall_ns
    if end.machine is not None and begin.machine is not None:
        total_ns = end.machine.total_ns - begin.machine.total_ns
        steal = (end.machine.steal_ns - begin.machine.steal_ns) / max(1, total_ns)
    threads: dict[str, float] = {}
    for thread, times in end.threads.items():
        before = begin.threads.get(thread)
        used_ns = times.cpu_ns - (before.cpu_ns if before is not None else 0)
        threads[times.name] = threads.get(times.name, 0.0) + used_ns / wall_ns
    busiest = sorted(threads.items(), key=lambda item: -item[1])[:_MAX_THREADS]
    return {
        "process": (end.cpu.process_ns - begin.cpu.process_ns) / wall_ns,
        "loop_thread": (end.cpu.thread_ns - begin.cpu.thread_ns) / wall_ns,
        "run_delay": run_delay,
        "steal": steal,
        "threads": {name: round(share, 4) for name, share in busiest},
        "num_cores": num_usable_cores(),
    }


def _rss_mb() -> float | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, IndexError, ValueError):
        return None
