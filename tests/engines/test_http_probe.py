"""Who answers, and is it ready: what can be told is told, the rest stays unknown."""

from __future__ import annotations

import json

import pytest

from engines import registry
from engines.base import EngineInfo, ProbeReply
from engines.params import address_hint

MODELS = {"data": [{"id": "piper-joe", "owned_by": "earwitness"}]}


def _reply(name: str, status: int | None, body: object = None) -> ProbeReply:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ProbeReply(name, status, (), raw)


def _ask(engine: str, *replies: ProbeReply) -> EngineInfo:
    return registry.create(engine, base_url="http://127.0.0.1:8").probe().parse(replies)


def test_calls_go_to_the_configured_address():
    """Host, port and prefix of the base URL, not of the contract."""
    probe = registry.create("nari", base_url="http://10.0.0.1:99/x").probe()

    assert ["http://10.0.0.1:99/x/health", "http://10.0.0.1:99/x/ready"] == [
        call.url for call in list(probe.calls.values())[:2]
    ]
    assert {"GET"} == {call.method for call in probe.calls.values()}


def test_the_right_server_is_recognised():
    """It names its owner and its model."""
    info = _ask(
        "earwitness-piper",
        _reply("health", 200, {}),
        _reply("ready", 200, {}),
        _reply("models", 200, MODELS),
    )

    assert info.is_ready
    assert info.is_match is True
    assert ("piper-joe",) == info.models


def test_an_address_that_holds_a_part_of_the_route_is_told_what_to_drop():
    """`/v1`, as clients of OpenAI take it, is not found twice: no server to wait for."""
    adapter = registry.create("openai", base_url="http://127.0.0.1:8/v1")
    info = adapter.probe().parse([_reply("models", 404, b"no such page")])

    assert (False, False) == (info.is_ready, info.is_match)
    assert "404 to /v1/models" in info.mismatch
    assert "drop /v1 from the base URL: this contract adds /v1/audio/speech" in info.mismatch


@pytest.mark.parametrize(("base", "status"), [("/v1", 200), ("/v1", 401), ("/tts", 404)])
def test_an_address_that_answers_or_holds_no_part_of_the_route_stands(base: str, status: int):
    """A prefix of a proxy is none of our business, even `/v1` where something is behind it."""
    adapter = registry.create("openai", base_url=f"http://127.0.0.1:8{base}")
    info = adapter.probe().parse([_reply("models", status, {})])

    assert (True, None) == (info.is_ready, info.is_match)


@pytest.mark.parametrize(
    ("base", "route", "repeated"),
    [
        ("http://h/v1", "/v1/audio/speech", "/v1"),
        ("http://h/api/v1", "/v1/audio/speech?x=1", "/v1"),
        ("http://h/v1/audio/speech", "/v1/audio/speech", "/v1/audio/speech"),
        ("http://h", "/v1/audio/speech", None),
        ("http://h/xv1", "/v1/audio/speech", None),
        ("http://h/v1", "/tts", None),
    ],
)
def test_the_repeated_part_is_the_longest(base: str, route: str, repeated: str | None):
    """Whole steps of a path only."""
    hint = address_hint(base, base + route)

    assert (f"drop {repeated} from" in hint) if repeated else hint == ""


@pytest.mark.parametrize(
    "models", [_reply("models", 404, b"nope"), _reply("models", 200, {"data": []}),
               _reply("models", 200, b"ok"), _reply("models", 200, {"data": [{"id": "gpt"}]})]
)  # fmt: skip
def test_another_server_on_the_port_is_a_mismatch(models: ProbeReply):
    """Healthy and ready, but it does not say what only the right one says."""
    info = _ask("earwitness-piper", _reply("health", 200, {}), _reply("ready", 200, {}), models)

    assert info.is_match is False
    assert "another server is there" in info.mismatch


@pytest.mark.parametrize("status", [None, 503, 401, 429])
def test_a_server_that_does_not_answer_yet_is_no_mismatch(status: int | None):
    """Starting up is not being somebody else."""
    info = _ask(
        "earwitness-piper", _reply("ready", 503, b"loading"), _reply("models", status, b"later")
    )

    assert info.is_match is None
    assert not info.is_ready
    assert "503" in info.reason
    assert "loading" in info.reason


def test_ready_must_be_said_not_only_answered():
    """200 with `ready: false` is not ready."""
    info = _ask("nari", _reply("health", 200, {}), _reply("ready", 200, {"ready": False}))

    assert not info.is_ready
    assert "GET /ready: /ready is False, not True" == info.reason


def test_an_unreachable_server_is_not_ready_with_the_reason():
    """What the driver put into the reply is passed on."""
    info = _ask("nari", _reply("ready", None, b"connection refused"))

    assert not info.is_ready
    assert "GET /ready: connection refused" == info.reason


def test_a_server_without_a_readiness_call_is_ready_when_it_answers():
    """404 on the model list of a bare server still shows that it is there."""
    info = _ask("generic", _reply("health", 404), _reply("models", 404))

    assert info.is_ready
    assert "cannot be asked" in info.reason
    assert info.is_match is None
    assert not _ask("generic", _reply("health", None, b"refused")).is_ready


def test_a_server_of_nothing_but_errors_is_not_ready():
    """500 everywhere."""
    assert not _ask("generic", _reply("health", 500), _reply("models", 502)).is_ready


def test_a_hostile_reply_is_only_unhelpful():
    """Deep nesting, wrong shapes, control characters: no exception, nothing drawn."""
    info = _ask(
        "earwitness-piper",
        _reply("ready", 500, b"\x1b[2J" * 100),
        _reply("models", 200, b"[" * 100_000),
    )

    assert not info.is_ready
    assert "\x1b" not in info.reason
