"""What the load generator records about itself."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.clock import RunClock
from harness.cpu import CpuMeter, read_machine_times, read_thread_times
from harness.loop import run
from harness.pacer import Pacer, make_waker
from harness.selfcheck import SelfCheck


def _check(disturb: Callable[[], object], *, settle_s: float = 0.03) -> dict[str, Any]:
    """Run a self-check around one disturbance of the loop."""

    async def main() -> dict[str, Any]:
        loop, clock = asyncio.get_running_loop(), RunClock()
        pacer = Pacer(clock, make_waker(loop, clock), on_error=print)
        check = SelfCheck(clock, pacer, point_id="p")
        check.start()
        await asyncio.sleep(settle_s)
        check.begin()
        await asyncio.sleep(settle_s)
        disturb()
        await asyncio.sleep(settle_s)
        check.end()
        told = check.stop()
        pacer.close()
        return told

    return run(main())


def _longest(told: dict[str, Any]) -> dict[str, Any]:
    assert told["stalls"], "no stall was noticed"
    return max(told["stalls"], key=lambda stall: stall["length_ms"])


def _spin(duration_s: float) -> None:
    end = time.perf_counter() + duration_s
    while time.perf_counter() < end:
        pass


def test_busy_callback_is_a_stall_of_its_length():
    """40 ms of work on the loop's thread: found, at least about that long, and called busy code
    (or a lack of CPU, where the machine had none for it)."""
    stall = _longest(_check(lambda: _spin(0.04)))

    assert stall["length_ms"] >= 35
    assert stall["cause"] in ("callback", "cpu")


def test_sleeping_callback_is_a_blocked_loop():
    """A synchronous wait where none belongs."""
    stall = _longest(_check(lambda: time.sleep(0.06)))

    assert stall["length_ms"] >= 55
    assert stall["cause"] in ("blocked", "cpu", "disk")


def test_stopped_process_is_told_from_a_blocked_one():
    """SIGSTOP for 60 ms, as a debugger or a container's freezer does."""

    def stop() -> None:
        script = (
            "import os, signal, sys, time\n"
            "pid = int(sys.argv[1])\n"
            "os.kill(pid, signal.SIGSTOP); time.sleep(0.08); os.kill(pid, signal.SIGCONT)\n"
        )
        subprocess.Popen([sys.executable, "-c", script, str(os.getpid())]).wait()

    # Waiting for the child is itself a block; the stop lies inside it and is the surer sign.
    assert "stopped" == _longest(_check(stop))["cause"]


def test_collector_pauses_are_counted():
    """Their number, sum and longest."""
    told = _check(lambda: [gc.collect() for _ in range(3)])

    assert told["gc"]["num"] >= 3
    assert 0 < told["gc"]["max_ms"] <= told["gc"]["total_ms"]
    assert told["gc"]["is_frozen"]


def test_quiet_loop_shows_its_lag_and_shares():
    """Values, not verdicts."""
    told = _check(lambda: None)

    assert told["loop_lag_ms"]["n"] >= 5
    assert {"process", "loop_thread", "run_delay", "steal", "threads", "num_cores"} == set(
        told["cpu"]
    )
    assert 0 <= told["cpu"]["loop_thread"] <= told["cpu"]["process"] + 0.05
    assert [] == told["wall_clock_steps"]


def test_warm_up_is_forgotten():
    """What happened before the measurement phase is not in the summary."""

    async def main() -> dict[str, Any]:
        loop, clock = asyncio.get_running_loop(), RunClock()
        pacer = Pacer(clock, make_waker(loop, clock), on_error=print)
        check = SelfCheck(clock, pacer, point_id="p")
        check.start()
        await asyncio.sleep(0.01)
        check.dispatch_lag.add(5_000_000)
        gc.collect()
        check.begin()
        check.dispatch_lag.add(1_000_000)
        check.end()
        told = check.stop()
        pacer.close()
        return told

    told = run(main())

    assert {"n": 1, "p50": 1.0, "p99": 1.0, "max": 1.0} == told["dispatch_lag_ms"]
    assert 0 == told["gc"]["num"]


def test_signal_handler_is_put_back():
    """A library must not keep somebody's signal."""
    before = signal.getsignal(signal.SIGCONT)
    _check(lambda: None, settle_s=0.005)

    assert before == signal.getsignal(signal.SIGCONT)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_system_accounting_is_read():
    """CPU time moves on when we work; the busy thread is among the threads."""
    meter = CpuMeter()
    before = meter.read()
    _spin(0.03)
    after = meter.read()
    meter.close()

    assert after.thread_ns > before.thread_ns
    assert after.process_ns >= after.thread_ns - before.thread_ns
    assert os.getpid() in read_thread_times()
    machine = read_machine_times()
    assert machine is None or machine.total_ns > machine.steal_ns >= 0
