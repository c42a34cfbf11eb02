"""The wire of one point or one call: what all its connections share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from engines.base import HttpTarget, ProcessTarget, Target, TcpTarget, WebSocketTarget
from harness.clock import Clock, ClockWatch
from harness.errors import AuthorizationError
from harness.pacer import Pacer
from harness.records import StampSource
from harness.settings import ConnectionMode, WireSettings
from harness.wire.connection import ByteReceiver, ByteStream, Connection
from harness.wire.http import HttpOptions
from harness.wire.http_message import Origin, origin_of
from harness.wire.pool import HttpPool
from harness.wire.process import ProcessConnection, ProcessOptions
from harness.wire.resolve import Resolver
from harness.wire.socket import ReadStats, SocketOptions, StampedSocket
from harness.wire.stamping import StampAnchor
from harness.wire.tcp import TcpConnection, TcpOptions
from harness.wire.tls import TlsClient
from harness.wire.websocket import WebSocketConnection, WebSocketOptions

__all__ = ["Wire"]


class Wire:
    """Opens connections for targets of every kind and keeps the pools.

    Use it inside a running loop: `start()` first, `close()` at the end.

    Args:
        lookup: replaces the system's name look-up (tests).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        pacer: Pacer,
        settings: WireSettings,
        lookup: Callable[[str, int], Any] | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._pacer = pacer
        self._settings = settings
        self._anchor: StampAnchor | None = None
        self._watch = ClockWatch(loop, clock)
        self._is_warm = settings.connections.mode is ConnectionMode.WARM
        self._resolver = Resolver(loop, is_cached=self._is_warm, lookup=lookup)
        self._tls: TlsClient | None = None
        self._processes: set[ProcessConnection] = set()
        self._sessions: set[WebSocketConnection] = set()
        self._pools: dict[Origin, HttpPool] = {}
        self.read_stats = ReadStats()
        self.is_kernel_stamped = settings.is_kernel_stamped

    def start(self) -> None:
        """Switch kernel stamping on and begin to watch the clocks."""
        if self.is_kernel_stamped:
            self._anchor = StampAnchor()
            self.is_kernel_stamped = self._anchor.is_supported
        self._watch.start()

    def close(self) -> None:
        """Close every connection and stop watching."""
        for pool in self._pools.values():
            pool.close()
        # Over, but waiting for the peer's goodbye: their timers end with the pacer.
        for session in list(self._sessions):
            session.abort()
        for process in list(self._processes):
            process.abort()
            process.reap()
        self._watch.stop()
        if self._anchor is not None:
            self._anchor.close()
            self._anchor = None

    @property
    def stamp_source(self) -> StampSource:
        """Where arrivals come from."""
        return StampSource.KERNEL if self.is_kernel_stamped else StampSource.USER

    @property
    def pools(self) -> dict[Origin, HttpPool]:
        """Connections kept, by origin."""
        return self._pools

    def prepare(self, target: Target) -> None:
        """Load the certificates that a target needs, so that no request pays for it.

        Raises:
            ScenarioError: a certificate file that cannot be used.
            AuthorizationError: a command that was not allowed.
        """
        if isinstance(target, ProcessTarget) and not self._settings.are_commands_allowed:
            raise AuthorizationError(
                f"this engine runs a command ({target.argv[0]}); allow it with --allow-commands"
            )
        url = getattr(target, "url", None)
        if isinstance(url, str) and origin_of(url).is_tls:
            self._tls_client()

    async def warm_up(self, target: Target) -> None:
        """Fill the pool of a target ahead of the first request; nothing to do when cold.

        Raises:
            ScenarioError, AuthorizationError: as `prepare`.
        """
        self.prepare(target)
        if self._is_warm and isinstance(target, HttpTarget):
            await self._pool(origin_of(target.url)).fill(self._settings.timeouts.connect_s)

    def connect(self, target: Callable[[], Target]) -> Connection:
        """A connection for one request; `target` is asked again when the request is written.

        Raises:
            ValueError: the target cannot be reached by this wire.
        """
        first = target()
        if isinstance(first, HttpTarget):
            connection = self._pool(origin_of(first.url)).take()
            return connection.aim(target)  # type: ignore[arg-type]
        if isinstance(first, WebSocketTarget):
            return WebSocketConnection(first, self._websocket_options())
        if isinstance(first, TcpTarget):
            return TcpConnection(first, self._tcp_options())
        return ProcessConnection(first, self._process_options())

    def _pool(self, origin: Origin) -> HttpPool:
        pool = self._pools.get(origin)
        if pool is None:
            size = self._settings.connections.pool if self._is_warm else 0
            pool = self._pools[origin] = HttpPool(origin, self._http_options(), size=size)
        return pool

    def _http_options(self) -> HttpOptions:
        lifetime_s = self._settings.connections.lifetime_s
        return HttpOptions(
            clock=self._clock,
            pacer=self._pacer,
            resolver=self._resolver,
            make_stream=self._make_stream,
            limits=self._settings.limits,
            user_agent=self._settings.user_agent,
            keep_alive=self._is_warm,
            lifetime_ns=None if lifetime_s is None else round(lifetime_s * 1e9),
        )

    def _websocket_options(self) -> WebSocketOptions:
        return WebSocketOptions(
            clock=self._clock,
            pacer=self._pacer,
            resolver=self._resolver,
            make_stream=self._make_stream,
            user_agent=self._settings.user_agent,
            dead_peer_s=self._settings.timeouts.dead_peer_s,
            running=self._sessions,
        )

    def _tcp_options(self) -> TcpOptions:
        return TcpOptions(self._clock, self._resolver, self._make_stream)

    def _process_options(self) -> ProcessOptions:
        return ProcessOptions(
            loop=self._loop,
            clock=self._clock,
            tick=self._pacer.run_due,
            is_allowed=self._settings.are_commands_allowed,
            running=self._processes,
        )

    def _make_stream(self, origin: Origin, receiver: ByteReceiver) -> ByteStream:
        if not origin.is_tls:
            return StampedSocket(self._socket_options(), receiver)
        return self._tls_client().make_stream(
            origin,
            receiver,
            clock=self._clock,
            make_plain=lambda above: StampedSocket(self._socket_options(), above),
        )

    def _tls_client(self) -> TlsClient:
        if self._tls is None:
            self._tls = TlsClient(self._settings.tls)
        return self._tls

    def _socket_options(self) -> SocketOptions:
        return SocketOptions(
            loop=self._loop,
            clock=self._clock,
            tick=self._pacer.run_due,
            at=self._pacer.at,
            stats=self.read_stats,
            is_kernel_stamped=self.is_kernel_stamped,
            dead_peer_s=self._settings.timeouts.dead_peer_s,
            polled_ns=self._polled_ns,
        )

    def _polled_ns(self) -> int:
        return self._pacer.polled_ns
