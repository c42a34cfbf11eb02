"""How well this host can tell time right now: a spin that watches for moments it was not there.

A program that does nothing but read the clock sees every interruption as a gap between two
readings. What it sees is what any measurement beside it will suffer, whoever is to blame.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.stalls import StallCause

__all__ = ["HostNoise", "host_trouble", "probe_noise"]

_GAP_MIN_NS = 200_000
_LONG_GAP_NS = 5_000_000
# An idle host of two cores shows under 2 % run delay at 500 replies in flight.
_MAX_RUN_DELAY = 0.05
_MAX_STEAL = 0.01
_MAX_LOST_SHARE = 0.02
_FOREIGN_CAUSES = (StallCause.CPU, StallCause.BLOCKED, StallCause.DISK, StallCause.STOPPED)


@dataclass(frozen=True, slots=True)
class HostNoise:
    """What one spin saw on one core. A gap is at least 0.2 ms, a long one at least 5 ms."""

    cpu: int | None
    seconds: float
    num_gaps: int
    num_long_gaps: int
    longest_gap_ms: float
    lost_share: float

    def __str__(self) -> str:
        where = "any core" if self.cpu is None else f"core {self.cpu}"
        return (
            f"{where}: away {self.lost_share:.1%} of {self.seconds:g} s, longest "
            f"{self.longest_gap_ms:.1f} ms, {self.num_long_gaps} gaps >= 5 ms"
        )


def probe_noise(
    seconds: float, *, cpu: int | None = None, now_ns: Callable[[], int] = time.monotonic_ns
) -> HostNoise:
    """Spin for so long, on one core if it is given, and count the gaps.

    Args:
        now_ns: the clock to read.
    """
    before = _pin(cpu)
    try:
        return _spin(round(seconds * 1e9), cpu, now_ns)
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)


def _pin(cpu: int | None) -> set[int] | None:
    if cpu is None or not hasattr(os, "sched_setaffinity"):
        return None
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    return before


def _spin(length_ns: int, cpu: int | None, now_ns: Callable[[], int]) -> HostNoise:
    start_ns = last_ns = now_ns()
    num_gaps = num_long = longest_ns = lost_ns = 0
    while last_ns - start_ns < length_ns:
        at_ns = now_ns()
        gap_ns = at_ns - last_ns
        last_ns = at_ns
        if gap_ns >= _GAP_MIN_NS:
            num_gaps += 1
            num_long += gap_ns >= _LONG_GAP_NS
            longest_ns = max(longest_ns, gap_ns)
            lost_ns += gap_ns
    took_ns = max(1, last_ns - start_ns)
    return HostNoise(
        cpu=cpu,
        seconds=length_ns / 1e9,
        num_gaps=num_gaps,
        num_long_gaps=num_long,
        longest_gap_ms=longest_ns / 1e6,
        lost_share=lost_ns / took_ns,
    )


def host_trouble(selfcheck: Mapping[str, Any], noise: Sequence[HostNoise] = ()) -> str | None:
    """What the client noticed of its host during a point, in words; None: nothing to speak of.

    Only what is not the client's own doing: CPU that was wanted and not given, stalls without work
    of its own.

    Args:
        selfcheck: of the point's record (see `harness.selfcheck`).
        noise: probed just before.
    """
    cpu = selfcheck.get("cpu") or {}
    said = [str(each) for each in noise if each.num_long_gaps or each.lost_share > _MAX_LOST_SHARE]
    delay, steal = cpu.get("run_delay"), cpu.get("steal")
    if delay is not None and delay > _MAX_RUN_DELAY:
        said.append(f"the client waited for a CPU {delay:.0%} of the time")
    if steal is not None and steal > _MAX_STEAL:
        said.append(f"the hypervisor took {steal:.0%} of the CPU")
    foreign = [s for s in selfcheck.get("stalls") or [] if s["cause"] in _FOREIGN_CAUSES]
    if foreign:
        longest = max(float(stall["length_ms"]) for stall in foreign)
        said.append(f"{len(foreign)} stalls from outside, the longest {longest:.0f} ms")
    return "; ".join(said) or None
