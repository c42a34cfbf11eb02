"""Where a run took place: machine, versions, source revision. Facts for the record, no verdicts.

What cannot be found out is None or absent, never guessed. Host name and user are left out.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["Environment", "describe_environment", "run_command"]

_PACKAGES = (
    "earwitness",
    "aiohttp",
    "httptools",
    "numpy",
    "openai-whisper",
    "piper-tts",
    "pyarrow",
    "torch",
    "uvloop",
    "websockets",
)
_GPU_FIELDS = ("name", "driver_version", "memory.total", "power.limit", "clocks.max.sm")
_COMMAND_TIMEOUT_S = 5.0

# argv -> standard output, or None where the command is missing or failed.
RunCommand = Callable[[Sequence[str]], str | None]


@dataclass(frozen=True, slots=True)
class Environment:
    """Three mappings for run.json."""

    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    revision: dict[str, Any] = field(default_factory=dict)


def run_command(argv: Sequence[str]) -> str | None:
    """Standard output of a short command; None where it is missing, fails or takes too long."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def describe_environment(
    *, run: RunCommand = run_command, proc: Path = Path("/proc"), root: Path | None = None
) -> Environment:
    """Look around.

    Args:
        run: starts commands (`git`, `nvidia-smi`).
        proc: the proc file system.
        root: the source tree whose revision is asked for; None: where this package lies.
    """
    return Environment(
        machine=_machine(run, proc),
        versions=_versions(),
        revision=_revision(run, root or Path(__file__).resolve().parents[1]),
    )


def _machine(run: RunCommand, proc: Path) -> dict[str, Any]:
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": _cpu_model(proc),
        "num_cpus": os.cpu_count(),
        "num_usable_cpus": _num_usable_cpus(),
        "cpu_quota": _cpu_quota(),
        "memory_bytes": _memory_bytes(proc),
        "load_average": list(os.getloadavg()),
        "gpus": _gpus(run),
    }


def _versions() -> dict[str, str]:
    versions = {
        "python": sys.version.split()[0],
        "implementation": platform.python_implementation(),
    }
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _revision(run: RunCommand, root: Path) -> dict[str, Any]:
    """The commit this program was run from, and whether the files differ from it.

    An installed package is in no repository of its own: it has a version and no revision.
    """
    if not (root / "pyproject.toml").is_file():
        return {}
    commit = run(["git", "-C", str(root), "rev-parse", "HEAD"])
    if commit is None:
        return {}
    changes = run(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return {
        "commit": commit.strip(),
        "is_dirty": None if changes is None else bool(changes.strip()),
    }


def _num_usable_cpus() -> int | None:
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count()
    return len(os.sched_getaffinity(0))


def _cpu_model(proc: Path) -> str | None:
    return _field_of(proc / "cpuinfo", "model name")


def _memory_bytes(proc: Path) -> int | None:
    words = (_field_of(proc / "meminfo", "MemTotal") or "").split()
    return int(words[0]) * 1024 if words and words[0].isdigit() else None


def _field_of(path: Path, name: str) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _cpu_quota() -> float | None:
    """CPUs' worth of time a container may use; None where there is no such limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError):
        return None  # `max`, or no control groups


def _gpus(run: RunCommand) -> list[Mapping[str, str]]:
    query = f"--query-gpu={','.join(_GPU_FIELDS)}"
    listing = run(["nvidia-smi", query, "--format=csv,noheader"])
    if listing is None:
        return []
    rows = [[word.strip() for word in line.split(",")] for line in listing.splitlines() if line]
    return [dict(zip(_GPU_FIELDS, row, strict=False)) for row in rows]
