"""How well this host can tell time right now: a spin that watches for moments it was not there.

A program that does nothing but read the clock sees every interruption as a gap between two
readings. What it sees is what any measurement beside it will suffer, whoever is to blame.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["HostNoise", "probe_noise"]

_GAP_MIN_NS = 200_000
_LONG_GAP_NS = 5_000_000


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
