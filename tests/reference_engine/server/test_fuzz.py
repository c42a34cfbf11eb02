"""Anything in any order: no 5xx, no hang, nothing left behind, nothing secret in the log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference_engine.server.live_protocol import Command, LiveError, LiveProtocol
from reference_engine.server.schemas import (
    AppendMessage,
    CancelMessage,
    EndMessage,
    StartMessage,
)
from reference_engine.server.settings import LiveLimits
from tests.builders.reference_server import NOTHING_HELD, PATH, Served, start

SECRET = "sk-do-not-log-this"
TEXTS = st.text("ab, .\n<|im_end|>é", max_size=40)
SEQUENCES = st.integers(-1, 5)
MESSAGES = st.one_of(
    st.just(start(max_new_tokens=4)),
    st.builds(lambda n, text: {"type": "input_text.append", "sequence": n, "text": text},
              SEQUENCES, TEXTS),
    st.builds(lambda n: {"type": "input_text.end", "sequence": n}, SEQUENCES),
    st.just({"type": "response.cancel"}),
    st.dictionaries(st.sampled_from(["type", "sequence", "text", "x"]),
                    st.one_of(st.none(), st.integers(), TEXTS, st.booleans()), max_size=4),
)  # fmt: skip
RAW = st.one_of(MESSAGES.map(json.dumps), st.text(max_size=60), st.binary(max_size=60))


@settings(max_examples=300, deadline=None)
@given(messages=st.lists(RAW, max_size=12))
def test_a_session_reads_only_what_may_come_in_that_place(messages):
    """Settings once and first, pieces counted from 0, one end, a cancel at any time."""
    kinds: list[type] = []
    sequence = 0
    for read in _read(messages):
        if read is None:
            assert EndMessage in kinds
            continue
        if not isinstance(read, CancelMessage):
            assert (StartMessage in kinds) != isinstance(read, StartMessage)
            assert EndMessage not in kinds
        if isinstance(read, AppendMessage | EndMessage):
            assert sequence == read.sequence
            sequence += 1
        kinds.append(type(read))
    assert kinds.count(StartMessage) <= 1
    assert kinds.count(AppendMessage) <= 3


def _read(messages: list[Any]) -> Iterator[Command | None]:
    """What a session with small limits makes of them, up to the first that it refuses."""
    protocol = LiveProtocol(LiveLimits(max_message_bytes=200, max_appends=3, max_characters=60))
    for message in messages:
        try:
            read = protocol.read(message)
        except LiveError:
            return
        yield read


@settings(max_examples=100, deadline=None)
@given(message=RAW)
def test_every_refusal_has_a_message_and_a_close_code(message):
    """JSON that a client can read, and a code that RFC 6455 allows a server."""
    try:
        LiveProtocol(LiveLimits(max_message_bytes=50)).read(message)
    except LiveError as error:
        said, code = json.loads(json.dumps(error.as_json(None))), int(error.close_code)
    else:
        return

    assert ("error", True) == (said["type"], code in (1008, 1009))


async def _throw_at(server: Served, messages: list[Any], *, hangs_up: bool) -> list[str]:
    """Say all that in one session; what kind of things came back."""
    headers = {"Authorization": f"Bearer {SECRET}"}
    kinds: list[str] = []
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(
            server.ws_url, protocols=("nari.speech.v1",), headers=headers, autoclose=True
        ) as socket,
    ):
        for message in messages:
            send = socket.send_bytes if isinstance(message, bytes) else socket.send_str
            try:
                await send(message)
            except ConnectionError:
                break
        if hangs_up:
            return kinds
        await socket.send_str('{"type": "over"}') if not socket.closed else None
        async with asyncio.timeout(10):
            while not socket.closed:
                received = await socket.receive()
                if received.type is aiohttp.WSMsgType.TEXT:
                    kinds.append(json.loads(received.data)["type"])
    return kinds


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=st.lists(RAW, max_size=8), is_started=st.booleans(), hangs_up=st.booleans())
def test_no_session_hangs_or_leaves_something_behind(
    server, caplog, messages, is_started, hangs_up
):
    """Whatever is said ends with `response.done` or `error`; the engine is as it was."""
    caplog.clear()
    lead = [json.dumps(start(max_new_tokens=4))] if is_started else []

    async def go() -> list[str]:
        kinds = await _throw_at(server, lead + messages, hangs_up=hangs_up)
        await server.until_idle()
        return kinds

    with caplog.at_level(logging.DEBUG, logger="reference_engine"):
        kinds = asyncio.run(go())

    assert hangs_up or kinds[-1] in ("response.done", "error")
    assert SECRET not in caplog.text
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


def _document(server: Served) -> dict[str, Any]:
    async def go() -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as client,
            client.get(server.base_url + "/openapi.json") as reply,
        ):
            return dict(await reply.json())

    return asyncio.run(go())


def test_the_document_describes_every_http_route(server):
    """What is not in it cannot be fuzzed; the session is a WebSocket and left out."""
    resources = server.service_routes()
    described = {
        (method.upper(), path)
        for path, methods in _document(server)["paths"].items()
        for method in methods
    }

    assert resources - {("GET", "/v1/audio/speech/ws"), ("GET", "/openapi.json")} == described


@pytest.mark.slow
def test_requests_made_from_the_document_never_break_the_server(server):
    """Valid and broken ones of every route: no 5xx, replies as described, nothing left behind."""
    schema = schemathesis.openapi.from_dict(_document(server))
    schema.config.base_url = server.base_url
    checked = 0

    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=12,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            nonlocal checked
            if case.path == PATH and isinstance(case.body, dict):
                # Bounded, so that what is valid is also soon over.
                case.body |= {"max_new_tokens": 3, "ignore_eos": True, "stream": False}
            response = case.call()
            assert response.status_code < 500, response.text
            case.validate_response(
                response,
                checks=(
                    schemathesis.checks.not_a_server_error,
                    schemathesis.specs.openapi.checks.status_code_conformance,
                    schemathesis.specs.openapi.checks.content_type_conformance,
                    schemathesis.specs.openapi.checks.response_schema_conformance,
                ),
            )
            checked += 1

        ask()
    asyncio.run(server.until_idle())

    assert checked > 20
    assert NOTHING_HELD == server.held()
