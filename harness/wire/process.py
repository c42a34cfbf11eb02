"""A child process as an engine: its standard input takes the text, its standard output is audio.

Pipes carry no kernel stamps, so arrivals are user stamps. Starting a process takes milliseconds of
the loop's time; it is part of the request's own latency and of nobody else's comparison.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from engines.base import Closed, ProcessTarget, Send, StreamBytes
from engines.outcomes import TransportOutcome
from engines.redact import one_line
from harness.clock import Clock
from harness.wire.connection import ConnectionInfo, Listener, OnSent, Stamp, WireFailure
from harness.wire.failures import connect_failure

__all__ = ["ProcessConnection", "ProcessOptions"]

_READ_BYTES = 64 * 1024
_MAX_COMPLAINT_BYTES = 4096
_REAP_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What all processes of one wire share; `running` holds those that are not reaped yet."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    tick: Callable[[], None]
    is_allowed: bool
    running: set[ProcessConnection]


class ProcessConnection:
    """A `Connection` that is one process, in a session of its own; killed if not ended."""

    is_warm = False

    def __init__(self, target: ProcessTarget, options: ProcessOptions) -> None:
        self._target = target
        self._options = options
        self._listener: Listener | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watch_fd = -1
        self._fds: dict[str, int] = {}
        self._unsent: deque[tuple[memoryview, OnSent | None]] = deque()
        self._is_input_done = False
        self._is_writing = False
        self._has_output_ended = False
        self._complaint = b""
        self._floor_ns = 0

    # -- from above --------------------------------------------------------------------------

    def open(self, listener: Listener) -> None:
        """Start it.

        Raises:
            ValueError: commands are not allowed.
        """
        if not self._options.is_allowed:
            raise ValueError("this engine runs a command; allow it with --allow-commands")
        self._listener = listener
        self._floor_ns = self._options.clock.now_ns()
        try:
            self._start()
        except OSError as error:
            self._options.loop.call_soon(self._on_start_failed, error)
            return
        now_ns = self._options.clock.now_ns()
        peer = f"process {self._target.argv[0]}"
        listener.on_open(ConnectionInfo(is_reused=False, peer=peer, connected_ns=now_ns))

    def send(self, action: Send, on_sent: OnSent) -> None:
        """Write to its input; the last text also closes it."""
        data = action.data.encode() if isinstance(action.data, str) else action.data
        self._unsent.append((memoryview(data), on_sent))
        self._is_input_done = self._is_input_done or action.ends_text
        if not self._is_writing:
            self._flush()

    def end_start(self) -> None:
        """Nothing to do: a process reads what it is given."""

    def limit_reading(self, bytes_per_s: int) -> None:
        """A pipe is read as it fills; a thin line is nothing it can be given."""
        raise ValueError(f"behaviour.slow_reader ({bytes_per_s} bytes/s) does not suit a process")

    def release(self) -> None:
        """The reply is complete; whatever it still does is not waited for."""
        self.abort()

    def close(self, _code: int, reason: str) -> None:
        """A process has no closing words: it is ended, and the listener hears of it at once."""
        text = "closed by the client"
        failure = WireFailure(TransportOutcome.TRUNCATED, "closed_by_client", text, is_final=False)
        self._end(failure, Closed(reason=reason))

    def abort(self) -> None:
        """Kill it, with its children."""
        self._listener = None
        self._close_pipes()
        process = self._process
        # An output that has not ended is held by someone: by its children, where it is gone itself.
        if process is not None and (process.poll() is None or not self._has_output_ended):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended on its own in this very moment

    def reap(self) -> None:
        """Wait until a killed process is gone, so that none is left behind."""
        if self._process is not None:
            self._process.wait(_REAP_WAIT_S)
        self._stop_watching()

    # -- life --------------------------------------------------------------------------------

    def _start(self) -> None:
        process = self._process = subprocess.Popen(
            self._target.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **dict(self._target.env)},
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for name, pipe in (("in", process.stdin), ("out", process.stdout), ("err", process.stderr)):
            # Our own copies: closing the objects must not be left to the collector.
            self._fds[name] = os.dup(pipe.fileno())
            pipe.close()
            os.set_blocking(self._fds[name], False)
        self._options.running.add(self)
        loop = self._options.loop
        loop.add_reader(self._fds["out"], self._on_output)
        loop.add_reader(self._fds["err"], self._on_complaint)
        if hasattr(os, "pidfd_open"):
            self._watch_fd = os.pidfd_open(process.pid)
            loop.add_reader(self._watch_fd, self._on_exit)
        else:
            waiting = loop.run_in_executor(None, process.wait)
            waiting.add_done_callback(lambda _: self._on_exit())

    def _on_start_failed(self, error: OSError) -> None:
        failure = connect_failure(error, f"the command {self._target.argv[0]!r}")
        if failure.outcome is TransportOutcome.CONNECT_ERROR:
            text = f"cannot start {self._target.argv[0]!r}: {error.strerror or error}"
            failure = WireFailure(TransportOutcome.CONNECT_ERROR, "start", text)
        self._end(failure, Closed())

    def _on_output(self) -> None:
        self._options.tick()
        try:
            data = os.read(self._fds["out"], _READ_BYTES)
        except BlockingIOError:
            return
        read_ns = self._options.clock.now_ns()
        if not data:
            self._close_pipe("out")
            self._has_output_ended = True
            self._end_if_over()
            return
        stamp = Stamp(read_ns, read_ns, min(self._floor_ns, read_ns), is_exact=False)
        if len(data) < _READ_BYTES:
            self._floor_ns = read_ns
        if self._listener is not None:
            self._listener.on_event(StreamBytes(data), stamp)

    def _on_complaint(self) -> None:
        try:
            data = os.read(self._fds["err"], _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._close_pipe("err")
        self._complaint = (self._complaint + data)[-_MAX_COMPLAINT_BYTES:]

    def _on_exit(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            self._stop_watching()
            self._end_if_over()

    def _end_if_over(self) -> None:
        """Over is when it has exited and all its output was read."""
        process = self._process
        if process is None or process.returncode is None or not self._has_output_ended:
            return
        if "err" in self._fds:
            self._on_complaint()
        code = process.returncode
        said = one_line(self._complaint)
        text = f"the process ended with status {code}" + (f": {said}" if said else "")
        failure = WireFailure(TransportOutcome.TRUNCATED, "exit", text, is_final=False)
        self._end(failure, Closed(code, said))

    def _end(self, failure: WireFailure, closed: Closed) -> None:
        listener = self._listener
        self.abort()
        if listener is not None:
            now_ns = self._options.clock.now_ns()
            listener.on_end(failure, Stamp(now_ns, now_ns, now_ns, is_exact=False), closed)

    # -- its input ---------------------------------------------------------------------------

    def _flush(self) -> None:
        while self._unsent and "in" in self._fds:
            view, on_sent = self._unsent[0]
            before_ns = self._options.clock.now_ns()
            try:
                num_sent = os.write(self._fds["in"], view)
            except BlockingIOError:
                self._start_writing()
                return
            except BrokenPipeError:
                num_sent = len(view)  # it reads no more; its output and status say the rest
            if on_sent is not None:
                on_sent(before_ns)
            if num_sent < len(view):
                self._unsent[0] = (view[num_sent:], None)
            elif self._unsent:
                self._unsent.popleft()
        if self._is_input_done or not self._unsent:
            self._stop_writing()
        if self._is_input_done:
            self._close_pipe("in")

    def _start_writing(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._options.loop.add_writer(self._fds["in"], self._flush)

    def _stop_writing(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._options.loop.remove_writer(self._fds["in"])

    # -- descriptors -------------------------------------------------------------------------

    def _close_pipe(self, name: str) -> None:
        fd = self._fds.get(name)
        if fd is None:
            return
        if name == "in":
            self._stop_writing()
        else:
            self._options.loop.remove_reader(fd)
        del self._fds[name]
        os.close(fd)

    def _close_pipes(self) -> None:
        self._unsent.clear()
        for name in list(self._fds):
            self._close_pipe(name)

    def _stop_watching(self) -> None:
        self._options.running.discard(self)
        if self._watch_fd >= 0:
            self._options.loop.remove_reader(self._watch_fd)
            os.close(self._watch_fd)
            self._watch_fd = -1
