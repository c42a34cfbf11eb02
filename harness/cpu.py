"""What the system says of this process's CPU time: read often, so it is cheap."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "CpuMeter",
    "CpuTimes",
    "MachineTimes",
    "ThreadTimes",
    "num_usable_cores",
    "read_machine_times",
    "read_thread_times",
]

_TICK_NS = 1_000_000_000 // (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
_USAGE_OF = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Of this process and of the thread that asks; ns and counts since their start.

    `run_delay_ns` is the time the thread was ready to run but had no CPU; None where the system
    does not say. `num_disk_waits` counts page faults and reads or writes that went to a disk.
    """

    process_ns: int
    thread_ns: int
    run_delay_ns: int | None
    num_disk_waits: int


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """CPU time of one thread of this process."""

    name: str
    cpu_ns: int


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """CPU time of all cores together since boot, and the part a hypervisor gave to others."""

    total_ns: int
    steal_ns: int


class CpuMeter:
    """Reads `CpuTimes` of the thread that made it, without opening a file each time."""

    def __init__(self) -> None:
        try:
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._fd = -1

    def read(self) -> CpuTimes:
        """The times now; call it on the thread that made the meter."""
        usage = resource.getrusage(_USAGE_OF)
        return CpuTimes(
            process_ns=time.process_time_ns(),
            thread_ns=time.thread_time_ns(),
            run_delay_ns=self._run_delay_ns(),
            num_disk_waits=usage.ru_majflt + usage.ru_inblock + usage.ru_oublock,
        )

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _run_delay_ns(self) -> int | None:
        if self._fd < 0:
            return None
        try:
            return int(os.pread(self._fd, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return None


def read_thread_times() -> dict[int, ThreadTimes]:
    """CPU time of every thread of this process, by thread id; empty where it cannot be read."""
    found = {}
    try:
        for task in Path("/proc/self/task").iterdir():
            # The name stands in brackets and may hold anything; the fields follow it.
            head, _, tail = (task / "stat").read_text().rpartition(")")
            fields = tail.split()
            ticks = int(fields[11]) + int(fields[12])
            found[int(task.name)] = ThreadTimes(head.partition("(")[2], ticks * _TICK_NS)
    except (OSError, IndexError, ValueError):
        return found
    return found


def read_machine_times() -> MachineTimes | None:
    """CPU time of the machine; None where it cannot be read."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            values = [int(word) for word in file.readline().split()[1:]]
    except (OSError, ValueError):
        return None
    if len(values) < 8:
        return None
    return MachineTimes(sum(values[:8]) * _TICK_NS, values[7] * _TICK_NS)


def num_usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
