"""`nari.speech.v1`: order of messages, sequence, cancelling at any time, errors and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import numpy as np
import pytest

from reference_engine.model.sampling import SamplingSettings
from reference_engine.server.settings import LiveLimits, StartRule, StartSettings
from tests.builders.checkpoints import speak
from tests.builders.model_engine import assert_same_sound, pcm
from tests.builders.reference_server import (
    NUM_FRAMES,
    Served,
    Session,
    served,
    session,
    small_profile,
    start,
)

TEXT = "hello the user said"
Talk = Callable[[Session], Awaitable[Any]]


def talk_to(server: Served, talk: Talk, *, start_with: dict[str, Any] | None = None) -> Any:
    """Hold one session."""

    async def go() -> Any:
        async with (
            aiohttp.ClientSession() as client,
            session(client, server, start_with=start_with) as one,
        ):
            return await talk(one)

    return asyncio.run(go())


def talk_to_new(
    folder: Any,
    talk: Callable[[Session, Served], Awaitable[Any]],
    *,
    start_with: dict[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """Hold one session with a server of its own."""

    async def go() -> Any:
        async with (
            served(folder, **fields) as server,
            aiohttp.ClientSession() as client,
            session(client, server, start_with=start_with) as one,
        ):
            return await talk(one, server)

    return asyncio.run(go())


async def _say_all(talk: Session, pieces: list[str]) -> int:
    for sequence, piece in enumerate(pieces):
        await talk.append(sequence, piece)
    await talk.end(len(pieces))
    return await talk.hear_close()


@pytest.mark.parametrize(
    "pieces", [[TEXT], ["hello ", "the ", "user ", "said"], list(TEXT)], ids=["whole", "words", "1"]
)
def test_the_audio_does_not_depend_on_how_the_text_is_cut(server, micro, pieces):
    """It is the engine's own sound of the whole text, seed for seed."""
    drawn = SamplingSettings.from_defaults(micro.model.config.generation, seed=5, ignore_eos=True)
    codes = speak(micro, micro.prompt(TEXT), drawn, num_frames=NUM_FRAMES)

    async def talk(one: Session) -> tuple[int, Session]:
        return await _say_all(one, pieces), one

    code, one = talk_to(server, talk, start_with=start(seed=5))

    assert 1000 == code
    assert_same_sound(pcm(micro, codes), np.frombuffer(one.audio, np.int16))


def test_messages_come_in_the_order_that_clients_rely_on(server):
    """Acknowledged in sequence; `started` before the acknowledgement of what started it."""

    async def talk(one: Session) -> Session:
        await one.hear("request.configured")
        await one.append(0, "hel")
        held = await one.hear("input_text.ack")
        assert (0, None) == (held["sequence"], held["request_id"])
        await one.append(1, "lo the")
        await one.hear("input_text.ack")
        await one.end(2)
        await one.hear_close()
        return one

    one = talk_to(server, talk)
    kinds = [message["type"] for message in one.messages]
    done = one.messages[-1]

    assert [
        "session.created",
        "request.configured",
        "input_text.ack",
        "response.started",
        "input_text.ack",
        "input_text.ack",
        "response.done",
    ] == kinds
    assert one.messages[3]["request_id"] == one.messages[4]["request_id"] == done["request_id"]
    assert ("length", one.num_chunks) == (done["stop_reason"], done["audio_chunks"])
    assert one.messages[0] == {
        "type": "session.created",
        "protocol": "nari.speech.v1",
        "audio": {"encoding": "pcm_s16le", "sample_rate": 24_000, "channels": 1},
    }


@pytest.mark.parametrize("offered", [(), ("other",)])
def test_a_client_of_another_protocol_is_upgraded_and_closed(server, offered):
    """With 1002: connected proves nothing."""

    async def go() -> int | None:
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(server.ws_url, protocols=offered) as socket,
        ):
            await socket.receive(timeout=5)
            return socket.close_code

    assert 1002 == asyncio.run(go())


def test_plain_http_on_the_sessions_path_is_told_so(server):
    """426, as a client that forgot to upgrade needs to hear."""

    async def go() -> int:
        url = server.ws_url.replace("ws://", "http://")
        async with aiohttp.ClientSession() as client, client.get(url) as reply:
            return reply.status

    assert 426 == asyncio.run(go())


APPEND = {"type": "input_text.append", "sequence": 0, "text": "hello "}
END = {"type": "input_text.end", "sequence": 1}


@pytest.mark.parametrize(
    ("messages", "code", "close_code"),
    [
        ([APPEND | {"sequence": 1}], "invalid_sequence", 1008),
        ([APPEND, APPEND], "invalid_sequence", 1008),
        ([APPEND, END | {"sequence": 0}], "invalid_sequence", 1008),
        ([{"type": "input_text.commit"}], "unknown_event", 1008),
        ([{"type": 7}], "unknown_event", 1008),
        ([start()], "invalid_request", 1008),
        ([APPEND | {"extra": 1}], "invalid_request", 1008),
        ([APPEND | {"text": ""}], "invalid_request", 1008),
        ([APPEND | {"sequence": "0"}], "invalid_request", 1008),
        ([{"type": "response.cancel", "request_id": "x"}], "invalid_request", 1008),
        ([END | {"sequence": 0}], "empty_input", 1008),
        ([APPEND | {"text": "  \n"}, END], "empty_input", 1008),
        ([APPEND | {"text": "a <|im_"}, APPEND | {"sequence": 1, "text": "end|> b"}],
         "invalid_text", 1008),
        ([APPEND | {"text": "a" * 70_000}], "input_too_large", 1009),
        ([APPEND | {"sequence": n, "text": "a" * 40_000} for n in range(2)],
         "input_too_large", 1009),
        ([APPEND | {"sequence": n, "text": " "} for n in range(1_025)],
         "too_many_input_events", 1008),
    ],
)  # fmt: skip
def test_a_wrong_message_is_named_and_ends_the_session(server, messages, code, close_code):
    """An error message, then the close code that goes with it; nothing is left behind."""

    async def talk(one: Session) -> tuple[dict[str, Any], int]:
        await one.hear("request.configured")
        for message in messages:
            await one.say(**message)
        error = await one.hear("error")
        return error, await one.hear_close()

    error, closed = talk_to(server, talk)

    assert (code, close_code) == (error["error"]["code"], closed)
    assert {"type", "code", "message"} == set(error["error"])


@pytest.mark.parametrize("raw", ["{", "[1]", "7", '"x"', "", "[" * 50_000, '{"type": "response.'])
def test_what_is_no_message_is_an_invalid_request(server, raw):
    """Text that is not a JSON object."""

    async def talk(one: Session) -> tuple[str, int]:
        await one.socket.send_str(raw)
        error = await one.hear("error")
        return error["error"]["code"], await one.hear_close()

    assert ("invalid_request", 1008) == talk_to(server, talk)


def test_binary_from_the_client_is_an_invalid_request(server):
    """The protocol has no binary in that direction."""

    async def talk(one: Session) -> str:
        await one.socket.send_bytes(b"\0")
        return str((await one.hear("error"))["error"]["code"])

    assert "invalid_request" == talk_to(server, talk)


@pytest.mark.parametrize(
    "fields",
    [
        {"voice": "nobody"},
        {"language": "klingon"},
        {"model": "another"},
        {"response_format": "wav"},
        {"input": "hello"},
        {"stream": True},
        {"speed": 1.0},
        {"non_streaming_mode": False},
        {"top_k": 100},
        {"stream_chunk_frames": 5},
        {"instruct": "sad", "instruction": "sad"},
    ],
)
def test_settings_that_cannot_be_served_are_refused_before_any_text(server, fields):
    """`request.configured` means that only the text can still go wrong."""

    async def talk(one: Session) -> list[str]:
        await one.hear("error")
        await one.hear_close()
        return [message["type"] for message in one.messages]

    assert ["session.created", "error"] == talk_to(server, talk, start_with=start(**fields))


def test_text_before_the_settings_is_an_invalid_request(server):
    """`request.start` comes first."""

    async def talk(one: Session) -> str:
        return str((await one.hear("error"))["error"]["code"])

    assert "invalid_request" == talk_to(server, talk, start_with=APPEND)


@pytest.mark.parametrize("when", ["before the settings", "before text", "mid-stream", "after end"])
def test_cancel_works_at_any_time(micro, when):
    """The end says so, counts what was sent, and the slot is free again."""

    async def talk(one: Session, server: Served) -> tuple[dict[str, Any], int]:
        if when != "before the settings":
            await one.hear("request.configured")
        if when in ("mid-stream", "after end"):
            await one.append(0, TEXT + " ")
        if when == "after end":
            await one.end(1)
        if when in ("mid-stream", "after end"):
            await one.hear_audio()
        await one.say(type="response.cancel")
        done = await one.hear("response.done")
        code = await one.hear_close()
        assert one.num_chunks == done["audio_chunks"]
        await server.until_idle()
        return done, code

    async def go() -> Any:
        async with served(micro) as server, aiohttp.ClientSession() as client:
            first = {"type": "response.cancel"} if when == "before the settings" else None
            opening = first or start(max_new_tokens=100)
            async with session(client, server, start_with=opening) as one:
                if first:
                    done = await one.hear("response.done")
                    return done, await one.hear_close()
                return await talk(one, server)

    done, code = asyncio.run(go())

    assert ("cancelled", 1000) == (done["stop_reason"], code)


def test_a_request_that_has_spoken_its_text_waits_for_more(micro):
    """No padding is fed: exactly as many codec frames as there are stable tokens, then a pause."""
    num_stable = len(micro.tokenizer.encode("one two"))  # the last word may still grow

    async def talk(one: Session, server: Served) -> tuple[int, bool, int]:
        await one.append(0, "one two three")
        await one.hear_audio(num_bytes=2 * 1920 * num_stable)
        heard = len(one.audio)
        is_waiting = 1 == server.service.assembled.engine.admission.num_active
        await one.end(1)
        await one.hear_close()
        return heard, is_waiting, len(one.audio)

    heard, is_waiting, total = talk_to_new(
        micro, talk, start_with=start(max_new_tokens=num_stable + 6)
    )

    assert (2 * 1920 * num_stable, True) == (heard, is_waiting)
    assert 2 * 1920 * (num_stable + 5) == total


def test_speech_that_reaches_its_limit_before_the_text_ends_says_so(server):
    """`live_input_closed`: what was not spoken is not a success."""

    async def talk(one: Session) -> tuple[dict[str, Any], int]:
        await one.append(0, "one of these and one more of these and another one ")
        error = await one.hear("error")
        return error["error"], await one.hear_close()

    error, code = talk_to(server, talk, start_with=start(max_new_tokens=4))

    assert ("live_input_closed", "generation_error", 1000) == (error["code"], error["type"], code)


def test_a_client_that_falls_silent_is_let_go(micro):
    """Before the text ended; the limit is on the time between messages."""

    async def talk(one: Session, server: Served) -> tuple[str, int]:
        await one.append(0, "hello ")
        error = await one.hear("error")
        code = await one.hear_close()
        await server.until_idle()
        return error["error"]["code"], code

    assert ("input_timeout", 1008) == talk_to_new(
        micro, talk, live=replace(LiveLimits(), idle_s=0.05)
    )


def test_a_clause_is_waited_for_where_the_start_rule_says_so(micro):
    """Nothing is started by words alone; the comma and its blank start it."""
    rule = StartSettings(StartRule.CLAUSE, max_tokens=100, max_wait_s=100.0)

    async def talk(one: Session, server: Served) -> tuple[Any, Any]:
        await one.append(0, "yes the user said no ")
        words = await one.hear("input_text.ack")
        await one.append(1, "one, ")
        clause = await one.hear("input_text.ack")
        await one.end(2)
        await one.hear_close()
        return words["request_id"], clause["request_id"]

    words, clause = talk_to_new(micro, talk, start=rule)

    assert words is None
    assert clause is not None


def test_a_start_rule_gives_up_after_its_longest_wait(micro):
    """No boundary comes, and neither does more text: speech begins anyhow."""
    rule = StartSettings(StartRule.SENTENCE, max_tokens=100, max_wait_s=0.03)

    async def talk(one: Session, server: Served) -> str:
        await one.append(0, "yes the user said no ")
        started = await one.hear("response.started")
        return str(started["type"])

    assert "response.started" == talk_to_new(micro, talk, start=rule)


def test_sessions_are_bounded_like_requests(micro):
    """A slot and a place to wait: the third connection is 429 with a time to come back."""

    async def go() -> tuple[int, str]:
        profile = small_profile(slots=1, max_waiting=1)
        async with (
            served(micro, profile=profile) as server,
            aiohttp.ClientSession() as client,
            session(client, server),
            session(client, server),
        ):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(server.ws_url, protocols=("nari.speech.v1",))
            headers = refused.value.headers
            return refused.value.status, headers["Retry-After"] if headers else ""

    assert (429, "1") == asyncio.run(go())
