"""A child server is waited for, reported when it fails, and never left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.child import start_child
from harness.clock import RunClock
from harness.errors import EngineNotReadyError

READY = (
    "import json, sys; print(json.dumps({'ready': True, 'url': 'http://127.0.0.1:9'}), flush=True);"
    "sys.stdin.read()"
)
STUBBORN = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + READY


# Two workers that hold the output open; the last line says that both are there.
POOL = (
    "import concurrent.futures as cf, signal, sys;"
    "from harness.child import end_with_parent;"
    "pool = cf.ProcessPoolExecutor(2, initializer=end_with_parent);"
    "list(pool.map(abs, range(8)));"
    "print('working', flush=True); signal.pause()"
)


def child(script: str, *, ready_s: float = 30.0):
    """A server made of one line of Python."""
    argv = [sys.executable, "-c", script]
    return start_child(argv, name="tiny", ready_s=ready_s, clock=RunClock())


def test_ready_line_gives_the_address():
    """The address comes from the child itself."""
    with child(READY) as server:
        assert server.base_url == "http://127.0.0.1:9"


def test_child_is_gone_after_the_block():
    """Leaving the block ends the process."""
    with child(READY) as server:
        process = server.process

    assert process.poll() is not None


def test_child_that_ignores_sigterm_ends_with_its_input():
    """Closing standard input is the second way out."""
    with child(STUBBORN) as server:
        process = server.process

    assert process.poll() == 0


def test_child_that_dies_is_named_with_its_last_words():
    """Exit code and the end of its standard error are in the message."""
    dying = child("import sys; sys.stderr.write('no luck'); sys.exit(7)")

    with pytest.raises(EngineNotReadyError, match="exit code 7; it said: no luck"), dying:
        pass


def test_what_a_child_says_is_kept_where_asked(tmp_path: Path):
    """Its standard error, whole, after it is gone."""
    log = tmp_path / "server.txt"
    argv = [sys.executable, "-c", "import sys; sys.stderr.write('loading\\n');" + READY]

    with start_child(argv, name="tiny", ready_s=30.0, clock=RunClock(), log=log):
        pass

    assert "loading\n" == log.read_text()


def test_silent_child_is_given_up_after_the_limit():
    """A child that never says ready is stopped and reported with the limit."""
    silent = child("import sys; sys.stdin.read()", ready_s=0.2)

    with pytest.raises(EngineNotReadyError, match=r"not ready within 0\.2 s"), silent:
        pass


def test_first_line_that_is_no_address_is_shown():
    """Anything but JSON with a url is refused as found."""
    chatty = child("print('hello', flush=True)")

    with pytest.raises(EngineNotReadyError, match="expected JSON with a url"), chatty:
        pass


def test_workers_of_a_killed_process_end():
    """Whoever reads the output sees its end, so nobody holds it any more."""
    with subprocess.Popen([sys.executable, "-c", POOL], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"working\n"
        process.kill()

        assert process.stdout.read() == b""
