"""Open connections to one origin, kept ready so that a request pays for none.

The pool is filled before the first request. A kept connection that the server closes is seen at
once (its reader is always on), taken out and replaced, so a request does not run into it; one that
is closed in the very moment of its use is the request's `stale_connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from engines.base import Closed, Event
from harness.wire.connection import ConnectionInfo, Stamp, WireFailure
from harness.wire.http import HttpConnection, HttpOptions
from harness.wire.http_message import Origin

__all__ = ["HttpPool", "PoolStats"]


@dataclass(slots=True)
class PoolStats:
    """What happened to connections, for the self-check."""

    num_opened: int = 0
    num_reused: int = 0
    num_closed_idle: int = 0
    num_failed: int = 0
    failures: list[str] = field(default_factory=list)


class _Opener:
    """Opens one connection for nobody, and keeps it."""

    def __init__(self, pool: HttpPool, on_done: Callable[[], None]) -> None:
        self._pool = pool
        self._on_done = on_done
        self.connection: HttpConnection | None = None

    def on_open(self, _info: ConnectionInfo) -> None:
        assert self.connection is not None
        self.connection.make_idle()
        self._on_done()

    def on_event(self, _event: Event, _stamp: Stamp) -> None:
        raise AssertionError("nothing was asked")

    def on_end(self, failure: WireFailure, _stamp: Stamp, _closed: Closed) -> None:
        self._pool.note_failure(failure.text)
        self._on_done()


class HttpPool:
    """Connections of one origin, last used first.

    `size` is how many are kept open (0: every request connects); more are opened when all are
    busy, and kept too.
    """

    # A server that is down must not be knocked at without end.
    _MAX_FAILURES = 3

    def __init__(self, origin: Origin, options: HttpOptions, *, size: int) -> None:
        self._origin = origin
        self._options = options
        self._size = size
        self._idle: list[HttpConnection] = []
        self._all: set[HttpConnection] = set()
        self._num_failures = 0
        self._is_closed = False
        self._is_filled = False
        self.stats = PoolStats()

    @property
    def num_idle(self) -> int:
        """Connections that are open and free."""
        return len(self._idle)

    async def fill(self, timeout_s: float | None) -> None:
        """Open the pool's connections; ones that fail or are late are counted, not raised."""
        missing = self._size - len(self._all)
        done: asyncio.Queue[None] = asyncio.Queue()
        for _ in range(missing):
            self._open_ahead(lambda: done.put_nowait(None))
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(missing):
                    await done.get()
        except TimeoutError:
            for connection in self._all.difference(self._idle):
                self.note_failure(f"no connection to {self._origin} after {timeout_s} s")
                connection.abort()
        self._is_filled = True

    def take(self) -> HttpConnection:
        """A warm connection, or a new one that has yet to connect."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_warm and not connection.is_expired:
                self.stats.num_reused += 1
                return connection
            connection.abort()
        return self._new()

    def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        for connection in list(self._all):
            connection.abort()

    def note_failure(self, text: str) -> None:
        """A connection opened ahead did not come about."""
        self.stats.num_failed += 1
        self._num_failures += 1
        if len(self.stats.failures) < self._MAX_FAILURES:
            self.stats.failures.append(text)

    def _new(self) -> HttpConnection:
        connection = HttpConnection(
            self._origin, self._options, on_idle=self._on_idle, on_gone=self._on_gone
        )
        self._all.add(connection)
        self.stats.num_opened += 1
        return connection

    def _open_ahead(self, on_done: Callable[[], None]) -> None:
        opener = _Opener(self, on_done)
        opener.connection = self._new()
        opener.connection.open(opener)

    def _on_idle(self, connection: HttpConnection) -> None:
        self._num_failures = 0
        if self._is_closed or not self._options.keep_alive:
            connection.abort()
        else:
            self._idle.append(connection)

    def _on_gone(self, connection: HttpConnection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
            self.stats.num_closed_idle += 1
        if self._is_filled and not self._is_closed and len(self._all) < self._size:
            # Later, off the path of whatever closed it.
            self._options.pacer.at(self._options.clock.now_ns(), self._replace)

    def _replace(self) -> None:
        is_short = len(self._all) < self._size
        if is_short and not self._is_closed and self._num_failures < self._MAX_FAILURES:
            self._open_ahead(lambda: None)
