"""What this machine would run out of, found before a run instead of in the middle of it."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.errors import ScenarioError
from harness.scenario import Scenario
from harness.schedule import Schedule
from harness.settings import ConnectionMode

__all__ = ["FileLimits", "SystemFileLimits", "check_descriptors", "check_ports"]

# Log, payloads, tables, timers, the loop, standard streams, and what libraries keep open.
_OTHER_DESCRIPTORS = 64
# A closed connection keeps its port for this long.
# Source: TCP_TIMEWAIT_LEN in the Linux kernel.
_TIME_WAIT_S = 60.0
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class FileLimits(Protocol):
    """The limit on open files: what holds now, and how far it may be raised."""

    def get(self) -> FileLimit:
        """The limits of this process."""
        ...

    def raise_to(self, soft: int) -> None:
        """Raise the one that holds; within the other it is always allowed."""
        ...


@dataclass(frozen=True, slots=True)
class FileLimit:
    """`soft` holds now; it may be raised up to `hard`."""

    soft: int
    hard: int


class SystemFileLimits:
    """Those of this process."""

    def get(self) -> FileLimit:
        """Unlimited counts as a very large number."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = 2**31
        return FileLimit(
            unlimited if soft == resource.RLIM_INFINITY else soft,
            unlimited if hard == resource.RLIM_INFINITY else hard,
        )

    def raise_to(self, soft: int) -> None:
        """Leaves the hard limit as it is."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def check_descriptors(
    scenario: Scenario, schedules: Sequence[Schedule], *, limits: FileLimits
) -> None:
    """Make room for every connection the run may have open at once.

    Raises:
        ScenarioError: the system does not allow that many open files.
    """
    # No more can be in flight than a point has requests.
    most = max((len(plan) for plan in schedules), default=0)
    needed = min(scenario.limits.max_in_flight, most) + _OTHER_DESCRIPTORS
    if scenario.connections.pool is not None:
        needed += scenario.connections.pool
    limit = limits.get()
    if needed <= limit.soft:
        return
    if needed > limit.hard:
        raise ScenarioError(
            f"limits.max_in_flight: {scenario.limits.max_in_flight} may need {needed} open files, "
            f"this system allows {limit.hard}; lower it, or raise the limit (ulimit -n)"
        )
    limits.raise_to(needed)


def check_ports(
    scenario: Scenario, schedules: Sequence[Schedule], *, port_range: Path = _PORT_RANGE
) -> None:
    """Refuse a run of cold connections that would use up the local ports.

    Each closed connection keeps its port for a minute, so a rate times a minute must fit.

    Raises:
        ScenarioError: it does not; says what does.
    """
    if scenario.connections.mode is not ConnectionMode.COLD:
        return
    num_ports = _num_ports(port_range)
    for plan in schedules:
        num_kept = min(len(plan), round(plan.rate_rps * _TIME_WAIT_S))
        if num_ports is not None and num_kept > num_ports:
            raise ScenarioError(
                f"connections.mode: cold at {plan.rate_rps:g} a second keeps {num_kept} local "
                f"ports busy (each for {_TIME_WAIT_S:g} s after its close), this system has "
                f"{num_ports}; use mode warm, or at most {num_ports / _TIME_WAIT_S:.0f} a second"
            )


def _num_ports(port_range: Path) -> int | None:
    try:
        low, high = port_range.read_text(encoding="ascii").split()
        return int(high) - int(low) + 1
    except (OSError, ValueError):
        return None  # this system does not say
