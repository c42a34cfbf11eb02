"""Loading, readiness, identity, the key, draining, and losing the device."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reference_engine.assemble import assemble
from reference_engine.errors import ArgumentError, CheckpointError
from reference_engine.server.sockets import bind
from tests.builders.reference_server import (
    MODEL_ID,
    PATH,
    WS_PATH,
    Served,
    body,
    served,
    server_process,
    small_profile,
)

READ = ("/health", "/ready", "/v1/models", "/v1/voices", "/v1/profile", "/v1/requests/x", WS_PATH)


async def _get(server: Served, path: str, **options: Any) -> tuple[int, dict[str, str], Any]:
    async with (
        aiohttp.ClientSession() as client,
        client.get(server.base_url + path, **options) as reply,
    ):
        is_json = reply.content_type == "application/json"
        return reply.status, dict(reply.headers), await (reply.json() if is_json else reply.text())


async def _speak(server: Served, **options: Any) -> tuple[int, dict[str, str], Any]:
    async with (
        aiohttp.ClientSession() as client,
        client.post(server.base_url + PATH, json=body(), **options) as reply,
    ):
        return reply.status, dict(reply.headers), await reply.read()


def test_every_route_says_not_yet_until_one_real_request_was_served(micro):
    """503 with a time to come back while loading and warming, then yes, in that order."""
    may_load = threading.Event()

    def load() -> Any:
        assert may_load.wait(20)
        return assemble(micro.folder, small_profile())

    async def go() -> tuple[list[tuple[int, bool]], list[str], list[int], int]:
        async with served(micro, load=load, is_prepared=False) as server:
            preparing = asyncio.create_task(server.service.prepare())
            early = [await _get(server, path) for path in READ]
            early.append(await _speak(server))
            phases = [(await _get(server, "/ready"))[2]["phase"]]
            may_load.set()
            await preparing
            phases.append((await _get(server, "/ready"))[2]["phase"])
            late = [(await _get(server, path))[0] for path in READ[:5]]
            frames = sum(meter.num_steps for meter in server.service.assembled.engine.meters.stages)
            refusals = [(status, "Retry-After" in headers) for status, headers, _ in early]
            return refusals, phases, late, frames

    refusals, phases, late, num_steps = asyncio.run(go())

    assert [(503, True)] * (len(READ) + 1) == refusals
    assert ["loading", "ready"] == phases
    assert [200] * 5 == late
    assert num_steps > 32  # the warm-up request ran every stage


def test_ready_says_what_it_waits_for(micro):
    """A reason a person can read, and whether the process is alive."""

    async def go() -> tuple[Any, Any]:
        async with served(micro, is_prepared=False) as server:
            return (await _get(server, "/ready"))[2], (await _get(server, "/health"))[2]

    ready, health = asyncio.run(go())

    assert (False, "loading") == (ready["ready"], ready["phase"])
    assert "weights" in ready["reason"]
    assert health["alive"]


def test_a_checkpoint_that_cannot_be_read_ends_the_server(tmp_path):
    """With the one line that says what is missing."""

    async def go() -> None:
        async with served(tmp_path, is_prepared=False) as server:
            await server.service.prepare()

    with pytest.raises(CheckpointError, match=r"config\.json"):
        asyncio.run(go())


def test_a_device_that_is_lost_makes_the_server_not_ready(micro):
    """The engine stopped by itself: 503 from then on, and not alive."""

    async def go() -> tuple[int, Any]:
        async with served(micro) as server:
            server.service.assembled.engine.close()
            status, _, said = await _get(server, "/health")
            return status, said

    status, said = asyncio.run(go())

    assert (503, False, "failed") == (status, said["alive"], said["phase"])


def test_the_server_says_who_it_is_and_how_it_serves(server):
    """Enough for a bench to refuse the wrong one, and to trace a figure to its settings."""

    async def go() -> list[Any]:
        paths = ("/v1/models", "/v1/voices", "/v1/profile")
        return [(await _get(server, path))[2] for path in paths]

    models, voices, profile = asyncio.run(go())
    engine_profile = server.service.assembled.engine.profile

    assert [(MODEL_ID, "earwitness")] == [(m["id"], m["owned_by"]) for m in models["data"]]
    assert "random" in models["data"][0]["random_weights"]
    assert {"ryan", "vivian"} <= {voice["id"] for voice in voices["voices"]}
    assert engine_profile.hash == profile["hash"]
    assert engine_profile.resolved() == profile["settings"]
    assert ("cpu", "float32", "first-token") == (
        profile["device"],
        profile["dtype"],
        profile["start"]["rule"],
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", PATH, 405), ("DELETE", "/v1/models", 405)],
)
def test_wrong_addresses_are_told_in_the_same_shape(server, method, path, status):
    """JSON with `error` and `detail`, never a page of HTML."""

    async def go() -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, server.base_url + path) as reply,
        ):
            return reply.status, await reply.json()

    found, said = asyncio.run(go())

    assert status == found
    assert {"detail", "error"} == set(said)


def test_a_key_is_asked_for_everywhere_but_for_health(micro, caplog):
    """401 without it or with another; it is never written down."""
    key = "sk-very-secret"

    async def go() -> list[int]:
        async with served(micro, api_key=key) as server:
            right, wrong = {"Authorization": f"Bearer {key}"}, {"Authorization": "Bearer ä\udcff"}
            return [
                (await _get(server, "/v1/models"))[0],
                (await _get(server, "/metrics"))[0],
                (await _get(server, "/v1/models", headers={"Authorization": "Bearer x"}))[0],
                (await _get(server, "/v1/models", headers=right))[0],
                (await _get(server, "/health"))[0],
                (await _speak(server))[0],
                (await _speak(server, headers=right))[0],
                (await _speak(server, headers={"Authorization": wrong["Authorization"][:8]}))[0],
            ]

    with caplog.at_level("DEBUG"):
        statuses = asyncio.run(go())

    assert [401, 401, 401, 200, 200, 401, 200, 401] == statuses
    assert key not in caplog.text


def test_one_line_is_logged_for_a_request_and_holds_no_text(server, caplog):
    """JSON with how it ended and its stages; what the client said is the client's."""
    with caplog.at_level("INFO", logger="reference_engine.requests"):
        asyncio.run(_speak(server, headers={"X-Request-Id": "logged-1"}))
        asyncio.run(server.until_idle())
        lines = [json.loads(r.message) for r in caplog.records if r.name.endswith("requests")]

    (line,) = [line for line in lines if line["request_id"] == "logged-1"]
    assert ("http", "length", 19) == (line["transport"], line["outcome"], line["num_characters"])
    assert {"text_ms", "queue_ms", "turn_ms", "model_ms", "deliver_ms", "first_pcm_ms"} <= set(line)
    assert "hello" not in caplog.text


def test_metrics_count_what_was_done(server):
    """Requests by outcome, stages, chunks: in the exposition format, by name."""

    async def go() -> tuple[str, str]:
        before = (await _get(server, "/metrics"))[2]
        await _speak(server)
        return before, (await _get(server, "/metrics"))[2]

    before, after = asyncio.run(go())
    grown = (
        'earwitness_server_requests_total{outcome="length",transport="http"}',
        "earwitness_engine_requests_submitted_total",
        "earwitness_engine_chunks_routed_total",
        'earwitness_engine_stage_steps_total{stage="codec"}',
        'earwitness_server_first_sound_seconds_count{stage="first_pcm",transport="http"}',
    )

    assert all(_value(after, name) > _value(before, name) for name in grown)
    assert (2.0, 2.0, 0.0) == tuple(
        _value(after, f"earwitness_engine_{name}") for name in ("slots", "places", "queue_length")
    )


def _value(text: str, name: str) -> float:
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(name + " ")]
    return float(values[0]) if values else 0.0


def test_a_taken_port_is_named():
    """And nothing is served on the address of the other server."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(ArgumentError, match=f"port {port} on 127.0.0.1 is taken"):
            bind("127.0.0.1", port)


def test_localhost_is_bound_on_every_address_it_has():
    """One port for all of them, so that no client finds another server there."""
    sockets = bind("localhost", 0)
    try:
        assert 1 == len({sock.getsockname()[1] for sock in sockets})
    finally:
        for sock in sockets:
            sock.close()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_an_address_of_nobody_is_one_line(host):
    """Unknown names and addresses of other machines."""
    with pytest.raises(ArgumentError, match="--host"):
        bind(host, 0)


def test_draining_lets_who_speaks_end_and_refuses_newcomers(micro):
    """The stream comes whole; a new request is 503."""

    async def go() -> tuple[Any, int]:
        async with served(micro) as server:
            fields = {"X-Request-Id": "last"}
            speaking = asyncio.create_task(_speak(server, headers=fields))
            await server.until(lambda: server.service.num_open == 1)
            server.service.begin_draining()
            refused = (await _speak(server))[0]
            return await speaking, refused

    (status, _, data), refused = asyncio.run(go())

    assert (200, 2 * 1920 * 7, 503) == (status, len(data), refused)


@pytest.mark.slow
def test_the_process_says_when_it_is_ready_and_ends_well_when_told(micro_folder: Path, tmp_path):
    """One JSON line on stdout, the bound address on stderr, exit code 0 after SIGTERM."""
    profile = tmp_path / "small.yaml"
    profile.write_text(json.dumps(small_profile().resolved()))
    arguments = [f"--checkpoint={micro_folder}", f"--profile={profile}"]
    with server_process(arguments, folder=tmp_path) as running:

        async def go() -> int:
            served_there = Served(None, running.url)  # type: ignore[arg-type]
            return (await _speak(served_there))[0]

        status = asyncio.run(go())
        running.process.send_signal(signal.SIGTERM)
        code = running.process.wait(timeout=15)
        said = running.stderr_path.read_text()

    assert (200, 0) == (status, code)
    assert f"listening on 127.0.0.1 port {running.url.rsplit(':', 1)[1]}" in said
    assert "Traceback" not in said
