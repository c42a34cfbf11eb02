"""What a server says of itself while it is under load: its `/metrics`, stored beside the run.

A slow request can then be laid beside the server's own queue, batch sizes and stage times. Only a
contract that names the page is asked. The page is fetched in a worker thread, so that the loop
that takes the stamps neither waits for it nor reads it.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from engines.base import HttpTarget
from harness.clock import RunClock
from harness.records import TelemetrySample

__all__ = ["SOURCE", "parse_exposition", "sample_server"]

SOURCE = "server"
_INTERVAL_S = 2.0
# For one answer of the network, and for the whole page.
_TIMEOUT_S = 2.0
_LIMIT_S = 4.0
_OK = 200
_MAX_BYTES = 1_000_000
_MAX_SAMPLES = 500
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(\{[^\n]*\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?$")
# Histograms are kept by their sums and counts; when a counter began says nothing of the load.
_LEFT_OUT = ("_bucket", "_created")


def parse_exposition(text: str) -> dict[str, float]:
    """The finite values of a page in Prometheus' text format, by name and labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is None or match[1].endswith(_LEFT_OUT):
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if value - value == 0:  # neither infinite nor NaN
            found[match[1] + (match[2] or "")] = value
        if len(found) >= _MAX_SAMPLES:
            break
    return found


class _Fetch:
    """One look at the page. It follows no redirect, which could carry a key elsewhere, and asks no
    proxy: the page is that of the server under test."""

    def __init__(self, target: HttpTarget) -> None:
        self._target = target
        self._sock: socket.socket | None = None

    def read(self) -> str:
        """The page; in a thread.

        Raises:
            OSError, HTTPException: it cannot be had.
        """
        parts = urlsplit(self._target.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        try:
            connection.connect()
            self._sock = connection.sock
            path = parts.path or "/"
            url = f"{path}?{parts.query}" if parts.query else path
            connection.request("GET", url, headers=dict(self._target.headers))
            reply = connection.getresponse()
            if reply.status != _OK:
                raise HTTPException(f"HTTP {reply.status}")
            page = reply.read(_MAX_BYTES)
            if len(page) == _MAX_BYTES:
                page = page.rpartition(b"\n")[0]  # half a number is another number
            elif reply.length:
                raise HTTPException("the page was cut off")
            return str(page, "utf-8", "replace")
        finally:
            connection.close()

    def stop(self) -> None:
        """Wake the thread if a page that never ends still holds it: the program waits for it."""
        if self._sock is not None:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)


async def _page(target: HttpTarget, limit_s: float) -> str:
    fetch = _Fetch(target)
    try:
        async with asyncio.timeout(limit_s):
            return await asyncio.to_thread(fetch.read)
    finally:
        fetch.stop()


async def sample_server(
    target: HttpTarget,
    *,
    point_id: str,
    clock: RunClock,
    on_telemetry: Callable[[Sequence[TelemetrySample]], None],
    interval_s: float = _INTERVAL_S,
    limit_s: float = _LIMIT_S,
) -> None:
    """Store the page again and again until cancelled.

    A page that cannot be had is a sample too: `scrape_failed` 1, at that moment.
    """
    while True:
        try:
            values = parse_exposition(await _page(target, limit_s))
        except (OSError, HTTPException, ValueError):
            values = {"scrape_failed": 1.0}
        now_ns = clock.now_ns()
        on_telemetry(
            [
                TelemetrySample(point_id, now_ns, SOURCE, name, value)
                for name, value in values.items()
            ]
        )
        await asyncio.sleep(interval_s)
