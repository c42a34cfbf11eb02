# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's life: loading, warming, ready, draining; and the pool once there is a voice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from engines.embedded.config import ServerConfig
from engines.embedded.ledger import Ledger
from engines.embedded.pool import PoolLimits, SynthesisPool
from engines.embedded.scheduler import POLICIES
from engines.embedded.synthesiser import Synthesiser

__all__ = ["LoadedVoice", "Service", "State"]

# Long enough to pass through every chunk size of a sentence, and a second sentence after it.
_WARM_UP_TEXT = "The quick brown fox jumps over the lazy dog and then it rests. All is well now."


class State(StrEnum):
    """Where the server stands; speech is served in `READY` only."""

    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


_REASONS = {
    State.LOADING: "the voice is being loaded",
    State.WARMING: "the voice is loaded and makes its first sentence",
    State.READY: "",
    State.DRAINING: "the server is shutting down",
    State.FAILED: "the voice could not be loaded",
}


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    """What exists from the end of loading on."""

    synthesiser: Synthesiser
    pool: SynthesisPool


class Service:
    """Owns the state of one server; lives on the event loop."""

    def __init__(
        self,
        config: ServerConfig,
        load: Callable[[], Synthesiser],
        *,
        clock_ns: Callable[[], int],
        version: str,
    ) -> None:
        self.config = config
        self.ledger = Ledger(config.stats_capacity)
        self.clock_ns = clock_ns
        self.version = version
        self._load = load
        self._state = State.LOADING
        self._loaded: LoadedVoice | None = None

    @property
    def state(self) -> State:
        """Where the server stands now."""
        return self._state

    @property
    def reason(self) -> str:
        """Why speech is not served now, empty where it is."""
        return _REASONS[self._state]

    @property
    def voice(self) -> LoadedVoice:
        """The voice and its threads; only once the server is ready."""
        assert self._loaded is not None
        return self._loaded

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return self._loaded.pool.num_open if self._loaded else 0

    async def prepare(self) -> None:
        """Load the voice off the loop and speak one text, then serve.

        Raises:
            EmbeddedError: the voice or its cache cannot be used.
        """
        try:
            synthesiser = await asyncio.get_running_loop().run_in_executor(None, self._load)
            self._loaded = LoadedVoice(synthesiser, self._new_pool(synthesiser))
            if self._state is State.LOADING:
                self._state = State.WARMING
            await self._warm_up(self._loaded)
        except BaseException:
            self._state = State.FAILED
            raise
        if self._state is State.WARMING:
            self._state = State.READY

    def begin_draining(self) -> None:
        """Take no new request; those in progress go on."""
        self._state = State.DRAINING

    def close(self) -> None:
        """Begin no further inference."""
        if self._loaded:
            self._loaded.pool.close()

    def _new_pool(self, synthesiser: Synthesiser) -> SynthesisPool:
        limits = PoolLimits(
            num_workers=self.config.num_workers,
            max_open=self.config.max_open,
            max_unsent_bytes=self.config.max_unsent_bytes,
        )
        return SynthesisPool(
            limits,
            POLICIES[self.config.policy],
            sample_rate_hz=synthesiser.sample_rate_hz,
            clock_ns=self.clock_ns,
        )

    async def _warm_up(self, loaded: LoadedVoice) -> None:
        job = loaded.pool.submit(loaded.synthesiser.open(_WARM_UP_TEXT, speed=1.0))
        try:
            while await loaded.pool.next_chunk(job) is not None:
                pass
        finally:
            loaded.pool.release(job)
