"""A server run as a child process: started, waited for, and never left behind.

The child must print one JSON line with its `url` on standard output once it is ready, and stop
when its standard input closes. The second rule holds even if this process is killed: the pipe
closes with it.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import selectors
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.clock import Clock
from harness.errors import EngineNotReadyError

__all__ = ["ChildServer", "end_with_parent", "start_child"]

_STOP_WAIT_S = 15.0
_KEPT_STDERR_CHARS = 500
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ChildServer:
    """A ready server: where it listens, and the process itself."""

    base_url: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def start_child(
    argv: Sequence[str], *, name: str, ready_s: float, clock: Clock, log: Path | None = None
) -> Iterator[ChildServer]:
    """Start a server, yield it once it is ready, stop it on the way out.

    Args:
        argv: of the server.
        name: in messages.
        ready_s: how long it may take to say that it is ready.
        clock: of that time.
        log: where its standard error is kept; nowhere unless given.

    Raises:
        EngineNotReadyError: it ended or stayed silent; the message holds the last thing it said.
    """
    with tempfile.TemporaryFile() if log is None else log.open("w+b") as stderr:
        # Its own process group: Ctrl-C reaches this process alone, which then stops the child in
        # order, after the requests in flight were recorded.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            yield ChildServer(_wait_for_url(process, stderr, name, ready_s, clock), process)
        finally:
            _stop(process)


def end_with_parent() -> None:
    """Make this worker process of a pool end when the process that started it is gone.

    A pool's workers wait for work on a pipe that they hold open themselves, so a parent that was
    killed would leave them waiting for ever.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def _wait_for_url(
    process: subprocess.Popen[bytes], stderr: IO[bytes], name: str, ready_s: float, clock: Clock
) -> str:
    assert process.stdout is not None
    deadline_ns = clock.now_ns() + round(ready_s * 1e9)
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if clock.now_ns() >= deadline_ns:
                raise EngineNotReadyError(
                    f"{name}: not ready within {ready_s:g} s; {_last_words(stderr)}"
                )
            if not selector.select(timeout=_POLL_S):
                continue
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                process.wait(timeout=_STOP_WAIT_S)
                raise EngineNotReadyError(
                    f"{name}: ended with exit code {process.returncode}; {_last_words(stderr)}"
                )
            line += piece
    try:
        return str(json.loads(line.splitlines()[0])["url"])
    except (ValueError, KeyError, TypeError):
        raise EngineNotReadyError(
            f"{name}: its first line is {line[:80]!r}, expected JSON with a url"
        ) from None


def _last_words(stderr: IO[bytes]) -> str:
    stderr.seek(0)
    said = stderr.read().decode("utf-8", "replace").strip()
    return f"it said: {said[-_KEPT_STDERR_CHARS:]}" if said else "it said nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the child and everything it started: politely, then for good."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout=_STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
