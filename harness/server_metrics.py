"""What a server says of itself while it is under load: its `/metrics`, stored beside the run.

A slow request can then be laid beside the server's own queue, batch sizes and stage times. Only a
contract that names the page is asked. The page is fetched in a worker thread, so that the loop
that takes the stamps neither waits for it nor reads it.
"""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

from engines.base import HttpTarget
from harness.clock import RunClock
from harness.records import TelemetrySample

__all__ = ["SOURCE", "parse_exposition", "sample_server"]

SOURCE = "server"
_INTERVAL_S = 2.0
_TIMEOUT_S = 2.0
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


def _fetch(target: HttpTarget) -> str:
    # No proxy: the page is that of the server under test, nobody else's.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(target.url, headers=dict(target.headers))
    with opener.open(request, timeout=_TIMEOUT_S) as reply:
        return str(reply.read(_MAX_BYTES), "utf-8", "replace")


async def sample_server(
    target: HttpTarget,
    *,
    point_id: str,
    clock: RunClock,
    on_telemetry: Callable[[Sequence[TelemetrySample]], None],
    interval_s: float = _INTERVAL_S,
) -> None:
    """Store the page again and again until cancelled.

    A page that cannot be had is a sample too: `scrape_failed` 1, at that moment.
    """
    while True:
        try:
            values = parse_exposition(await asyncio.to_thread(_fetch, target))
        except (urllib.error.URLError, OSError, ValueError):
            values = {"scrape_failed": 1.0}
        now_ns = clock.now_ns()
        on_telemetry(
            [
                TelemetrySample(point_id, now_ns, SOURCE, name, value)
                for name, value in values.items()
            ]
        )
        await asyncio.sleep(interval_s)
