"""One request before the load: what it looks like, what it ends, and where it is not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness.environment import Environment
from harness.errors import EngineNotReadyError, RunInterruptedError
from harness.loop import run
from harness.observer import Preflight, SilentObserver
from harness.plan import plan_run
from harness.runner import run_scenario
from harness.scenario import parse_scenario
from harness.store import open_run
from tests.builders.servers import Request, ScriptedServer, WaitForClose, ok
from tests.builders.voices import short_run, voice

pytestmark = pytest.mark.slow


class _Told(SilentObserver):
    def __init__(self) -> None:
        self.found: dict[str, Preflight] = {}

    def on_preflight(self, engine: str, found: Preflight) -> None:
        self.found[engine] = found


def _run(base_url: str, folder: Path, **sections: Any) -> _Told:
    data = short_run(base_url, preflight=True, **sections)
    plan = plan_run(parse_scenario(data, where="t", base_dir=Path.cwd()))
    told = _Told()
    run(run_scenario(plan, folder, environment=Environment(), observer=told))
    return told


def _answers_first(status: int) -> Any:
    """The first speech request gets this status, all others are spoken."""
    seen: list[Request] = []

    def speak(request: Request):
        seen.append(request)
        if len(seen) == 1:
            body = b'{"error": {"message": "not like this"}}'
            return ok(body, status=status, content_type="application/json")
        return voice()(request)

    return voice(speak)


def test_the_first_request_is_one_of_the_load_and_in_no_table(tmp_path: Path):
    """What the load says first, with the engine's parameters; `run.json` says how it ended."""
    with ScriptedServer(voice()) as server:
        engine = {"contract": "earwitness-piper", "base_url": server.base_url}
        told = _run(
            server.base_url, tmp_path / "run", engines=[{**engine, "params": {"speed": 1.5}}]
        )
        first, *rest = [r for r in server.requests if r.method == "POST"]

    stored = open_run(tmp_path / "run")
    [entry] = stored.record.engines
    assert 8 == len(rest) == len(stored.requests)
    assert 1.5 == first.json["speed"]
    assert first.json.keys() == rest[0].json.keys()
    assert first.json["input"] == rest[0].json["input"]
    assert len(first.json["input"]) == entry["preflight"]["num_characters"]
    assert ("ok", 200) == (entry["preflight"]["outcome"], entry["preflight"]["http_status"])
    assert 0 < told.found["earwitness-piper"].duration_ms < 5_000


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422])
def test_a_refusal_that_all_would_meet_ends_the_run_before_it_begins(status: int, tmp_path: Path):
    """In the server's words, with no folder and no second request."""
    with (
        ScriptedServer(_answers_first(status)) as server,
        pytest.raises(EngineNotReadyError, match=r"not like this.*--no-preflight"),
    ):
        _run(server.base_url, tmp_path / "run")

    assert 1 == sum(request.method == "POST" for request in server.requests)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("status", [413, 429, 500, 503])
def test_what_may_pass_is_told_and_left_to_the_load(status: int, tmp_path: Path):
    """A text too long, a busy server, an accident: the run measures how often."""
    with ScriptedServer(_answers_first(status)) as server:
        told = _run(server.base_url, tmp_path / "run")

    assert status == told.found["earwitness-piper"].http_status
    assert {"ok"} == set(open_run(tmp_path / "run").requests["transport_outcome"])


def test_a_refused_session_ends_the_run_as_a_refused_request_does(tmp_path: Path):
    """Over a WebSocket the answer to the upgrade says it; the address is told what it repeats."""
    with ScriptedServer(ok(b"not found", status=404)) as server:
        engine = {"contract": "deepgram-ws", "base_url": f"{server.base_url}/v1"}
        with pytest.raises(EngineNotReadyError, match=r"HTTP 404: not found.*drop /v1 from"):
            _run(server.base_url, tmp_path / "run", engines=[engine])

    assert not (tmp_path / "run").exists()


def test_a_stop_during_the_first_request_leaves_no_folder(tmp_path: Path):
    """Ctrl-C is heard although the reply does not come."""

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, stop.set)
        await run_scenario(plan, tmp_path / "run", environment=Environment(), stop=stop)

    with ScriptedServer(voice(lambda _request: (WaitForClose(),))) as server:
        data = short_run(server.base_url, preflight=True)
        plan = plan_run(parse_scenario(data, where="t", base_dir=Path.cwd()))
        with pytest.raises(RunInterruptedError):
            run(main())

    assert not (tmp_path / "run").exists()
