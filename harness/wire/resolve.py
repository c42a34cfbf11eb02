"""Names to addresses: off the loop, once for warm connections, every time for cold ones."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Any

from harness.wire.connection import Address

__all__ = ["OnResolved", "Resolver"]

# Called with the addresses in the system's order, or with what went wrong.
OnResolved = Callable[[Sequence[Address] | OSError], None]
_Lookup = Callable[[str, int], "asyncio.Future[Any]"]


class Resolver:
    """Looks hosts up in the thread pool of the loop.

    Args:
        is_cached: keep what was found for the lifetime of this resolver.
        lookup: for tests; takes host and port, gives `getaddrinfo`'s list.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        is_cached: bool,
        lookup: Callable[[str, int], Any] | None = None,
    ) -> None:
        self._loop = loop
        self._is_cached = is_cached
        self._lookup = lookup or self._getaddrinfo
        self._known: dict[tuple[str, int], Sequence[Address]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def known(self, host: str, port: int) -> Sequence[Address] | None:
        """Addresses that need no look-up: a literal, or one that is kept."""
        literal = _literal(host, port)
        return [literal] if literal is not None else self._known.get((host, port))

    def resolve(self, host: str, port: int, on_resolved: OnResolved) -> None:
        """Look up; `on_resolved` is called later, on the loop."""
        task = self._loop.create_task(self._resolve(host, port, on_resolved))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _resolve(self, host: str, port: int, on_resolved: OnResolved) -> None:
        try:
            rows = await self._lookup(host, port)
        except OSError as error:
            on_resolved(error)
            return
        except UnicodeError as error:
            # A name that no name server can be asked for, such as one with an empty label.
            on_resolved(socket.gaierror(socket.EAI_NONAME, str(error)))
            return
        found = [Address(row[0], row[4]) for row in rows]
        if not found:
            on_resolved(socket.gaierror(socket.EAI_NONAME, f"no address for {host}"))
            return
        if self._is_cached:
            self._known[host, port] = found
        on_resolved(found)

    async def _getaddrinfo(self, host: str, port: int) -> Any:
        return await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _literal(host: str, port: int) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return Address(socket.AF_INET, (host, port))
    if address.scope_id is not None:
        return None  # the system knows the number of the interface
    return Address(socket.AF_INET6, (host, port, 0, 0))
