"""A whole run against a small server: what is asked, sent, stored, and how it ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.environment import Environment
from harness.errors import EngineNotReadyError, RunFolderError, RunInterruptedError
from harness.loop import run
from harness.observer import SilentObserver
from harness.plan import Consent, RunPlan, plan_run
from harness.records import PointRecord, RunStatus
from harness.runner import RunResult, remaining_points, run_scenario
from harness.scenario import Point, parse_scenario
from harness.store import open_run
from tests.builders.runs import point, run_record
from tests.builders.servers import Request, ScriptedServer, Wait, ok, refusal
from tests.builders.voices import SPOKEN, short_run, voice

pytestmark = pytest.mark.slow


def _plan(base_url: str, *, points: tuple[Point, ...] | None = None, **sections: Any) -> RunPlan:
    given = parse_scenario(short_run(base_url, **sections), where="t", base_dir=Path.cwd())
    return plan_run(given, points=points)


def _run(plan: RunPlan, folder: Path, **options: Any) -> RunResult:
    return run(run_scenario(plan, folder, environment=Environment(), **options))


def test_every_planned_request_is_stored_with_what_was_received(tmp_path: Path):
    """Requests as planned, bytes as sent by the server, everything ok, the folder complete."""
    with ScriptedServer(voice()) as server:
        plan = _plan(server.base_url)
        result = _run(plan, tmp_path / "run")
        spoken = [r for r in server.requests if r.method == "POST"]

    stored = open_run(tmp_path / "run")
    assert (RunStatus.COMPLETE, 6, 6) == (result.status, result.num_measured, result.num_ok)
    assert [a.prompt_id for a in plan.schedules[0]] == stored.requests["prompt_id"].tolist()
    assert Counter(r.json["input"] for r in spoken) == Counter(stored.requests["text"])
    assert {SPOKEN} == {payload for _, payload in stored.iter_records()}
    assert {"ok"} == set(stored.requests["transport_outcome"])


def test_servers_are_told_who_loads_them(tmp_path: Path):
    """Probes and speech alike carry the User-Agent with the contact of the consent."""
    consent = {"host": "h", "contact": "me@example.com", "max_rps": 1, "max_requests": 1}
    with ScriptedServer(voice()) as server:
        _run(_plan(server.base_url, authorization=consent), tmp_path / "run")

    [agent] = {request.header("user-agent") for request in server.requests}
    assert "earwitness/" in (agent or "")
    assert "contact me@example.com" in (agent or "")


def test_chunk_bytes_add_up_to_body_and_payload(tmp_path: Path):
    """For every request: sum of chunks = body = stored payload = what the server wrote."""
    with ScriptedServer(voice()) as server:
        _run(_plan(server.base_url), tmp_path / "run")

    stored = open_run(tmp_path / "run")
    sums = stored.chunks.groupby("request_id")["num_bytes"].sum()
    requests = stored.requests.set_index("request_id")
    assert {len(SPOKEN)} == set(sums) == set(requests["body_bytes"]) == set(requests["audio_bytes"])


def test_the_head_of_the_run_says_who_answered_and_what_was_said(tmp_path: Path):
    """Identity of the engine, hash of the prompts, clock, points with their self-check."""
    with ScriptedServer(voice()) as server:
        plan = _plan(server.base_url)
        _run(plan, tmp_path / "run", command=["earwitness", "run"])

    head = open_run(tmp_path / "run").record
    [engine] = head.engines
    assert ["piper-joe"] == engine["info"]["models"]
    assert plan.prompts.sha256 == head.prompts["sha256"]
    assert {"kernel", "user"} >= {head.clock["stamp_source"]}
    assert len(head.clock["offsets"]) >= 1
    assert head.points[0].is_complete
    assert "dispatch_lag_ms" in head.points[0].selfcheck


def test_a_wrong_server_is_never_measured(tmp_path: Path):
    """A dummy on the port gives an error and no folder, so no latency table."""
    dummy = ScriptedServer(ok(b"{}", content_type="application/json"))
    with dummy as server, pytest.raises(EngineNotReadyError):
        _run(_plan(server.base_url), tmp_path / "run")

    assert not (tmp_path / "run").exists()
    assert not [r for r in server.requests if r.method == "POST"]


def test_an_existing_folder_is_refused_before_anybody_is_asked(tmp_path: Path):
    """Not even a probe is sent."""
    with (
        ScriptedServer(voice()) as server,
        pytest.raises(RunFolderError, match="exists already"),
    ):
        _run(_plan(server.base_url), tmp_path)

    assert [] == server.requests


def test_failures_are_records_and_the_run_is_complete(tmp_path: Path):
    """Every second reply is a 429: all are in the table, by their outcome."""
    count = iter(range(10**6))

    def speak(request: Request):
        return refusal() if next(count) % 2 else voice()(request)

    with ScriptedServer(voice(speak)) as server:
        result = _run(_plan(server.base_url), tmp_path / "run")

    outcomes = Counter(open_run(tmp_path / "run").requests["transport_outcome"])
    assert {"ok": 4, "refused": 4} == outcomes
    assert RunStatus.COMPLETE is result.status


def test_a_share_of_refusals_above_the_limit_ends_the_run(tmp_path: Path):
    """`limits.max_error_share` stops it; the folder says why and is incomplete."""
    with ScriptedServer(voice(lambda _request: refusal())) as server:
        plan = _plan(
            server.base_url,
            limits={"max_error_share": 0.5},
            arrivals={"process": "constant", "rates_rps": [100.0], "seeds": [1]},
        )
        result = _run(plan, tmp_path / "run")

    head = open_run(tmp_path / "run").record
    assert RunStatus.INCOMPLETE is result.status is head.status
    assert "were refused" in result.reason
    assert result.reason in head.notes
    assert len(server.requests) < 40


class _StopsAtThePoint(SilentObserver):
    """Presses Ctrl-C when the given point has sent its first request."""

    def __init__(self, stop: asyncio.Event, nth: int) -> None:
        self._stop = stop
        self._nth = nth
        self._begun = 0

    def on_point(self, point, schedule) -> None:
        self._begun += 1

    def on_progress(self, progress) -> None:
        if self._begun == self._nth:
            asyncio.get_running_loop().call_later(0.15, self._stop.set)


def _interrupted(plan: RunPlan, folder: Path, *, nth: int) -> RunResult:
    async def main() -> RunResult:
        stop = asyncio.Event()
        return await run_scenario(
            plan,
            folder,
            environment=Environment(),
            observer=_StopsAtThePoint(stop, nth),
            stop=stop,
        )

    return run(main())


def test_an_interrupted_run_keeps_what_had_finished_and_can_go_on(tmp_path: Path):
    """Stopped in the second of two points; resumed, the second is run anew beside its remains."""
    two = {"process": "constant", "rates_rps": [10.0, 20.0], "seeds": [1]}
    with ScriptedServer(voice()) as server:
        plan = _plan(server.base_url, arrivals=two)
        result = _interrupted(plan, tmp_path / "run", nth=2)
        partial = open_run(tmp_path / "run")
        num_partial = len(partial.requests)
        left = remaining_points(partial.record)
        resumed = _plan(server.base_url, arrivals=two, points=left)
        again = _run(
            resumed,
            tmp_path / "run",
            is_resumed=True,
            command=["earwitness", "run", "--resume", "run"],
        )

    assert (RunStatus.INTERRUPTED, [True, False]) == (
        result.status,
        [p.is_complete for p in partial.record.points],
    )
    assert ["earwitness-piper-r20-s1-try2"] == [p.point_id for p in left]
    whole = open_run(tmp_path / "run")
    assert RunStatus.COMPLETE is again.status
    whole_points = [plan.points[0].point_id, left[0].point_id]
    assert 4 + 8 == sum(whole.requests["point_id"].isin(whole_points))
    assert num_partial + 8 == len(whole.requests)
    assert 1 == len(whole.record.clock["earlier"])
    (resume,) = whole.record.resumes
    assert ["earwitness", "run", "--resume", "run"] == resume["command"]
    assert resume["resumed_utc"] > whole.record.created_utc


def test_points_that_another_process_has_run_meanwhile_are_not_run_again(tmp_path: Path):
    """Two resumed runs of one folder, the second planned before the first had ended: their
    requests would have the same names."""
    with ScriptedServer(voice()) as server:
        _interrupted(_plan(server.base_url), tmp_path / "run", nth=1)
        left = remaining_points(open_run(tmp_path / "run").record)
        resumed = _plan(server.base_url, points=left)
        _run(resumed, tmp_path / "run", is_resumed=True)
        before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
        with pytest.raises(RunFolderError, match="another process went on"):
            _run(resumed, tmp_path / "run", is_resumed=True)

    assert before == {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}


def test_requests_in_flight_at_an_interrupt_are_marked_as_such(tmp_path: Path):
    """They say nothing about the server: cancelled, kind `interrupted`."""
    with ScriptedServer(voice(lambda _request: (Wait(1_500),))) as server:
        _interrupted(_plan(server.base_url), tmp_path / "run", nth=1)

    requests = open_run(tmp_path / "run").requests
    assert {("cancelled", "interrupted")} == set(
        zip(requests["transport_outcome"], requests["error_kind"], strict=True)
    )


def test_a_stop_while_waiting_for_the_engine_leaves_no_folder(tmp_path: Path):
    """Nothing was sent, so there is nothing to keep."""

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, stop.set)
        await run_scenario(plan, tmp_path / "run", environment=Environment(), stop=stop)

    with ScriptedServer(voice(ready_status=503)) as server:
        plan = _plan(server.base_url, timeouts={"ready_s": 60.0})
        with pytest.raises(RunInterruptedError):
            run(main())

    assert not (tmp_path / "run").exists()


def test_a_key_is_nowhere_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Environment, echoed error body, server timing, the request before the load: hidden in all."""
    key = "sk-very-secret-value-1234567890"
    monkeypatch.setenv("OPENAI_API_KEY", key)

    def speak(request: Request):
        said = (request.header("authorization") or "none").encode()
        return ok(b'{"error": {"message": "bad key ' + said + b'"}}', status=500, x_echo=key)

    with ScriptedServer(voice(speak)) as server:
        engines = [{"contract": "openai", "base_url": server.base_url}]
        data = short_run(server.base_url, engines=engines, preflight=True)
        given = parse_scenario(data, where="t", base_dir=Path.cwd())
        plan = plan_run(given, consent=Consent(key_hosts=("127.0.0.1",)))
        _run(plan, tmp_path / "run", command=["earwitness", f"--x={key}"])
        heard = [r.header("authorization") for r in server.requests if r.method == "POST"]

    stored = b"".join(p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file())
    assert {f"Bearer {key}"} == set(heard)
    assert key.encode() not in stored
    assert "***" in str(open_run(tmp_path / "run").requests["error_text"].iloc[0])


def _stored_point(point_id: str, **fields: Any) -> PointRecord:
    return point(point_id, **fields)


def test_a_complete_point_is_not_run_again():
    """Also when an earlier try of it was not complete."""
    done = [
        _stored_point("a", is_complete=False),
        _stored_point("a-try2", is_complete=True),
    ]

    assert () == remaining_points(run_record(points=done))


def test_a_point_that_never_began_keeps_its_id():
    """It has no requests that a new try could be confused with."""
    waiting = [_stored_point("a", is_complete=False, start_ns=None)]

    assert ["a"] == [p.point_id for p in remaining_points(run_record(points=waiting))]


def test_a_command_that_the_user_allows_is_run_for_every_request(tmp_path: Path):
    """An engine `local`: its standard output is stored, each request ends ok."""
    sound = tmp_path / "sound.pcm"
    sound.write_bytes(SPOKEN)
    params = {"argv": ["cat", str(sound)], "sample_rate_hz": 22_050}
    given = parse_scenario(
        short_run("", engines=[{"contract": "local", "params": params}]),
        where="t",
        base_dir=Path.cwd(),
    )
    result = _run(plan_run(given, consent=Consent(allow_commands=True)), tmp_path / "run")

    assert (6, 6) == (result.num_measured, result.num_ok)
    assert {SPOKEN} == {payload for _, payload in open_run(tmp_path / "run").iter_records()}
