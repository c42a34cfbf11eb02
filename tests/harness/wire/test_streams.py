"""Raw TCP and child processes as engines."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable

import pytest

from engines.base import (
    Action,
    Audio,
    Closed,
    Done,
    Event,
    Exchange,
    Fail,
    ProcessTarget,
    Send,
    SpeechRequest,
    StreamBytes,
    Target,
    TcpTarget,
)
from engines.outcomes import TransportOutcome
from harness.errors import AuthorizationError
from harness.settings import TimeoutSettings, WireSettings
from harness.single import SingleResult
from tests.builders.wire import every, run_load, say


class StreamExchange:
    """Text out, bytes back; `END` in the stream or exit status 0 is the end."""

    def __init__(self, text: str, target: Target) -> None:
        self.text = text
        self.target = target

    def start(self) -> list[Action]:
        return [Send(self.text, ends_text=True)]

    def feed(self, event: Event) -> list[Action]:
        match event:
            case StreamBytes(data=data) if bytes(data).endswith(b"END"):
                return [Audio(bytes(data)[:-3]), Done()]
            case StreamBytes(data=data):
                return [Audio(data)]
            case Closed(code=0):
                return [Done()]
            case Closed():
                return [Fail(TransportOutcome.TRUNCATED, "stream", event.reason or "closed")]
            case _:
                return []


class StreamAdapter:
    """Opens `StreamExchange`s at a target."""

    name = "stream"
    base_url = "tcp://127.0.0.1"

    def __init__(self, target: Target) -> None:
        self._target = target

    def open(self, request: SpeechRequest) -> Exchange:
        return StreamExchange(request.text, self._target)


def _ending(result: SingleResult) -> tuple[str, str | None]:
    return result.record.transport_outcome.value, result.record.error_kind


# -- TCP ------------------------------------------------------------------------------------------


def _tcp(converse: Callable[[socket.socket], None]) -> SingleResult:
    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            converse(peer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        result = say(StreamAdapter(TcpTarget(*listener.getsockname())))  # type: ignore[arg-type]
        thread.join()
    return result


def test_tcp_stream_is_read_as_it_comes():
    """Each read a chunk, stamped by the kernel."""

    def converse(peer: socket.socket) -> None:
        assert b"Hello there." == peer.recv(100)
        peer.sendall(b"abcd")
        peer.sendall(b"efEND")

    result = _tcp(converse)

    assert ("ok", None) == _ending(result)
    assert b"abcdef" == result.payload
    assert result.record.dispatched_ns <= result.record.connected_ns <= result.record.sent_ns
    assert result.record.chunks[-1].is_exact


def test_tcp_close_before_the_end_is_truncation():
    """The exchange says so."""

    def converse(peer: socket.socket) -> None:
        peer.recv(100)
        peer.sendall(b"abcd")

    assert ("truncated", "stream") == _ending(_tcp(converse))


def test_tcp_port_that_refuses():
    """As over HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    result = say(StreamAdapter(TcpTarget(*address)))

    assert ("connect_error", "connection_refused") == _ending(result)


# -- processes ------------------------------------------------------------------------------------

ALLOWED = WireSettings(are_commands_allowed=True, timeouts=TimeoutSettings(total_s=20.0))


def _run(script: str, *, settings: WireSettings = ALLOWED) -> SingleResult:
    target = ProcessTarget((sys.executable, "-S", "-c", script), env=(("SAID", "yes"),))
    return say(StreamAdapter(target), settings=settings)


def test_process_gets_the_text_and_its_output_is_audio():
    """Input closed after the text; status 0 after the output is the end."""
    result = _run("import sys, os; sys.stdout.write(sys.stdin.read().upper() + os.environ['SAID'])")

    assert ("ok", None) == _ending(result)
    assert b"HELLO THERE.yes" == result.payload
    assert not any(piece.is_exact for piece in result.record.chunks)
    assert result.record.dispatched_ns < result.record.connected_ns <= result.record.sent_ns


def test_process_that_fails_says_why():
    """The tail of its standard error is the reason."""
    result = _run("import sys; sys.stdin.read(); sys.stderr.write('no voice\\n'); sys.exit(3)")

    assert ("truncated", "stream") == _ending(result)
    assert "no voice" == result.record.error_text


def test_large_output_is_whole():
    """More than a pipe holds."""
    result = _run("import sys; sys.stdout.write('x' * 300_000)")

    assert ("ok", None) == _ending(result)
    assert 300_000 == result.record.audio_bytes == result.record.body_bytes


def test_command_that_is_not_there():
    """One line, no traceback."""
    result = say(StreamAdapter(ProcessTarget(("/no/such/command",))), settings=ALLOWED)

    assert ("connect_error", "start") == _ending(result)
    assert "cannot start '/no/such/command'" in result.record.error_text


def test_process_is_killed_when_its_time_is_up():
    """With its children: nothing is left behind."""
    script = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"
    limits = WireSettings(are_commands_allowed=True, timeouts=TimeoutSettings(total_s=0.6))
    result = _run(script, settings=limits)

    assert ("timeout", "total") == _ending(result)
    with pytest.raises(ProcessLookupError):
        os.kill(int(result.payload), 0)


def _is_gone(pid: int) -> bool:
    """Whether a process ends within two seconds; it need not be ours."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], 2)[0])
    finally:
        os.close(fd)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="processes are watched on Linux")
def test_children_of_a_process_that_is_gone_are_killed_too():
    """They hold its output open, so the request waits for them until its time is up."""
    target = ProcessTarget(("sh", "-c", "sleep 60 & echo $!"))
    limits = WireSettings(are_commands_allowed=True, timeouts=TimeoutSettings(total_s=0.3))
    result = say(StreamAdapter(target), settings=limits)

    assert ("timeout", "total") == _ending(result)
    assert _is_gone(int(result.payload))


def test_command_needs_consent():
    """A contract from anywhere must not run what it likes."""
    with pytest.raises(AuthorizationError, match="--allow-commands"):
        _run("print()", settings=WireSettings())


def test_processes_in_a_run():
    """Each request its own."""
    target = ProcessTarget((sys.executable, "-S", "-c", "print(open(0).read())"))
    ran = run_load(StreamAdapter(target), every(10, 3), wire=ALLOWED, drain_s=20.0)

    assert ["ok"] * 3 == ran.outcomes
