"""`python -m harness.replay`: a recorded run as a server process."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from harness.errors import HarnessError
from harness.loop import run
from harness.replay.book import ReplayBook, load_book
from harness.replay.server import OWNER, build_app
from harness.store import open_run

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        book = load_book(open_run(options.run), point_id=options.point)
        _tell(book)
        run(_serve(book, options))
    except HarnessError as error:
        sys.stderr.write(f"replay server: {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"replay server: {options.host} port {options.port}: {error.strerror}\n")
        return 4
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m harness.replay", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a recorded run")
    parser.add_argument("--point", help="which point of it; needed where it has several")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8126, help="0: any that is free")
    parser.add_argument("--stop-on-stdin-eof", action="store_true")
    return parser


def _tell(book: ReplayBook) -> None:
    left_out = ", ".join(f"{count} {reason}" for reason, count in book.num_left_out.items())
    sys.stderr.write(
        f"{book.name}: {book.num_replies} replies to {len(book.replies)} texts"
        + (f"; left out: {left_out}" if left_out else "")
        + "\n"
    )


async def _serve(book: ReplayBook, options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if options.stop_on_stdin_eof:
        loop.add_reader(sys.stdin.fileno(), _stop_at_end, stop)
    # A client that hangs up cancels its handler, else a reply without an end would stay for ever.
    runner = web.AppRunner(
        build_app(book), handler_cancellation=True, access_log=None, shutdown_timeout=0.5
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, options.host, options.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        ready = {"server": OWNER, "url": f"http://{host}:{port}", "pid": os.getpid()}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        await runner.cleanup()


def _stop_at_end(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        stop.set()


if __name__ == "__main__":
    sys.exit(main())
