"""The server's life: loading, warming, ready, draining; and the engine once there is one."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable
from enum import StrEnum

from reference_engine.assemble import AssembledEngine, rehearse, warm_up
from reference_engine.clock import NS_PER_MS, Clock
from reference_engine.server.ledger import Entry, Ledger, Outcome, stage_times
from reference_engine.server.metrics import Metrics
from reference_engine.server.replies import ReplyError
from reference_engine.server.settings import ServerSettings

__all__ = ["Service", "State"]

_REQUESTS = logging.getLogger("reference_engine.requests")
NOT_READY_RETRY_S = 1.0


class State(StrEnum):
    """Where the server stands; speech is served in `READY` only."""

    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


_REASONS = {
    State.LOADING: "weights are being loaded and graphs captured",
    State.WARMING: "every shape is run, prefixes are stored and one real request is served",
    State.READY: "",
    State.DRAINING: "the server is shutting down",
    State.FAILED: "the engine is not running; see the log",
}


class Service:
    """Owns the state of one server; lives on the event loop.

    Args:
        settings: of the service.
        load: builds the engine; called in a worker thread.
        clock: the engine's own, so that its moments and ours compare.
        version: of this software.
    """

    def __init__(
        self,
        settings: ServerSettings,
        load: Callable[[], AssembledEngine],
        *,
        clock: Clock,
        version: str,
    ) -> None:
        self.settings, self.clock, self.version = settings, clock, version
        self.ledger = Ledger(settings.num_remembered)
        self.metrics = Metrics()
        self.num_open = 0
        self._load = load
        self._state = State.LOADING
        self._assembled: AssembledEngine | None = None

    @property
    def state(self) -> State:
        """Where the server stands now."""
        if self._state is State.READY and not self.assembled.engine.is_alive:
            return State.FAILED  # its device was lost
        return self._state

    @property
    def reason(self) -> str:
        """Why speech is not served now, empty where it is."""
        return _REASONS[self.state]

    @property
    def assembled(self) -> AssembledEngine:
        """The engine and its model; only from the end of loading on."""
        assert self._assembled is not None
        return self._assembled

    async def prepare(self) -> None:
        """Load off the loop, serve one real request, then be ready.

        Raises:
            ReferenceEngineError: the checkpoint or the device cannot be used.
        """
        loop = asyncio.get_running_loop()
        try:
            self._assembled = assembled = await loop.run_in_executor(None, self._load)
            if self._state is State.LOADING:
                self._state = State.WARMING
            await loop.run_in_executor(None, rehearse, assembled, self.clock)
            await loop.run_in_executor(
                None, lambda: warm_up(assembled, timeout_s=self.settings.warm_up_s)
            )
        except BaseException:
            self._state = State.FAILED
            raise
        self.metrics.watch(assembled.engine)
        if self._state is State.WARMING:
            self._state = State.READY

    def begin_draining(self) -> None:
        """Take no new request; those in progress go on."""
        self._state = State.DRAINING

    async def close(self) -> None:
        """End whoever is left, stop the engine's threads and free the device."""
        self._state = State.DRAINING
        if self._assembled is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._assembled.close)

    def check_ready(self) -> None:
        """Raise the 503 of a server that cannot speak now."""
        state = self.state
        if state is not State.READY:
            raise ReplyError(
                503,
                f"not ready ({state.value}): {self.reason}",
                code=state.value,
                retry_after_s=NOT_READY_RETRY_S,
            )

    def check_model(self, model: str | None) -> None:
        """Raise the 422 of a request for another model."""
        served = self.settings.model_id
        if model is not None and model != served:
            text = f"model: {ascii(model)[:80]} is not served here; ask for '{served}' or leave out"
            raise ReplyError(422, text, code="unknown_model", param="model")

    def open(self, entry: Entry) -> None:
        """A request begins; `close_entry` must follow."""
        self.num_open += 1
        self.ledger.add(entry)

    def close_entry(self, entry: Entry) -> None:
        """A request is over: note the moment, count it, write its one log line."""
        self.num_open -= 1
        entry.ended_ns = self.clock.now_ns()
        entry.fail(Outcome.FAILED, "ended without a reason")
        self.metrics.count(entry)
        # Neither the text nor any header: what a caller says and its key are its own.
        line = {
            "request_id": entry.request_id,
            "transport": entry.transport.value,
            "outcome": entry.outcome.value,
            "reason": entry.text,
            "num_characters": entry.num_characters,
            "num_chunks": entry.num_chunks_sent,
            "audio_bytes": entry.audio_bytes_sent,
            "total_ms": round((entry.ended_ns - entry.received_ns) / NS_PER_MS, 3),
            **{f"{name}_ms": round(value, 3) for name, value in stage_times(entry)},
        }
        _REQUESTS.info("%s", json.dumps(line))

    @staticmethod
    def new_id(prefix: str) -> str:
        """An id that no other request of any server has."""
        return f"{prefix}-{uuid.uuid4().hex}"
