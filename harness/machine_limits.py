"""What this machine would run out of, found before a run instead of in the middle of it."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.errors import RunFolderError, ScenarioError
from harness.scenario import Scenario
from harness.scenario_sections import Recording
from harness.schedule import Schedule
from harness.settings import ConnectionMode

__all__ = [
    "FileLimit",
    "FileLimits",
    "SystemFileLimits",
    "check_descriptors",
    "check_new",
    "check_ports",
    "check_writable",
    "disk_warning",
    "free_bytes",
]

# Log, payloads, tables, timers, the loop, standard streams, and what libraries keep open.
_OTHER_DESCRIPTORS = 64
# A closed connection keeps its port for this long.
# Source: TCP_TIMEWAIT_LEN in the Linux kernel.
_TIME_WAIT_S = 60.0
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# English is spoken at 12 to 18 characters a second; 24 kHz s16le is the usual format.
_CHARACTERS_PER_S = 12.0
_AUDIO_BYTES_PER_S = 48_000
# A request's row and its chunks' rows, in the log and once more in the tables.
_ROW_BYTES = 8_000
# Report, figures, plan, and room for whatever else writes to this disk.
_OTHER_BYTES = 50_000_000


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

    Each closed connection keeps its port for a minute, so a rate times a minute must fit; and as
    often as each request may be tried, since a server that refuses one may refuse them all.

    Raises:
        ScenarioError: it does not; says what does.
    """
    if scenario.connections.mode is not ConnectionMode.COLD:
        return
    num_ports = _num_ports(port_range)
    num_tries = 1 + scenario.retries.max
    num_kept = num_tries * _most_kept(scenario, schedules)
    if num_ports is not None and num_kept > num_ports:
        fastest = max(plan.rate_rps for plan in schedules)
        tries = f", each tried up to {num_tries} times," if num_tries > 1 else ""
        fewer = "retry less, " if num_tries > 1 else ""
        raise ScenarioError(
            f"connections.mode: cold at {fastest:g} a second{tries} keeps {num_kept} local "
            f"ports busy (each for {_TIME_WAIT_S:g} s after its close), this system has "
            f"{num_ports}; use mode warm, {fewer}or at most "
            f"{num_ports / _TIME_WAIT_S / num_tries:.0f} a second"
        )


def _most_kept(scenario: Scenario, schedules: Sequence[Schedule]) -> int:
    """Connections made in any one minute, the points following each other without a pause."""
    point_ns = round((scenario.phases.warmup_s + scenario.phases.measure_s) * 1e9)
    begun_ns = [
        number * point_ns + arrival.scheduled_ns
        for number, plan in enumerate(schedules)
        for arrival in plan
    ]
    most = first = 0
    for last, moment_ns in enumerate(begun_ns):
        while moment_ns - begun_ns[first] > _TIME_WAIT_S * 1e9:
            first += 1
        most = max(most, last - first + 1)
    return most


def _num_ports(port_range: Path) -> int | None:
    try:
        low, high = port_range.read_text(encoding="ascii").split()
        return int(high) - int(low) + 1
    except (OSError, ValueError):
        return None  # this system does not say


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be made, before minutes of load are spent on it.

    Raises:
        RunFolderError: a file is in the way, or nothing may be written there.
    """
    place = _nearest(folder)
    if not place.is_dir():
        raise RunFolderError(f"{folder}: cannot be made: {place} is not a directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise RunFolderError(f"{folder}: cannot be made: {place} may not be written to")


def check_new(path: Path) -> None:
    """Refuse a file or folder that is there, or cannot be made, before it is worked for.

    Raises:
        RunFolderError: with what is in the way.
    """
    if path.exists():
        raise RunFolderError(f"{path}: exists already; remove it or name another")
    check_writable(path)


def _nearest(folder: Path) -> Path:
    """What of a path is there already."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def free_bytes(folder: Path) -> int:
    """Space left for this user on the disk where the folder is to be.

    Raises:
        OSError: from the disk.
    """
    return shutil.disk_usage(_nearest(folder)).free


def disk_warning(
    folder: Path,
    recording: Recording,
    *,
    num_requests: int,
    num_characters: int,
    free: Callable[[Path], int] = free_bytes,
) -> str | None:
    """One line where a run may fill the disk; a guess, since nobody knows how long replies are.

    Args:
        folder: to be written.
        recording: what of the replies is kept.
        num_requests: planned.
        num_characters: of all their texts.
        free: space left.
    """
    reply_s = num_characters / max(1, num_requests) / _CHARACTERS_PER_S
    reply_bytes = recording.kept_s(reply_s) * _AUDIO_BYTES_PER_S + _ROW_BYTES
    needed = num_requests * reply_bytes + _OTHER_BYTES
    try:
        left = free(folder)
    except OSError:
        return None  # the writer will meet it, and says so
    if left >= needed:
        return None
    return (
        f"this run may need {needed / 1e9:.2g} GB and the disk of {folder} has {left / 1e9:.2g} GB "
        "left; make room, or keep less with recording.audio (head:<seconds>, sample:<share>, none)"
    )
