"""Who is there, and is it ready?"""

from __future__ import annotations

import socket

import pytest

from engines import registry
from engines.base import EngineInfo
from harness.clock import RunClock
from harness.errors import EngineNotReadyError
from harness.loop import run
from harness.settings import TimeoutSettings, WireSettings
from harness.wire import probe
from tests.builders.servers import Request, ScriptedServer, WaitForClose, ok
from tests.builders.wire import say


def _probe(base_url: str, contract: str = "earwitness-piper", ready_s: float = 2.0) -> EngineInfo:
    adapter = registry.create(contract, base_url=base_url)
    settings = WireSettings(timeouts=TimeoutSettings(ready_s=ready_s))
    return run(probe(adapter, settings=settings, clock=RunClock()))


def _server(ready_after: int = 0, owner: str = "earwitness") -> object:
    """A server that is ready from its n-th /ready on."""
    asked: list[str] = []

    def script(request: Request) -> object:
        asked.append(request.path)
        if request.path == "/ready" and asked.count("/ready") <= ready_after:
            return ok(b'{"ready": false}', status=503, content_type="application/json")
        body = b'{"ready": true, "data": [{"id": "piper-joe", "owned_by": "%s"}]}' % owner.encode()
        return ok(body, content_type="application/json")

    return script


def test_server_that_loads_is_waited_for():
    """503 twice, then ready."""
    with ScriptedServer(_server(ready_after=2)) as server:  # type: ignore[arg-type]
        info = _probe(server.base_url)

    assert info.is_ready
    assert ("piper-joe",) == info.models


def test_waiting_has_a_limit_that_is_named():
    """And the last reason is given."""
    with (
        ScriptedServer(_server(ready_after=1000)) as server,  # type: ignore[arg-type]
        pytest.raises(EngineNotReadyError, match=r"not ready within 0\.4 s \(timeouts\.ready_s\)"),
    ):
        _probe(server.base_url, ready_s=0.4)


def test_another_server_is_reported_at_once():
    """Healthy, but not who the contract says: nobody waits for it to change its mind."""
    with ScriptedServer(_server(owner="somebody")) as server:  # type: ignore[arg-type]
        info = _probe(server.base_url, ready_s=60.0)

    assert info.is_match is False
    assert "somebody" in info.mismatch


def test_nobody_there_names_the_address():
    """Connection refused, in words."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(EngineNotReadyError, match=rf"127\.0\.0\.1:{port}.*Connection refused"):
        _probe(f"http://127.0.0.1:{port}", ready_s=0.3)


def test_server_that_never_answers_does_not_hang():
    """Each question has a limit."""
    with (
        ScriptedServer((WaitForClose(),)) as server,
        pytest.raises(EngineNotReadyError, match="no reply within"),
    ):
        _probe(server.base_url, ready_s=0.3)


def test_single_request_leaves_record_and_payload():
    """Outside a run, on a connection of its own."""
    with ScriptedServer(ok(b"abcd")) as server:
        result = say(server.base_url)

    assert ("ok", b"abcd", "single") == (
        result.record.transport_outcome.value,
        result.payload,
        result.record.point_id,
    )
    assert 0 <= result.record.dispatched_ns - result.record.scheduled_ns
