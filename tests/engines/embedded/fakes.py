"""A voice that says what it is told, step by step, and the real HTTP server around it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
from aiohttp import web

from engines.embedded.config import ServerConfig
from engines.embedded.server import bind_sockets, client_url, new_runner
from engines.embedded.service import Service, State
from engines.embedded.synthesiser import Step

__all__ = ["SAMPLE_RATE_HZ", "FakeVoice", "eventually", "running", "samples"]

SAMPLE_RATE_HZ = 1000
_PATIENCE_S = 5.0


def samples(num_samples: int, *, mark: int = 1) -> bytes:
    """That many s16le samples of one value; a sample is a millisecond."""
    return mark.to_bytes(2, "little") * num_samples


class FakeVoice:
    """Says the same script for every text; `log` holds each step as (text, place).

    With `is_gated`, a step waits until `permit` lets it go.
    """

    def __init__(
        self, script: Sequence[bytes | Exception] = (samples(100),), *, is_gated: bool = False
    ) -> None:
        self.sample_rate_hz = SAMPLE_RATE_HZ
        self.script = tuple(script)
        self.log: list[tuple[str, int]] = []
        self.is_gated = is_gated
        self._permits = threading.Semaphore(0)

    def permit(self, num_steps: int = 1) -> None:
        """Let that many steps, running or to come, end."""
        for _ in range(num_steps):
            self._permits.release()

    def open(self, text: str, *, speed: float) -> FakeUtterance:
        return FakeUtterance(self, text)

    def wait_for_permit(self) -> None:
        if self.is_gated:
            assert self._permits.acquire(timeout=_PATIENCE_S), "no permit came"


class FakeUtterance:
    """One text on its way through the script."""

    def __init__(self, voice: FakeVoice, text: str) -> None:
        self._voice = voice
        self._text = text
        self._place = 0

    def step(self) -> Step:
        place = self._place
        self._place += 1
        self._voice.log.append((self._text, place))
        self._voice.wait_for_permit()
        said = self._voice.script[place]
        if isinstance(said, Exception):
            raise said
        return Step(said, is_last=self._place == len(self._voice.script))


async def eventually(is_true: Callable[[], bool]) -> None:
    """Let the loop run until something holds; fails after some seconds."""
    async with asyncio.timeout(_PATIENCE_S):
        while not is_true():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def running(
    voice: FakeVoice, *, prepare: bool = True, **settings: object
) -> AsyncIterator[tuple[aiohttp.ClientSession, Service]]:
    """The server around `voice` on a port of its own, warmed up, and a client for it."""
    config = replace(ServerConfig(port=0), **settings)
    service = Service(config, lambda: voice, clock_ns=FrozenClock(), version="0")
    runner = new_runner(service)
    await runner.setup()
    (sock,) = bind_sockets("127.0.0.1", 0)
    await web.SockSite(runner, sock).start()
    if prepare:
        is_gated, voice.is_gated = voice.is_gated, False
        await service.prepare()
        assert service.state is State.READY
        voice.is_gated = is_gated
        voice.log.clear()
    try:
        async with aiohttp.ClientSession(client_url(sock)) as client:
            yield client, service
    finally:
        voice.permit(1000)
        service.close()
        await runner.cleanup()


class FrozenClock:
    """Time stands still, so that a deadline is the sum of what was sent."""

    def __call__(self) -> int:
        return 1_000_000_000
