"""The HTTP face, around a voice that is scripted."""

from __future__ import annotations

import asyncio
import json
import struct

import aiohttp
import pytest

from engines.embedded.errors import NothingToSayError
from engines.embedded.service import State
from tests.engines.embedded.fakes import FakeVoice, eventually, running, samples

SPEECH = "/v1/audio/speech"
ROUTES = (
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/v1/models"),
    ("GET", "/v1/audio/voices"),
    ("GET", "/v1/stats"),
    ("POST", SPEECH),
)


async def say(client, text="Hello.", *, request_id=None, **fields) -> tuple[int, dict, bytes]:
    headers = {} if request_id is None else {"X-Request-Id": request_id}
    async with client.post(SPEECH, json={"input": text, **fields}, headers=headers) as reply:
        return reply.status, reply.headers, await reply.read()


async def count(client, request_id: str) -> dict:
    async with client.get(f"/v1/requests/{request_id}") as reply:
        return await reply.json()


def test_streamed_pcm_is_the_steps_one_after_the_other():
    """A step without sound adds nothing; headers say how to read the bytes."""

    async def scene():
        async with running(FakeVoice([b"", samples(3), samples(2, mark=7)])) as (client, _):
            return await say(client)

    status, headers, body = asyncio.run(scene())
    assert (200, samples(3) + samples(2, mark=7)) == (status, body)
    assert {
        "Content-Type": "audio/pcm",
        "X-Sample-Rate": "1000",
        "X-Channels": "1",
        "X-Accel-Buffering": "no",
        "Cache-Control": "no-cache",
        "Server": "earwitness-piper/0",
        "Transfer-Encoding": "chunked",
    }.items() <= dict(headers).items()


def test_a_streamed_wav_says_that_its_sizes_are_unknown():
    """Both sizes are 0xFFFFFFFF, so that a reader reads to the end."""

    async def scene():
        async with running(FakeVoice([samples(3), samples(2)])) as (client, _):
            return await say(client, response_format="wav")

    _, headers, body = asyncio.run(scene())
    sizes = struct.unpack("<I", body[4:8]) + struct.unpack("<I", body[40:44])
    assert ("audio/wav", (2**32 - 1, 2**32 - 1), samples(5)) == (
        headers["Content-Type"],
        sizes,
        body[44:],
    )


def test_a_whole_wav_knows_its_sizes():
    """Without streaming the header counts 36 + data and data, and so does Content-Length."""

    async def scene():
        async with running(FakeVoice([samples(3), samples(2)])) as (client, _):
            return await say(client, response_format="wav", stream=False)

    _, headers, body = asyncio.run(scene())
    sizes = struct.unpack("<I", body[4:8]) + struct.unpack("<I", body[40:44])
    assert ((46, 10), samples(5), "54") == (sizes, body[44:], headers["Content-Length"])


@pytest.mark.parametrize("response_format", ["pcm", "wav"])
@pytest.mark.parametrize("is_streaming", [True, False])
def test_the_server_counts_the_bytes_that_the_client_got(response_format, is_streaming):
    """Body bytes are those received; audio bytes leave a WAV header out."""

    async def scene():
        async with running(FakeVoice([samples(300)] * 3)) as (client, _):
            _, headers, body = await say(
                client, request_id="r-1", response_format=response_format, stream=is_streaming
            )
            return headers["X-Request-Id"], len(body), await count(client, "r-1")

    echoed, num_bytes, counted = asyncio.run(scene())
    assert ("r-1", num_bytes, 1800, 3, "done") == (
        echoed,
        counted["body_bytes"],
        counted["audio_bytes"],
        counted["num_chunks"],
        counted["status"],
    )


def test_only_the_latest_requests_are_remembered():
    """The stats are bounded: of three requests with room for two, the oldest is unknown."""

    async def scene():
        async with running(FakeVoice(), stats_capacity=2) as (client, _):
            for name in ("a", "b", "c"):
                await say(client, request_id=name)
            async with client.get("/v1/requests/a") as gone, client.get("/v1/stats") as stats:
                return gone.status, await stats.json()

    status, stats = asyncio.run(scene())
    assert (404, 3, ["b", "c"]) == (
        status,
        stats["num_seen"],
        [each["request_id"] for each in stats["requests"]],
    )


def test_no_route_says_yes_before_the_voice_has_spoken_once():
    """503 with a reason and a retry hint while loading and while warming up, then 200."""

    async def ask_all(client) -> set[tuple[int, str | None, str]]:
        seen = set()
        for method, path in ROUTES:
            async with client.request(method, path, json={"input": "Hi."}) as reply:
                body = await reply.json() if reply.status != 200 else {"error": {"code": ""}}
                seen.add((reply.status, reply.headers.get("Retry-After"), body["error"]["code"]))
        return seen

    async def scene():
        voice = FakeVoice(is_gated=True)
        async with running(voice, prepare=False) as (client, service):
            loading = await ask_all(client)
            preparing = asyncio.create_task(service.prepare())
            await eventually(lambda: service.state is State.WARMING)
            warming = await ask_all(client)
            voice.permit(2)
            await preparing
            return loading, warming, await ask_all(client)

    assert (
        {(503, "1", "loading")},
        {(503, "1", "warming")},
        {(200, None, "")},
    ) == asyncio.run(scene())


def test_models_and_health_say_who_is_there():
    """Name, version, model and owner are enough to know the wrong server."""

    async def scene():
        async with (
            running(FakeVoice(), noise=0.0) as (client, _),
            client.get("/v1/models") as models,
            client.get("/health") as health,
        ):
            return await models.json(), await health.json()

    models, health = asyncio.run(scene())
    server = {"name": "earwitness-piper", "version": "0"}
    assert ("piper-joe", "earwitness", server) == (
        models["data"][0]["id"],
        models["data"][0]["owned_by"],
        models["server"],
    )
    assert {"server": server, "mode": "stream", "noise": 0.0}.items() <= health.items()


def test_a_full_queue_is_a_429_with_a_retry_hint():
    """One worker and no queue: the second request is refused, and served once the first ended."""

    async def scene():
        voice = FakeVoice(is_gated=True)
        async with running(voice, max_queue=0) as (client, service):
            first = asyncio.create_task(say(client))
            await eventually(lambda: service.num_open == 1)
            status, headers, body = await say(client, request_id="no")
            refused = await count(client, "no")
            voice.permit(2)
            await first
            await eventually(lambda: service.num_open == 0)
            later, _, _ = await say(client)
            return status, headers["Retry-After"], json.loads(body), refused["status"], later

    status, retry_after, body, refused, later = asyncio.run(scene())
    assert (429, "1", "queue_full", "refused", 200) == (
        status,
        retry_after,
        body["error"]["code"],
        refused,
        later,
    )


@pytest.mark.parametrize("num_chunks_read", [0, 1])
def test_a_client_that_hangs_up_stops_its_synthesis(num_chunks_read):
    """Before or after first sound, only the step that was running when it left is wasted."""

    async def scene():
        voice = FakeVoice([samples(100)] * 20, is_gated=True)
        async with running(voice) as (client, service):
            voice.permit(num_chunks_read)
            asking = asyncio.create_task(_read_then_leave(client, num_chunks_read))
            await eventually(lambda: len(voice.log) == num_chunks_read + 1)
            if not num_chunks_read:
                asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            entry = service.ledger.get("bye")
            await eventually(lambda: entry.status == "cancelled")
            voice.permit(100)
            await eventually(lambda: service.num_open == 0)
            return len(voice.log)

    assert num_chunks_read + 1 == asyncio.run(scene())


async def _read_then_leave(client, num_chunks: int) -> None:
    headers = {"X-Request-Id": "bye"}
    reply = await client.post(SPEECH, json={"input": "Hi."}, headers=headers)
    for _ in range(num_chunks):
        await reply.content.readexactly(200)
    reply.close()


def test_a_client_that_leaves_the_queue_costs_no_inference():
    """A request that never got a thread ends without a step."""

    async def scene():
        voice = FakeVoice(is_gated=True)
        async with running(voice) as (client, service):
            first = asyncio.create_task(say(client, "first"))
            await eventually(lambda: service.num_open == 1)
            waiting = asyncio.create_task(say(client, "second"))
            await eventually(lambda: service.num_open == 2)
            waiting.cancel()
            await eventually(lambda: service.num_open == 1)
            voice.permit(2)
            await first
            return voice.log

    assert [("first", 0)] == asyncio.run(scene())


def test_a_failure_before_any_audio_is_a_500():
    """No status was sent yet, so the reply can say it."""

    async def scene():
        async with running(FakeVoice()) as (client, service):
            service.voice.synthesiser.script = (RuntimeError("boom"),)
            status, _, body = await say(client, request_id="r")
            return status, json.loads(body)["error"]["code"], (await count(client, "r"))["status"]

    assert (500, "internal", "failed") == asyncio.run(scene())


def test_a_failure_after_audio_breaks_the_body():
    """The client sees a body that was cut, never a clean end."""

    async def scene():
        async with running(FakeVoice()) as (client, service):
            service.voice.synthesiser.script = (samples(100), RuntimeError("boom"))
            with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientConnectionError)):
                await say(client, request_id="r")
            return (await count(client, "r"))["status"]

    assert "failed" == asyncio.run(scene())


def test_text_without_a_word_is_a_422():
    """What the voice cannot pronounce is the client's to mend."""

    async def scene():
        async with running(FakeVoice()) as (client, service):
            service.voice.synthesiser.script = (NothingToSayError("input: no words"),)
            status, _, body = await say(client, "...")
            return status, json.loads(body)["error"]["message"]

    assert (422, "input: no words") == asyncio.run(scene())


def test_open_requests_end_while_draining_and_new_ones_are_refused():
    """A shutdown lets the listener hear the end; counts stay readable."""

    async def scene():
        voice = FakeVoice(is_gated=True)
        async with running(voice) as (client, service):
            first = asyncio.create_task(say(client, request_id="r"))
            await eventually(lambda: service.num_open == 1)
            service.begin_draining()
            refused, _, _ = await say(client)
            voice.permit()
            served, _, body = await first
            return refused, served, body, (await count(client, "r"))["body_bytes"]

    assert (503, 200, samples(100), 200) == asyncio.run(scene())


JSON_TYPE = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("POST", SPEECH, {"Content-Type": "text/plain"}, b'{"input":"a"}', 415),
        ("POST", SPEECH, {**JSON_TYPE, "Content-Encoding": "gzip"}, b"\x1f\x8b garbage", 415),
        ("POST", SPEECH, JSON_TYPE, b" " * 70_000, 413),
        ("POST", SPEECH, JSON_TYPE, b"{", 400),
        ("POST", SPEECH, JSON_TYPE, b"", 400),
        ("POST", SPEECH, {**JSON_TYPE, "X-Request-Id": "a b"}, b'{"input":"a"}', 400),
        ("POST", SPEECH, {**JSON_TYPE, "X-Request-Id": "a" * 129}, b'{"input":"a"}', 400),
        ("GET", SPEECH, {}, b"", 405),
        ("POST", "/health", {}, b"", 405),
        ("GET", "/nowhere", {}, b"", 404),
        ("GET", "/v1/requests/nobody", {}, b"", 404),
    ],
)
def test_what_is_refused_is_refused_in_one_line_of_json(method, path, headers, body, status):
    """The connection's own rules are kept with the same error shape, and the server lives on."""

    async def scene():
        async with running(FakeVoice()) as (client, _):
            async with client.request(method, path, headers=headers, data=body) as reply:
                error = (await reply.text(), reply.status)
            return *error, (await say(client))[0]

    text, found, afterwards = asyncio.run(scene())
    assert (status, 200, 1) == (found, afterwards, len(text.splitlines()))
    assert json.loads(text)["error"].keys() == {"message", "type", "param", "code"}


def test_a_body_that_never_ends_is_a_408():
    """A client that stalls in the middle of its body holds no handler for long."""

    async def scene():
        async with running(FakeVoice(), read_timeout_s=0.05) as (client, _):
            never = asyncio.Event()

            async def stalling():
                yield b'{"input":'
                await never.wait()

            async with client.post(SPEECH, headers=JSON_TYPE, data=stalling()) as reply:
                return reply.status

    assert 408 == asyncio.run(scene())


def test_a_server_with_a_key_asks_for_it_except_on_health():
    """Probes hold no key; every other route does."""

    async def scene():
        async with running(FakeVoice(), api_key="s3cret") as (client, _):
            found = []
            for path, key in (
                ("/health", None),
                ("/v1/models", None),
                ("/v1/models", "wrong"),
                ("/v1/models", "s3cret"),
            ):
                headers = {} if key is None else {"Authorization": f"Bearer {key}"}
                async with client.get(path, headers=headers) as reply:
                    found.append(reply.status)
            return found

    assert [200, 401, 401, 200] == asyncio.run(scene())
