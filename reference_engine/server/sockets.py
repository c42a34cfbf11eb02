"""The sockets a server listens on. Light, so that a wrong host or port is told at once."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from types import MappingProxyType

from reference_engine.errors import ArgumentError

__all__ = ["ANY_ADDRESS", "BACKLOG", "bind", "local_url"]

BACKLOG = 1_024  # a burst of connects waits here instead of being refused
# Addresses that stand for all of a machine's own, and what a client on it may call instead.
ANY_ADDRESS: Mapping[str, str] = MappingProxyType({"0.0.0.0": "127.0.0.1", "::": "::1"})


def bind(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of `host`, all on one port (0: the system chooses).

    Raises:
        ArgumentError: the port is taken, or the host is unknown or of another machine.
    """
    if not host:  # the resolver would take it for every address of this machine
        raise ArgumentError("--host: empty; name an address, or 0.0.0.0 for all of them")
    flags = socket.AI_PASSIVE
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except OSError as fault:
        raise ArgumentError(f"--host: {host!r} is unknown ({fault.strerror})") from None
    except UnicodeError:
        raise ArgumentError(f"--host: {host!r} is not a name of a machine") from None
    listening: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((info[0], str(info[4][0])) for info in found):
            chosen = listening[0].getsockname()[1] if listening else port
            listening.append(_listen(family, address, port=chosen))
    except BaseException:
        for sock in listening:
            sock.close()
        raise
    return listening


def _listen(family: int, address: str, *, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        # Already here: two sockets may bind one port, but only one may listen on it.
        sock.listen(BACKLOG)
    except OSError as fault:
        sock.close()
        if fault.errno == errno.EADDRINUSE:
            text = f"--port: port {port} on {address} is taken by another server; choose another"
            raise ArgumentError(text) from None
        text = f"--host {address} --port {port}: cannot listen there ({fault.strerror})"
        raise ArgumentError(text) from None
    sock.setblocking(False)
    return sock


def local_url(sock: socket.socket) -> str:
    """The address for a client on this machine."""
    address, port = sock.getsockname()[:2]
    address = ANY_ADDRESS.get(address, address)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
