"""`python -m harness.truth`: the truth server as a process. See `harness/truth/README.md`."""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.errors import HarnessError, ScenarioError
from harness.truth.book import accuracy_scripts, load_scripts
from harness.truth.log import TruthLog
from harness.truth.protocol import SERVER_NAME
from harness.truth.server import TruthServer

__all__ = ["main"]

_BACKLOG = 4096


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop, then write the log; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _serve(options)
    except HarnessError as error:
        sys.stderr.write(f"truth server: {error}\n")
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m harness.truth", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8125, help="0: any that is free")
    parser.add_argument("--scripts", type=Path, help="YAML file; default: those of `accuracy`")
    parser.add_argument("--log", type=Path, help="where the log goes at the end; default: nowhere")
    parser.add_argument("--cert", type=Path, help="PEM file: serve TLS")
    parser.add_argument("--key", type=Path)
    parser.add_argument("--cpu", type=int, help="run on this core alone")
    parser.add_argument("--accept-delay-ms", type=float, default=0.0)
    parser.add_argument("--stop-on-stdin-eof", action="store_true")
    return parser


def _serve(options: argparse.Namespace) -> None:
    scripts = accuracy_scripts() if options.scripts is None else load_scripts(options.scripts)
    context = _context(options)
    if options.cpu is not None:
        _stay_on(options.cpu)
    log = TruthLog()
    listener = _listener(options.host, options.port)
    server = TruthServer(
        listener, scripts, log=log, context=context, accept_delay_ms=options.accept_delay_ms
    )
    stop_fds = [_signal_fd()]
    if options.stop_on_stdin_eof:
        stop_fds.append(sys.stdin.fileno())
    host, port = listener.getsockname()[:2]
    scheme = "http" if context is None else "https"
    ready = {"server": SERVER_NAME, "url": f"{scheme}://{host}:{port}", "pid": os.getpid()}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    # Nothing here makes cycles, and a collection between two clock readings would widen a bracket.
    gc.freeze()
    gc.disable()
    server.run(stop_fds)
    if options.log is not None:
        log.write(options.log)


def _listener(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as fault:
        raise ScenarioError(f"--host {host} --port {port}: {fault.strerror}") from None
    except (TypeError, UnicodeError, OverflowError) as fault:
        raise ScenarioError(f"--host {host!r} --port {port}: {fault}") from None


def _context(options: argparse.Namespace) -> ssl.SSLContext | None:
    if options.cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(options.cert, options.key)
    except (OSError, ssl.SSLError) as fault:
        raise ScenarioError(f"{options.cert}: the certificate cannot be used: {fault}") from None
    return context


def _stay_on(cpu: int) -> None:
    try:
        os.sched_setaffinity(0, {cpu})
    except (AttributeError, OSError) as fault:
        raise ScenarioError(f"--cpu {cpu}: {fault}") from None


def _signal_fd() -> int:
    """A descriptor that becomes readable on SIGTERM and SIGINT."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


if __name__ == "__main__":
    sys.exit(main())
