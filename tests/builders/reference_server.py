"""The reference engine's server inside of a test: in this process, and as one of its own."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from reference_engine.assemble import AssembledEngine, assemble
from reference_engine.clock import MonotonicClock
from reference_engine.config import Profile
from reference_engine.delivery import ThreadDelivery
from reference_engine.engine import Engine
from reference_engine.messages import Job
from reference_engine.model_runner import ModelPrompt
from reference_engine.server.app import build_app
from reference_engine.server.process import new_runner
from reference_engine.server.service import Service
from reference_engine.server.settings import ServerSettings
from reference_engine.server.sockets import bind, local_url
from tests.builders.checkpoints import Loaded
from tests.builders.engine import ScriptedRunner, Speech
from tests.builders.model_engine import settings

MODEL_ID = "random-micro"
PATH = "/v1/audio/speech"
WS_PATH = "/v1/audio/speech/ws"
NUM_FRAMES = 7
NOTHING_HELD = dict.fromkeys(("slots", "positions", "queue", "delivery", "system", "open"), 0)


def small_profile(**overrides: Any) -> Profile:
    """Few slots, few shapes, room for a short sentence; noise keeps its silence.

    Nothing is paced: a test does not wait for a listener to play what it has.
    """
    return settings(
        **{
            "slots": 2,
            "max_waiting": 4,
            "positions_per_slot": 128,
            "prefix_kv": False,
            "pacing": {"max_lead_s": 1e4, "start_slack_ms": 1e7, "margin_ms": 20.0},
            **overrides,
        }
    )


def body(text: str = "hello the user said", **fields: Any) -> dict[str, Any]:
    """A request that runs to its own limit: random weights never end by themselves."""
    return {
        "input": text,
        "voice": "ryan",
        "response_format": "pcm",
        "stream": True,
        "ignore_eos": True,
        "max_new_tokens": NUM_FRAMES + 1,
        "non_streaming_mode": False,
        **fields,
    }


def start(**fields: Any) -> dict[str, Any]:
    """The first message of a session, for the same speech."""
    return {
        "type": "request.start",
        "voice": "ryan",
        "ignore_eos": True,
        "max_new_tokens": NUM_FRAMES + 1,
        **fields,
    }


@dataclass
class Served:
    """A server on this test's event loop."""

    service: Service
    base_url: str

    @property
    def ws_url(self) -> str:
        return self.base_url.replace("http://", "ws://") + WS_PATH

    def held(self) -> dict[str, int]:
        """Everything that must be zero when nobody is left."""
        engine = self.service.assembled.engine
        return {
            "slots": engine.admission.num_active,
            "positions": engine.admission.positions_held,
            "queue": len(engine.admission.queue),
            "delivery": engine.router.num_streams,
            "system": engine.num_in_system,
            "open": self.service.num_open,
        }

    def service_routes(self) -> set[tuple[str, str]]:
        """Method and path of everything that is served."""
        return {
            (route.method, route.resource.canonical)
            for route in build_app(self.service).router.routes()
            if route.resource is not None and route.method != "HEAD"
        }

    def num_sent(self, request_id: str) -> int:
        """Chunks sent so far for a request."""
        entry = self.service.ledger.get(request_id)
        return 0 if entry is None else entry.num_chunks_sent

    async def until(self, is_so: Callable[[], bool], *, within_s: float = 10.0) -> None:
        """Wait for something that other threads bring about."""
        async with asyncio.timeout(within_s):
            while not is_so():
                await asyncio.sleep(0.002)

    async def until_idle(self) -> None:
        await self.until(lambda: self.held() == NOTHING_HELD)


class _PassingTime(MonotonicClock):
    """The real clock, in which a step takes its time."""

    def advance(self, duration_ns: int) -> None:
        time.sleep(duration_ns / 1e9)


class FakeRunner(ScriptedRunner):
    """Takes the jobs of the server and speaks loud noise of the length that they allow."""

    def __init__(self, profile: Profile, *, step_ms: float) -> None:
        super().__init__(profile, _PassingTime(), step_ns=int(step_ms * 1e6))  # type: ignore[arg-type]
        self._num_jobs = itertools.count(1)

    def job(
        self,
        request_id: str,
        prompt: ModelPrompt,
        *,
        num_characters: int,
        max_new_tokens: int,
        is_text_complete: bool = True,
    ) -> Job:
        return Job(
            request_id=request_id,
            prompt=Speech(key=next(self._num_jobs), num_codec_frames=10_000),
            num_prompt_positions=10,
            num_prefill_positions=0,
            num_text_tokens=len(prompt.prompt.text_rows),
            is_text_complete=is_text_complete,
            num_characters=num_characters,
            max_new_tokens=max_new_tokens,
            ignore_eos=prompt.sampling.ignore_eos,
        )

    def append_text(self, slot: int, tokens: object, *, is_end: bool) -> None:
        assert isinstance(tokens, tuple)
        super().append_text(slot, len(tokens), is_end=is_end)


def fake_engine(
    loaded: Loaded, profile: Profile | None = None, *, step_ms: float = 1.0
) -> AssembledEngine:
    """A real engine whose model costs `step_ms` a step and says nothing that means anything."""
    chosen = profile or small_profile()
    runner = FakeRunner(chosen, step_ms=step_ms)
    engine = Engine(chosen, runner, MonotonicClock(), make_delivery=ThreadDelivery)
    return AssembledEngine(engine, runner, loaded.model, loaded.tokenizer, loaded.prompts)  # type: ignore[arg-type]


@asynccontextmanager
async def served(
    source: Path | Loaded,
    *,
    profile: Profile | None = None,
    load: Callable[[], AssembledEngine] | None = None,
    is_prepared: bool = True,
    send_buffer_bytes: int | None = None,
    **fields: Any,
) -> AsyncIterator[Served]:
    """Serve on a port the system chooses, warm unless told otherwise.

    A folder is served for real; of what is loaded already only names and tokenizer are used, and a
    fake model speaks.
    """
    chosen = replace(ServerSettings(MODEL_ID), **fields)
    clock = MonotonicClock()

    def build() -> AssembledEngine:
        if isinstance(source, Path):
            return assemble(source, profile or small_profile(), clock=clock)
        return fake_engine(source, profile)

    service = Service(
        chosen,
        load or build,
        clock=clock,
        version="0.0.0",
    )
    (sock,) = bind("127.0.0.1", 0)
    if send_buffer_bytes is not None:  # accepted connections inherit it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    runner = new_runner(service)
    await runner.setup()
    try:
        await web.SockSite(runner, sock).start()
        if is_prepared:
            await service.prepare()
        yield Served(service, local_url(sock))
    finally:
        await service.close()
        await runner.cleanup()


@contextmanager
def serving_thread(folder: Path, **fields: Any) -> Iterator[Served]:
    """The same on a loop in a thread of its own, for clients that block."""
    ready: list[Served] = []
    is_up, stop_box = threading.Event(), []

    async def live() -> None:
        stop = asyncio.Event()
        stop_box.append((asyncio.get_running_loop(), stop))
        try:
            async with served(folder, **fields) as server:
                ready.append(server)
                is_up.set()
                await stop.wait()
        finally:
            is_up.set()

    thread = threading.Thread(target=lambda: asyncio.run(live()), name="server")
    thread.start()
    try:
        assert is_up.wait(60)
        assert ready, "the server did not come up"
        yield ready[0]
    finally:
        loop, stop = stop_box[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join()


@dataclass
class Session:
    """One end of a `nari.speech.v1` session, message by message."""

    socket: aiohttp.ClientWebSocketResponse
    audio: bytes = b""
    num_chunks: int = 0
    messages: list[dict[str, Any]] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.messages = []

    async def say(self, **message: Any) -> None:
        await self.socket.send_str(json.dumps(message))

    async def append(self, sequence: int, text: str) -> None:
        await self.say(type="input_text.append", sequence=sequence, text=text)

    async def end(self, sequence: int) -> None:
        await self.say(type="input_text.end", sequence=sequence)

    async def hear(self, kind: str | None = None) -> dict[str, Any]:
        """Read on to a message of this kind (any where None), keeping audio on the way."""
        async with asyncio.timeout(20):
            while True:
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.BINARY:
                    self.audio += message.data
                    self.num_chunks += 1
                    continue
                assert message.type is aiohttp.WSMsgType.TEXT, f"closed: {self.socket.close_code}"
                said = json.loads(message.data)
                self.messages.append(said)
                if kind is None or said["type"] == kind:
                    return dict(said)

    async def hear_audio(self, *, num_bytes: int = 1) -> None:
        """Read on until so much audio has come."""
        async with asyncio.timeout(20):
            while len(self.audio) < num_bytes:
                message = await self.socket.receive()
                assert not self.socket.closed, f"closed: {self.messages}"
                if message.type is aiohttp.WSMsgType.BINARY:
                    self.audio += message.data
                    self.num_chunks += 1
                else:
                    self.messages.append(json.loads(message.data))

    async def hear_close(self) -> int:
        """Read on to the end; the close code."""
        async with asyncio.timeout(20):
            while not self.socket.closed:
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.TEXT:
                    self.messages.append(json.loads(message.data))
                elif message.type is aiohttp.WSMsgType.BINARY:
                    self.audio += message.data
                    self.num_chunks += 1
        return self.socket.close_code or 0


@asynccontextmanager
async def session(
    client: aiohttp.ClientSession, server: Served, *, start_with: dict[str, Any] | None = None
) -> AsyncIterator[Session]:
    """Connect and, unless told otherwise, get the settings accepted."""
    async with client.ws_connect(server.ws_url, protocols=("nari.speech.v1",)) as socket:
        talk = Session(socket)
        await talk.hear("session.created")
        await talk.say(**(start_with or start()))
        yield talk


@dataclass(frozen=True)
class ServerProcess:
    """A server in a process of its own."""

    url: str
    process: subprocess.Popen[bytes]
    stderr_path: Path


@contextmanager
def server_process(
    arguments: list[str], *, folder: Path, ready_s: float = 60.0
) -> Iterator[ServerProcess]:
    """Start `python -m reference_engine.server`, wait until it is ready, and stop it."""
    command = [sys.executable, "-P", "-m", "reference_engine.server", "--port=0", "--threads=1"]
    stderr_path = folder / "stderr.txt"
    with stderr_path.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--stop-on-stdin-eof", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        assert process.stdout is not None
        has_line, _, _ = select.select([process.stdout], [], [], ready_s)
        line = process.stdout.readline() if has_line else b""
        assert line, stderr_path.read_text()
        yield ServerProcess(json.loads(line)["url"], process, stderr_path)
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
