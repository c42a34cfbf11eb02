"""From listening sockets to a running process: load, serve, drain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from typing import TextIO

from aiohttp import web

from reference_engine.server.app import SERVER_NAME, build_app
from reference_engine.server.service import Service
from reference_engine.server.sockets import ANY_ADDRESS, BACKLOG, local_url

__all__ = ["new_runner", "serve_until_stopped"]

_DRAIN_POLL_S = 0.02
_HANDLER_EXIT_S = 1.0


def new_runner(service: Service) -> web.AppRunner:
    """The HTTP server around the routes, not yet listening."""
    return web.AppRunner(
        build_app(service),
        access_log=None,
        # A client that hangs up ends its handler, whatever that waits for.
        handler_cancellation=True,
        auto_decompress=False,
        shutdown_timeout=_HANDLER_EXIT_S,
    )


async def serve_until_stopped(
    service: Service, sockets: list[socket.socket], *, stdout: TextIO, stderr: TextIO
) -> None:
    """Answer on listening sockets until a signal (or the end of stdin) comes, then drain.

    One JSON line goes to `stdout` when speech is served; notices go to `stderr`.

    Raises:
        ReferenceEngineError: the checkpoint or the device cannot be used.
    """
    _announce(service, sockets, stderr)
    runner = new_runner(service)
    await runner.setup()
    stop = asyncio.Event()
    try:
        for sock in sockets:
            await web.SockSite(runner, sock, backlog=BACKLOG).start()
        _listen_for_stop(stop, with_stdin=service.settings.should_stop_on_stdin_eof)
        await _prepare_and_wait(service, stop, url=local_url(sockets[0]), stdout=stdout)
        await _drain(service, runner, stderr)
    finally:
        await service.close()
        await runner.cleanup()


def _announce(service: Service, sockets: list[socket.socket], stderr: TextIO) -> None:
    for sock in sockets:
        address, port = sock.getsockname()[:2]
        stderr.write(f"earwitness: {SERVER_NAME} listening on {address} port {port}, loading\n")
        if address in ANY_ADDRESS and service.settings.api_key is None:
            stderr.write("earwitness: other machines can use this server, no key is asked\n")
    stderr.flush()


async def _prepare_and_wait(
    service: Service, stop: asyncio.Event, *, url: str, stdout: TextIO
) -> None:
    """Load, warm up and say so; comes back when asked to stop, in any phase."""
    preparing = asyncio.create_task(service.prepare())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({preparing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if preparing.done():
            await preparing
            profile = service.assembled.engine.profile
            line = {
                "ready": True,
                "url": url,
                "model": service.settings.model_id,
                "profile": profile.name,
                "profile_hash": profile.hash,
                "pid": os.getpid(),
            }
            with contextlib.suppress(BrokenPipeError):  # whoever started us may not read
                stdout.write(json.dumps(line) + "\n")
                stdout.flush()
            await stopping
    finally:
        for task in (preparing, stopping):
            task.cancel()
        await asyncio.gather(preparing, stopping, return_exceptions=True)


def _listen_for_stop(stop: asyncio.Event, *, with_stdin: bool) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)  # asked twice: somebody does not want to wait
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    if with_stdin:
        # A parent that dies, however it dies, closes its end of the pipe.
        loop.add_reader(sys.stdin.fileno(), _on_stdin, stop)


def _on_stdin(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4_096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


async def _drain(service: Service, runner: web.AppRunner, stderr: TextIO) -> None:
    """Take no newcomer, let who is in progress end, up to the limit."""
    service.begin_draining()
    for site in list(runner.sites):
        await site.stop()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(service.settings.drain_s):
            while service.num_open:
                await asyncio.sleep(_DRAIN_POLL_S)
    if service.num_open:
        stderr.write(f"earwitness: {service.num_open} request(s) cut off after the drain limit\n")
