"""Plain clients as people write them: aiohttp and httpx, stamping each chunk after the await.

Each is given the same arrivals as ours and returns, per request, when its chunks were seen. Run as
a process of its own: `python clients.py aiohttp URL PLAN.json OUT.json`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

CLIENTS = ("aiohttp", "httpx")


async def _load(plan: list[tuple[float, str]], ask: Callable[[str], Any]) -> list[dict[str, Any]]:
    """Open loop by `asyncio.sleep` until each arrival, as a careful script does it."""
    begin_ns = time.monotonic_ns() + 200_000_000
    tasks = []
    for at_s, script in plan:
        due_ns = begin_ns + round(at_s * 1e9)
        await asyncio.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
        tasks.append(asyncio.create_task(_one(due_ns, script, ask)))
    return list(await asyncio.gather(*tasks))


async def _one(due_ns: int, script: str, ask: Callable[[str], Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"due_ns": due_ns, "sent_ns": time.monotonic_ns(), "chunks": []}
    end = 0
    try:
        async with ask(script) as (number, chunks):
            row["number"] = int(number)
            async for data in chunks:
                end += len(data)
                row["chunks"].append((end, time.monotonic_ns()))
    except Exception as fault:  # a broken reply is broken for every client
        row["fault"] = type(fault).__name__
    return row


async def _with_aiohttp(url: str, plan: list[tuple[float, str]]) -> list[dict[str, Any]]:
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        @asynccontextmanager
        async def ask(script: str) -> AsyncIterator[Any]:
            async with session.post(f"{url}/v1/audio/speech", json={"input": script}) as reply:
                yield reply.headers["x-truth-request"], reply.content.iter_any()

        return await _load(plan, ask)


async def _with_httpx(url: str, plan: list[tuple[float, str]]) -> list[dict[str, Any]]:
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        @asynccontextmanager
        async def ask(script: str) -> AsyncIterator[Any]:
            request: AbstractAsyncContextManager[Any] = client.stream(
                "POST", f"{url}/v1/audio/speech", json={"input": script}
            )
            async with request as reply:
                yield reply.headers["x-truth-request"], reply.aiter_raw()

        return await _load(plan, ask)


def main(name: str, url: str, plan: str, out: str, core: str = "") -> None:
    """Send the plan and write what was seen."""
    if core:
        os.sched_setaffinity(0, {int(core)})
    send = {"aiohttp": _with_aiohttp, "httpx": _with_httpx}[name]
    arrivals = [tuple(row) for row in json.loads(Path(plan).read_text())]
    rows = asyncio.run(send(url, arrivals))
    Path(out).write_text(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
