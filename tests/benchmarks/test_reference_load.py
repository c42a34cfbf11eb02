"""The reference server under lasting and excessive load, on this machine's own capacity."""

from __future__ import annotations

import asyncio
import json
import random
import re
import resource
import statistics
import urllib.request
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.builders.reference_server import PATH, ServerProcess, body, server_process

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1_200)]

NUM_FRAMES = 40
NUM_BYTES = 2 * 1920 * NUM_FRAMES
SPEECH = body("one moment please", max_new_tokens=NUM_FRAMES + 1, skip_fixed_bootstrap_audio=False)


@dataclass
class Told:
    """One request as its client saw it, in seconds on the loop's clock."""

    at_s: float
    status: int = 0
    first_s: float | None = None
    end_s: float = 0.0
    num_bytes: int = 0
    dry_s: float = 0.0
    is_cancelled: bool = False
    error: str = ""

    @property
    def is_whole(self) -> bool:
        return self.status == 200 and self.num_bytes == NUM_BYTES


@dataclass
class Crowd:
    """Clients of one server."""

    url: str
    client: aiohttp.ClientSession
    told: list[Told] = field(default_factory=list)

    async def ask(self, *, cancel_after_s: float | None = None, **fields: Any) -> Told:
        """One request; perhaps hang up after a while. Also follows an ideal player."""
        clock = asyncio.get_running_loop().time
        told = Told(clock())
        self.told.append(told)
        try:
            async with asyncio.timeout(cancel_after_s):
                await self._listen(told, clock, SPEECH | fields)
        except TimeoutError:
            told.is_cancelled = True
        except aiohttp.ClientError as fault:
            told.error = repr(fault)
        told.end_s = clock()
        return told

    async def _listen(self, told: Told, clock: Callable[[], float], fields: Any) -> None:
        played_until = 0.0
        async with self.client.post(self.url + PATH, json=fields) as reply:
            told.status = reply.status
            async for part in reply.content.iter_any():
                now = clock()
                if reply.status != 200:
                    continue
                if told.first_s is None:
                    told.first_s, played_until = now - told.at_s, now
                told.dry_s += max(0.0, now - played_until)
                told.num_bytes += len(part)
                played_until = max(played_until, now) + len(part) / 48_000

    async def closed_loop(self, num_clients: int, duration_s: float) -> float:
        """So many clients, each asking again at once: the rate that this machine serves."""
        end_s = asyncio.get_running_loop().time() + duration_s

        async def one() -> int:
            count = 0
            while asyncio.get_running_loop().time() < end_s:
                count += (await self.ask()).is_whole
            return count

        counts = await asyncio.gather(*(one() for _ in range(num_clients)))
        return sum(counts) / duration_s

    async def open_loop(
        self, rate_rps: float, duration_s: float, *, seed: int, cancel_share: float = 0.0
    ) -> list[Told]:
        """Poisson arrivals whatever the server does; a share hangs up at a random moment."""
        rng, loop = random.Random(seed), asyncio.get_running_loop()
        tasks, due_s, end_s = [], loop.time(), loop.time() + duration_s
        while (due_s := due_s + rng.expovariate(rate_rps)) < end_s:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            leaves = rng.random() < cancel_share
            wait_s = rng.uniform(0.0, 0.6) if leaves else None
            tasks.append(asyncio.create_task(self.ask(cancel_after_s=wait_s)))
        return list(await asyncio.gather(*tasks))


def _run(
    folder: Path,
    script: Callable[[Crowd, ServerProcess], Coroutine[Any, Any, None]],
    *settings: str,
) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert limit >= 512
    arguments = ["--random=tiny", "--profile=cpu", "--set=leading_silence=keep", *settings]
    with server_process(arguments, folder=folder, ready_s=120) as server:

        async def main() -> None:
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as client:
                await script(Crowd(server.url, client), server)

        asyncio.run(main())


def _memory_mb(server: ServerProcess) -> float:
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def _metric(url: str, name: str) -> float:
    with urllib.request.urlopen(url + "/metrics") as reply:
        text = reply.read().decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


@pytest.mark.parametrize("duration_s", [60.0, 600.0])
def test_a_soak_with_hang_ups_keeps_its_memory_and_fails_nobody(tmp_path: Path, duration_s: float):
    """80 % of what this machine serves, one in ten hangs up: flat memory, no failure."""

    async def script(crowd: Crowd, server: ServerProcess) -> None:
        capacity_rps = await crowd.closed_loop(8, 10.0)
        rate_rps = 0.8 * capacity_rps
        start_s = asyncio.get_running_loop().time()
        soak = asyncio.create_task(crowd.open_loop(rate_rps, duration_s, seed=1, cancel_share=0.1))
        memory_mb = []
        while not soak.done():
            await asyncio.wait({soak}, timeout=duration_s / 20)
            memory_mb.append(_memory_mb(server))
        told = soak.result()
        failed = [one for one in told if not (one.is_whole or one.is_cancelled)]
        firsts = [one.first_s * 1e3 for one in told if one.first_s is not None]
        early, late = memory_mb[len(memory_mb) // 3], memory_mb[-1]
        print(
            f"\n{asyncio.get_running_loop().time() - start_s:.0f} s at {rate_rps:.2f} of"
            f" {capacity_rps:.2f} RPS: n {len(told)}, {sum(t.is_cancelled for t in told)} hung up,"
            f" {len(failed)} failed; ttfp p50 {statistics.median(firsts):.0f},"
            f" p95 {_p95(firsts):.0f} ms; memory {early:.0f} -> {late:.0f} MB;"
            f" slots {_metric(crowd.url, 'earwitness_engine_slots_active'):.0f}"
        )

        assert [] == [json.dumps(vars(one)) for one in failed][:3]
        assert late < early * 1.05 + 5
        assert 0 == _metric(crowd.url, "earwitness_engine_slots_active")
        assert 0 == _metric(crowd.url, "earwitness_engine_queue_length")

    _run(tmp_path, script)


def test_overload_refuses_fast_keeps_who_plays_and_recovers(tmp_path: Path):
    """Three times what this machine serves for 30 s."""

    async def script(crowd: Crowd, server: ServerProcess) -> None:
        del server
        capacity_rps = await crowd.closed_loop(8, 10.0)
        before = await crowd.open_loop(0.5 * capacity_rps, 20.0, seed=2)
        unloaded = [await crowd.ask(voice="nobody") for _ in range(20)]
        refusal_s = statistics.median(one.end_s - one.at_s for one in unloaded)

        during = await crowd.open_loop(3 * capacity_rps, 30.0, seed=3)
        # From here: 5 s to recover, counted from the last arrival's end.
        await asyncio.sleep(5.0)
        after = await crowd.open_loop(0.5 * capacity_rps, 20.0, seed=2)

        refused = [one for one in during if one.status == 429]
        played = [one for one in during if one.status == 200]
        dry = [one for one in played if one.dry_s > 0.001]
        refused_s = statistics.median(one.end_s - one.at_s for one in refused)
        old_s, new_s = (_p95([t.first_s or 9e9 for t in told]) for told in (before, after))
        print(
            f"\ncapacity {capacity_rps:.2f} RPS; at 3x: {len(during)} asked,"
            f" {len(refused)} refused, {len(played)} played, {len(dry)} ran dry; a refusal p50"
            f" {refused_s * 1e3:.2f} ms against {refusal_s * 1e3:.2f} unloaded; ttfp p95 before"
            f" {old_s * 1e3:.0f} ms, after {new_s * 1e3:.0f} ms"
        )

        assert {200, 429} >= {one.status for one in during}
        assert all(one.is_whole for one in played)
        assert refused_s <= 5 * refusal_s
        assert [] == dry
        assert new_s <= 1.2 * old_s

    # Slots bound who plays at a time. As many as this machine plays in real time with a margin for
    # whatever else it does; more of them would serve more requests and starve each.
    _run(tmp_path, script, "--set=slots=3")
