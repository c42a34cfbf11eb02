"""`POST /v1/audio/speech`: what comes back, byte for byte, and what is refused."""

from __future__ import annotations

import asyncio
import io
import json
import re
import struct
from dataclasses import replace
from typing import Any

import aiohttp
import numpy as np
import pytest

from reference_engine.model.sampling import SamplingSettings
from tests.builders.checkpoints import Loaded, speak
from tests.builders.model_engine import assert_same_sound, pcm
from tests.builders.reference_server import (
    MODEL_ID,
    NUM_FRAMES,
    PATH,
    Served,
    body,
    served,
    small_profile,
)

TEXT = "hello the user said"


class Answer:
    """One reply, read to its end."""

    def __init__(self, response: aiohttp.ClientResponse, data: bytes, *, is_cut: bool) -> None:
        self.status, self.headers = response.status, response.headers
        self.data, self.is_cut = data, is_cut

    def json(self) -> Any:
        return json.loads(self.data)


async def _ask(server: Served, fields: dict[str, Any], **options: Any) -> Answer:
    parts, is_cut = [], False
    async with (
        aiohttp.ClientSession() as client,
        client.post(server.base_url + PATH, json=fields, **options) as response,
    ):
        try:
            async for part in response.content.iter_any():
                parts.append(part)
        except aiohttp.ClientPayloadError:
            is_cut = True
        return Answer(response, b"".join(parts), is_cut=is_cut)


def ask(server: Served, fields: dict[str, Any], **options: Any) -> Answer:
    return asyncio.run(_ask(server, fields, **options))


def get(server: Served, path: str) -> tuple[int, Any]:
    async def go() -> tuple[int, Any]:
        async with aiohttp.ClientSession() as client, client.get(server.base_url + path) as reply:
            return reply.status, await reply.json()

    return asyncio.run(go())


def own_sound(micro: Loaded, layout: str, sampling: SamplingSettings) -> np.ndarray:
    """What the engine's model says to the text, without any server."""
    prompt = micro.prompt(TEXT, layout=layout)
    return pcm(micro, speak(micro, prompt, sampling, num_frames=NUM_FRAMES))


@pytest.mark.parametrize(("is_whole_first", "layout"), [(False, "streaming"), (True, "whole")])
def test_the_audio_of_a_seed_is_the_engines_own(server, micro, is_whole_first, layout):
    """Both prompt layouts, sampled by the checkpoint's settings and the request's seed."""
    drawn = SamplingSettings.from_defaults(micro.model.config.generation, seed=3, ignore_eos=True)

    answer = ask(server, body(TEXT, seed=3, non_streaming_mode=is_whole_first))

    assert (200, False) == (answer.status, answer.is_cut)
    assert_same_sound(own_sound(micro, layout, drawn), np.frombuffer(answer.data, np.int16))


def test_sampling_settings_reach_the_model(server, micro):
    """Greedy by two switches, as the field names of Nari's server say."""
    greedy = replace(
        SamplingSettings.from_defaults(micro.model.config.generation, ignore_eos=True),
        do_sample=False,
        predictor_do_sample=False,
    )

    answer = ask(server, body(TEXT, do_sample=False, subtalker_dosample=False))

    assert_same_sound(own_sound(micro, "streaming", greedy), np.frombuffer(answer.data, np.int16))


def test_a_streamed_wav_has_open_sizes_and_the_same_samples(server):
    """44 bytes with both sizes 0xFFFFFFFF, then the samples of the PCM reply."""
    plain = ask(server, body(TEXT))
    wav = ask(server, body(TEXT, response_format="wav"))

    assert ("audio/pcm", "audio/wav") == (
        plain.headers["Content-Type"],
        wav.headers["Content-Type"],
    )
    assert (0xFFFFFFFF, 0xFFFFFFFF) == (_size_at(wav, 4), _size_at(wav, 40))
    assert plain.data == wav.data[44:]


def test_a_whole_wav_has_exact_sizes(server):
    """The default of the fields that were left out: wav, not streamed."""
    fields = body(TEXT)
    del fields["stream"], fields["response_format"]

    wav = ask(server, fields)

    assert len(wav.data) == int(wav.headers["Content-Length"])
    assert (len(wav.data) - 8, len(wav.data) - 44) == (_size_at(wav, 4), _size_at(wav, 40))
    assert "length" == wav.headers["X-Finish-Reason"]


def _size_at(wav: Answer, offset: int) -> int:
    return int(struct.unpack_from("<I", wav.data, offset)[0])


def test_reply_headers_say_what_the_numbers_rest_on(server):
    """The client's id, rate, trimmed silence, the settings' hash, and the way to first sound."""
    answer = ask(server, body(TEXT), headers={"X-Request-Id": "mine-1"})
    profile = server.service.assembled.engine.profile
    timing = {
        name: float(value)
        for name, value in re.findall(r"(\w+);dur=([\d.]+)", answer.headers["Server-Timing"])
    }
    parts = ["text", "queue", "turn", "model", "deliver"]

    assert ("mine-1", "mine-1") == (
        answer.headers["X-Request-Id"],
        answer.headers["X-Nari-Request-ID"],
    )
    assert ("24000", "1", "0.000", profile.hash) == tuple(
        answer.headers[f"X-{name}"]
        for name in ("Sample-Rate", "Channels", "Trimmed-Ms", "Profile-Hash")
    )
    assert [*parts, "first_pcm"] == list(timing)
    assert timing["first_pcm"] == pytest.approx(sum(timing[name] for name in parts), abs=0.01)


def test_a_streamed_reply_asks_proxies_not_to_gather_it(server):
    """Common ones obey this header, and would otherwise deliver in bursts."""
    assert "no" == ask(server, body(TEXT)).headers["X-Accel-Buffering"]


def test_trimmed_silence_is_stated_and_exactly_what_is_missing(micro):
    """One codec frame is taken for silence: the trimmed stream is the untrimmed one without it."""
    profile = small_profile(leading_silence="trim", assume_silent_frames=1)

    async def both() -> tuple[Answer, Answer]:
        async with served(micro.folder, profile=profile) as server:
            trimmed = await _ask(server, body(TEXT))
            kept = await _ask(server, body(TEXT, skip_fixed_bootstrap_audio=False))
            return trimmed, kept

    trimmed, kept = asyncio.run(both())

    assert ("80.000", "0.000") == tuple(a.headers["X-Trimmed-Ms"] for a in (trimmed, kept))
    assert 2 * 1920 * NUM_FRAMES == len(kept.data)
    assert trimmed.data == kept.data[2 * 1920 :]


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({"stream_chunk_schedule": [1, 2, 4]}, [1, 2, 4]),
        ({"stream_chunk_frames": 3}, [3, 3, 1]),
        ({"stream_first_chunk_frames": 1}, [1, 4, 2]),
        ({"stream_first_chunk_frames": 1, "stream_steady_chunk_frames": 3}, [1, 3, 3]),
    ],
)
def test_the_request_names_its_chunks(server, fields, sizes):
    """Codec frames of each chunk, as the request's own story tells them."""
    answer = ask(server, body(TEXT, **fields))
    _, story = get(server, f"/v1/requests/{answer.headers['X-Request-Id']}")

    assert sizes == [chunk["codec_frames"] for chunk in story["chunks"]]


def test_the_story_of_a_request_can_be_asked_for(server):
    """Outcome, counts and timings by stage; a chunk's slack from the second on."""
    answer = ask(server, body(TEXT, stream_chunk_frames=2))
    status, story = get(server, f"/v1/requests/{answer.headers['X-Request-Id']}")

    assert 200 == status
    assert ("length", len(answer.data), 4, NUM_FRAMES) == (
        story["outcome"],
        story["audio_bytes_sent"],
        story["num_chunks_sent"],
        story["num_codec_frames"],
    )
    assert [True, False, False, False] == [c["slack_ms"] is None for c in story["chunks"]]
    assert story["min_slack_ms"] == min(c["slack_ms"] for c in story["chunks"][1:])
    assert story["at_ms"]["first_pcm"] <= story["at_ms"]["first_sent"] <= story["at_ms"]["ended"]


def test_an_unknown_request_has_no_story(server):
    """Or it is forgotten."""
    assert 404 == get(server, "/v1/requests/nobody")[0]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": " \n"}, "input"),
        ({"input": 5}, "input"),
        ({"input": "say <|im_end|> now"}, "input"),
        ({"voice": "nobody"}, "voice"),
        ({"language": "klingon"}, "language"),
        ({"model": "another"}, "model"),
        ({"response_format": "mp3"}, "response_format"),
        ({"speed": 1.5}, "speed"),
        ({"stream": "yes"}, "stream"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"top_p": 0}, "top_p"),
        ({"temperature": 0}, "temperature"),
        ({"max_new_tokens": 1}, "max_new_tokens"),
        ({"max_new_tokens": 40_000}, "max_new_tokens"),
        ({"instruct": "sad", "instructions": "glad"}, "instruct"),
        ({"stream_format": "sse"}, "stream_format"),
        ({"streem": True}, "streem"),
        ({"stream_chunk_frames": 0}, "stream_chunk_frames"),
        ({"stream_chunk_frames": 5}, "input"),
        ({"stream_chunk_schedule": [1], "stream_chunk_frames": 2}, "stream_chunk_schedule"),
        ({"top_k": 100}, "input"),
        ({"input": "hello " * 300, "max_new_tokens": 2_048}, "input"),
    ],
)
def test_what_can_never_be_said_is_422_before_any_sound(server, fields, param):
    """One line for a person, where both kinds of client library look for it."""
    answer = ask(server, body(TEXT) | fields)
    said = answer.json()

    assert 422 == answer.status
    assert (param, "invalid_request_error") == (said["error"]["param"], said["error"]["type"])
    assert said["detail"]
    assert "\n" not in said["error"]["message"]


def test_a_schema_fault_is_listed_by_place(server):
    """As FastAPI servers do: type, place, line, and what was found."""
    said = ask(server, body(TEXT, seed="seven")).json()

    assert [["body", "seed"]] == [fault["loc"] for fault in said["detail"]]
    assert {"type", "loc", "msg", "input"} == set(said["detail"][0])


@pytest.mark.parametrize(
    ("data", "content_type", "status"),
    [
        (b"{", "application/json", 422),
        (b"[]", "application/json", 422),
        (b'{"input": "\\ud800"}', "application/json", 422),
        (b"\xff\xfe", "application/json", 422),
        (b"[" * 100_000, "application/json", 422),
        (b"input=hello", "application/x-www-form-urlencoded", 415),
        (b'{"input": "' + b"a" * 1_100_000 + b'"}', "application/json", 413),
    ],
    ids=["cut", "array", "surrogate", "not utf-8", "deep", "form", "large"],
)
def test_a_body_that_is_no_request_is_refused(server, data, content_type, status):
    """Never a 5xx, whatever comes."""

    async def go() -> int:
        headers = {"Content-Type": content_type}
        async with (
            aiohttp.ClientSession() as client,
            client.post(server.base_url + PATH, data=io.BytesIO(data), headers=headers) as reply,
        ):
            return reply.status

    assert status == asyncio.run(go())


def test_a_text_longer_than_the_limit_is_413(server):
    """The limit is on characters; the body as a whole has its own."""
    assert 413 == ask(server, body("a" * 65_537)).status


def test_an_id_that_cannot_be_echoed_is_refused(server):
    """It would end up in headers, logs and addresses."""
    assert 422 == ask(server, body(TEXT), headers={"X-Request-Id": "a b"}).status


def test_an_id_may_be_used_twice_at_a_time(server):
    """Ids are the client's business; nothing inside depends on them."""

    async def go() -> list[Answer]:
        headers = {"X-Request-Id": "same"}
        asks = (_ask(server, body(TEXT), headers=headers) for _ in range(2))
        return await asyncio.gather(*asks)

    one, two = asyncio.run(go())

    assert (200, 200) == (one.status, two.status)
    assert len(one.data) == len(two.data)


def test_over_capacity_is_429_with_a_time_to_come_back(micro):
    """Two slots and one place to wait: the fourth is refused, the three are served."""

    async def go() -> list[Answer]:
        async with served(micro, profile=small_profile(max_waiting=1)) as server:
            await server.until_idle()
            asks = (_ask(server, body(TEXT, max_new_tokens=16)) for _ in range(4))
            return await asyncio.gather(*asks)

    answers = sorted(asyncio.run(go()), key=lambda answer: answer.status)

    assert [200, 200, 200, 429] == [answer.status for answer in answers]
    assert int(answers[-1].headers["Retry-After"]) >= 1
    # Lengths, not bytes: another batch rounds differently.
    assert 1 == len({len(answer.data) for answer in answers[:3]})


def test_over_capacity_is_said_before_the_body_is_read(micro):
    """The one slot is taken: whoever comes is refused on its head alone, whatever it would ask."""

    async def go() -> tuple[bytes, str]:
        async with served(micro, profile=small_profile(slots=1, max_waiting=0)) as server:
            holding = asyncio.create_task(_ask(server, body(TEXT, max_new_tokens=100)))
            await server.until(lambda: server.service.assembled.engine.num_in_system == 1)
            host, port = server.base_url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                f"POST {PATH} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
                "X-Request-Id: early\r\nContent-Length: 100000\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            writer.close()
            holding.cancel()
            entry = server.service.ledger.get("early")
            assert entry is not None
            await server.until_idle()
            return head, entry.outcome.value

    head, outcome = asyncio.run(go())

    assert b" 429 " in head.splitlines()[0]
    assert b"retry-after: " in head.lower()
    assert "refused" == outcome


def test_a_runaway_is_never_a_plain_success(micro):
    """The guard, not the client's own limit, ended it: the stream is cut, the whole is a 500."""
    profile = small_profile(guards={"min_frames": 5, "frames_per_character": 0.1})
    fields = body(TEXT, ignore_eos=False, max_new_tokens=100)

    async def go() -> tuple[Answer, Answer, str]:
        async with served(micro, profile=profile) as server:
            stream = await _ask(server, fields, headers={"X-Request-Id": "runaway"})
            whole = await _ask(server, fields | {"stream": False})
            story = server.service.ledger.get("runaway")
            assert story is not None
            return stream, whole, story.outcome.value

    stream, whole, outcome = asyncio.run(go())

    assert (True, "length") == (stream.is_cut, outcome)
    assert (500, "length") == (whole.status, whole.json()["error"]["code"])


def test_a_failure_after_the_first_sound_cuts_the_body(micro):
    """Whoever reads must not take the part for the whole."""

    async def go() -> Answer:
        async with served(micro) as server:
            fields, headers = body(TEXT, max_new_tokens=90), {"X-Request-Id": "doomed"}
            asking = asyncio.create_task(_ask(server, fields, headers=headers))
            await server.until(lambda: server.num_sent("doomed") > 0)
            await server.service.close()
            return await asking

    answer = asyncio.run(go())

    assert (200, True) == (answer.status, answer.is_cut)


def test_a_reader_that_stops_is_dropped_alone(micro):
    """It leaves more unread than it may; its neighbour gets all of its sound."""
    profile = small_profile(max_unread_bytes=4096)

    async def go() -> tuple[str, Answer]:
        async with served(micro, profile=profile, write_s=0.2, send_buffer_bytes=4096) as server:
            reader, writer = await _open_without_reading(server)
            neighbour = await _ask(server, body(TEXT))
            await server.until_idle()
            entry = server.service.ledger.get("sleeper")
            writer.close()
            del reader
            assert entry is not None
            return entry.outcome.value, neighbour

    outcome, neighbour = asyncio.run(go())

    assert "slow_reader" == outcome
    assert (200, 2 * 1920 * NUM_FRAMES) == (neighbour.status, len(neighbour.data))


async def _open_without_reading(
    server: Served,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    import socket

    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    host, port = server.base_url.removeprefix("http://").split(":")
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
    data = json.dumps(body(TEXT, max_new_tokens=100)).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        f"X-Request-Id: sleeper\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    await writer.drain()
    return reader, writer


def test_the_model_may_be_named(server):
    """As OpenAI's client library must."""
    assert 200 == ask(server, body(TEXT, model=MODEL_ID)).status


def test_openais_stream_format_streams(server):
    """Its only way of asking for a stream."""
    fields = body(TEXT, stream_format="audio")
    del fields["stream"]

    answer = ask(server, fields)

    assert "chunked" == answer.headers["Transfer-Encoding"]
