# SPDX-License-Identifier: GPL-3.0-or-later
"""From settings to a running process: bind, load, serve, drain."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TextIO

from aiohttp import web

from engines.embedded.app import build_app
from engines.embedded.config import MODEL_ID, ServerConfig
from engines.embedded.errors import PortTakenError, SettingsError
from engines.embedded.service import Service
from engines.embedded.synthesiser import Synthesiser

__all__ = ["EVALUATION_NOTICE", "bind_sockets", "client_url", "new_runner", "run_server", "serve"]

EVALUATION_NOTICE = (
    "the bundled voice is for evaluation only: the licence of its training data is unclear for "
    "products"
)
# A burst of this many connects is not refused by the kernel before the server sees it.
_BACKLOG = 1024
_DRAIN_POLL_S = 0.02
# What handlers get to notice that they were cancelled, once draining has ended.
_CANCEL_S = 1.0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of `host`, all on one port; port 0 lets the kernel choose.

    Raises:
        PortTakenError: another server has the port.
        SettingsError: the host is unknown or not of this machine, or the port is reserved.
    """
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
        )
    except OSError as error:
        raise SettingsError(f"--host: '{host}' is unknown ({error.strerror})") from None
    bound: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((each[0], str(each[4][0])) for each in found):
            chosen = bound[0].getsockname()[1] if bound else port
            bound.append(_bind(family, address, port=chosen))
    except BaseException:
        for sock in bound:
            sock.close()
        raise
    return bound


def _bind(family: int, address: str, *, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        # Here, not later: on Linux two sockets may bind one port, only one may listen on it.
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(
                f"port {port} on {address} is taken by another server; choose one with --port"
            ) from None
        raise SettingsError(
            f"--host {address} --port {port}: cannot listen there ({error.strerror})"
        ) from None
    return sock


def client_url(sock: socket.socket) -> str:
    """The address a client on this machine should use."""
    address, port = sock.getsockname()[:2]
    address = _ANY_ADDRESS.get(address, address)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def run_server(
    config: ServerConfig,
    load: Callable[[], Synthesiser],
    *,
    clock_ns: Callable[[], int],
    version: str,
) -> None:
    """Serve until told to stop; what a person can mend is raised.

    Raises:
        EmbeddedError: the address is taken, or the voice or its cache cannot be used.
    """
    sockets = bind_sockets(config.host, config.port)
    service = Service(config, load, clock_ns=clock_ns, version=version)
    asyncio.run(serve(service, sockets, stdout=sys.stdout, stderr=sys.stderr))


async def serve(
    service: Service, sockets: list[socket.socket], *, stdout: TextIO, stderr: TextIO
) -> None:
    """Answer on bound sockets until a signal (or end of stdin) comes, then drain.

    One JSON line goes to `stdout` when the voice is ready, notices go to `stderr`.
    """
    config = service.config
    _announce(sockets, config=config, stderr=stderr)
    runner = new_runner(service)
    await runner.setup()
    stop = asyncio.Event()
    try:
        for sock in sockets:
            await web.SockSite(runner, sock, backlog=_BACKLOG).start()
        _watch_for_stop(stop, should_watch_stdin=config.should_stop_on_stdin_eof)
        await _prepare_then_wait(service, stop, url=client_url(sockets[0]), stdout=stdout)
        await _drain(service, runner, stderr=stderr)
    finally:
        service.close()
        await runner.cleanup()


def new_runner(service: Service) -> web.AppRunner:
    """The HTTP server around the routes, not yet listening."""
    return web.AppRunner(
        build_app(service),
        access_log=None,
        # A client that hangs up cancels its handler, even while the handler waits for a chunk.
        handler_cancellation=True,
        auto_decompress=False,
        shutdown_timeout=_CANCEL_S,
    )


def _announce(sockets: list[socket.socket], *, config: ServerConfig, stderr: TextIO) -> None:
    for sock in sockets:
        address, port = sock.getsockname()[:2]
        stderr.write(
            f"earwitness: {MODEL_ID} ({config.mode} mode, {config.num_workers} inference "
            f"thread(s), {config.policy} policy) listening on {address} port {port}\n"
        )
        if address in _ANY_ADDRESS and config.api_key is None:
            stderr.write("earwitness: other machines can use this server, no key is asked\n")
    stderr.write(f"earwitness: {EVALUATION_NOTICE}\n")
    stderr.flush()


async def _prepare_then_wait(
    service: Service, stop: asyncio.Event, *, url: str, stdout: TextIO
) -> None:
    """Load, warm up and say so; returns when asked to stop, in any phase.

    Raises:
        EmbeddedError: loading failed.
    """
    preparing = asyncio.create_task(service.prepare())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({preparing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if preparing.done():
            await preparing
            line = {"ready": True, "url": url, "mode": service.config.mode, "pid": os.getpid()}
            # Whoever started this server may not care to read.
            with contextlib.suppress(BrokenPipeError):
                stdout.write(json.dumps(line) + "\n")
                stdout.flush()
            await stopping
    finally:
        for task in (preparing, stopping):
            task.cancel()
        await asyncio.gather(preparing, stopping, return_exceptions=True)


def _watch_for_stop(stop: asyncio.Event, *, should_watch_stdin: bool) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            # Asked twice: the person does not want to wait for listeners.
            os._exit(1)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    if should_watch_stdin:
        # A parent that dies, however it dies, closes its end of the pipe.
        loop.add_reader(sys.stdin.fileno(), _on_stdin, stop)


def _on_stdin(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


async def _drain(service: Service, runner: web.AppRunner, *, stderr: TextIO) -> None:
    """Take no new connection, let open requests end, up to the limit."""
    service.begin_draining()
    for site in list(runner.sites):
        await site.stop()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(service.config.drain_s):
            while service.num_open:
                await asyncio.sleep(_DRAIN_POLL_S)
    if service.num_open:
        stderr.write(f"earwitness: {service.num_open} request(s) cut off after the drain limit\n")
