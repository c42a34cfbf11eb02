"""The vendor's own client drives our fake of its service; then our contract drives that fake."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from engines import registry
from engines.base import SpeechRequest
from harness import loop
from harness.clock import RunClock
from harness.records import TransportOutcome
from harness.settings import WireSettings
from harness.single import SingleResult, single
from tests.builders.exchanges import wav
from tests.builders.openai_service import KEY, PCM, openai_service
from tests.builders.servers import ScriptedServer


@pytest.fixture
def service() -> Iterator[ScriptedServer]:
    """The fake service on a loopback port."""
    with ScriptedServer(openai_service) as server:
        yield server


@pytest.fixture
def client(service: ScriptedServer) -> Iterator[openai.OpenAI]:
    """OpenAI's client, pointed at the fake."""
    with openai.OpenAI(api_key=KEY, base_url=f"{service.base_url}/v1", max_retries=0) as made:
        yield made


def _ours(service: ScriptedServer, text: str, **params: Any) -> SingleResult:
    adapter = registry.create(
        "openai",
        base_url=service.base_url,
        params=params,
        environ={"OPENAI_API_KEY": KEY},
        key_hosts=["127.0.0.1"],
    )
    request = SpeechRequest("r", text)
    return loop.run(single(adapter, request, settings=WireSettings(), clock=RunClock()))


def test_the_vendors_client_hears_the_fakes_audio(client: openai.OpenAI):
    """Raw samples, streamed as they come, to the last byte."""
    speech = client.audio.speech.with_streaming_response
    with speech.create(
        input="Hello.", model="gpt-4o-mini-tts", voice="alloy", response_format="pcm"
    ) as reply:
        assert PCM == b"".join(reply.iter_bytes())


def test_the_vendors_client_hears_the_fakes_events(client: openai.OpenAI):
    """SSE lines as the client hands them out; the deltas make the clip."""
    speech = client.audio.speech.with_streaming_response
    with speech.create(
        input="Hello.",
        model="gpt-4o-mini-tts",
        voice="alloy",
        response_format="pcm",
        stream_format="sse",
    ) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    events = [json.loads(line) for line in lines]

    assert PCM == b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert "speech.audio.done" == events[-1]["type"]


def test_the_vendors_client_takes_the_fakes_errors_for_what_they_are(client: openai.OpenAI):
    """Busy is a rate limit, an unknown format a bad request, a cut stream an error."""
    ask: dict[str, Any] = {"model": "gpt-4o-mini-tts", "voice": "alloy", "response_format": "pcm"}
    with pytest.raises(openai.RateLimitError, match="Rate limit reached"):
        client.audio.speech.create(input="busy", **ask)
    with pytest.raises(openai.BadRequestError, match="response_format"):
        client.audio.speech.create(input="Hello.", **{**ask, "response_format": "midi"})
    with pytest.raises((httpx.RemoteProtocolError, openai.APIConnectionError)):
        client.audio.speech.create(input="break", **ask)


@pytest.mark.parametrize("params", [{}, {"stream_format": "sse"}])
def test_our_contract_hears_the_same(service: ScriptedServer, params: dict[str, str]):
    """As a body and as events: byte for byte what the vendor's client heard."""
    result = _ours(service, "Hello.", **params)

    assert TransportOutcome.OK == result.record.transport_outcome
    assert PCM == result.payload
    assert 24_000 == result.record.format.sample_rate_hz  # type: ignore[union-attr]


def test_our_contract_hears_a_wav(service: ScriptedServer):
    """Header and samples, as they came."""
    assert wav(PCM, data_size=0xFFFFFFFF) == _ours(service, "x", response_format="wav").payload


@pytest.mark.parametrize(
    ("text", "params", "outcome"),
    [
        ("busy", {}, TransportOutcome.REFUSED),
        ("break", {}, TransportOutcome.TRUNCATED),
        ("break", {"stream_format": "sse"}, TransportOutcome.TRUNCATED),
        ("x", {"stream_format": "sse", "model": "tts-1"}, TransportOutcome.HTTP_ERROR),
    ],
)
def test_our_contract_takes_its_errors_for_what_they_are(
    service: ScriptedServer, text: str, params: dict[str, str], outcome: TransportOutcome
):
    """The same faults that the vendor's client saw."""
    assert outcome == _ours(service, text, **params).record.transport_outcome
