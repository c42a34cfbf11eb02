"""Who is there, and is it ready: asked before any load."""

from __future__ import annotations

import pytest

from engines import registry
from harness.clock import RunClock
from harness.errors import EngineNotReadyError
from harness.loop import run
from harness.probe import identify
from harness.settings import TimeoutSettings, WireSettings
from tests.builders.servers import Request, ScriptedServer, WaitForClose, ok
from tests.builders.voices import voice


def _identify(base_url: str, *, contract: str = "earwitness-piper", ready_s: float = 0.3):
    reasons: list[str] = []
    info = run(
        identify(
            registry.create(contract, base_url=base_url),
            settings=WireSettings(timeouts=TimeoutSettings(ready_s=ready_s)),
            clock=RunClock(),
            on_waiting=reasons.append,
        )
    )
    return info, reasons


def test_the_right_server_says_who_it_is():
    """Models are listed and the identity is confirmed."""
    with ScriptedServer(voice()) as server:
        info, _ = _identify(server.base_url)

    assert (True, True, ("piper-joe",)) == (info.is_ready, info.is_match, info.models)


def test_another_server_on_the_port_is_refused():
    """A dummy that answers 200 to everything is not the server of the contract."""
    with (
        ScriptedServer(ok(b"{}", content_type="application/json")) as server,
        pytest.raises(EngineNotReadyError, match="is not the server of contract earwitness-piper"),
    ):
        _identify(server.base_url)


def test_another_model_on_the_port_is_refused():
    """The message names what was found."""
    models = {"data": [{"id": "other-voice", "owned_by": "somebody"}]}
    with (
        ScriptedServer(voice(models=models)) as server,
        pytest.raises(EngineNotReadyError, match="somebody"),
    ):
        _identify(server.base_url)


def test_a_server_that_cannot_tell_who_it_is_passes_as_unknown():
    """An endpoint without an identity is neither confirmed nor refused."""
    with ScriptedServer(ok(b"{}", content_type="application/json")) as server:
        info, _ = _identify(server.base_url, contract="generic")

    assert (True, None) == (info.is_ready, info.is_match)


@pytest.mark.slow
def test_a_server_that_becomes_ready_is_waited_for():
    """503 twice, then 200: the wait is told with its reason, and ends well."""
    asked: list[Request] = []

    def script(request: Request):
        if request.path == "/ready":
            asked.append(request)
        return voice(ready_status=503 if len(asked) < 3 else 200)(request)

    with ScriptedServer(script) as server:
        info, reasons = _identify(server.base_url, ready_s=5)

    assert (True, 2) == (info.is_ready, len(reasons))
    assert "503" in reasons[0]


def test_a_server_that_stays_unready_is_given_up_by_name_of_the_limit():
    """The message has the limit, its key and the last reason."""
    with (
        ScriptedServer(voice(ready_status=503)) as server,
        pytest.raises(EngineNotReadyError, match=r"after 0\.1 s \(timeouts\.ready_s\).*503"),
    ):
        _identify(server.base_url, ready_s=0.1)


def test_a_server_that_accepts_and_says_nothing_is_given_up_at_the_limit():
    """Not after as many times ten seconds as there are calls."""
    clock = RunClock()
    with (
        ScriptedServer((WaitForClose(),)) as server,
        pytest.raises(EngineNotReadyError, match=r"after 0\.2 s \(timeouts\.ready_s\).*no reply"),
    ):
        _identify(server.base_url, ready_s=0.2)

    assert clock.now_ns() < 3e9


def test_an_address_where_nobody_listens_is_named():
    """Connection refused, with the address that was tried."""
    with ScriptedServer(voice()) as server:
        gone = server.base_url

    with pytest.raises(EngineNotReadyError, match=rf"{gone}.*refused") as refused:
        _identify(gone, ready_s=0.1)
    assert 4 == refused.value.exit_code
