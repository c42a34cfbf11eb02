"""A client that is hindered says so, names the reason, and never claims more than it knows.

Every test hinders an ordinary run against the truth server in one way. Whatever happens, what the
report calls certain must be true: stamps that claim to be exact, underruns that claim to have
happened or not.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import harness.runner
import harness.wire.context
from engines.base import Buffer
from harness.clock import RunClock
from harness.dispatcher import Progress
from harness.observer import SilentObserver
from harness.records import RequestRecord
from harness.store import RunWriter
from harness.truth.noise import host_trouble
from harness.wire.socket import SO_TIMESTAMPNS, SocketOptions
from tests.builders.truth import Judged, TruthSite

pytestmark = pytest.mark.slow

SMOOTH = ("tone-0ms", "tone-25ms", "tone-60ms", "tone-110ms")


class Now(SilentObserver):
    """Does something on the loop, once, in the middle of the measurement."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self.deed: Callable[[], object] | None = deed

    def on_progress(self, progress: Progress) -> None:
        if progress.elapsed_s > 0.4 and self.deed is not None:
            deed, self.deed = self.deed, None
            asyncio.get_running_loop().call_soon(deed)


def claims_hold(judged: Judged) -> None:
    """Nothing that was called certain is wrong."""
    accuracy = judged.accuracy
    assert accuracy.stamps.num_exact == accuracy.stamps.num_inside
    assert 0 == accuracy.stamps.num_unaccounted + accuracy.stamps.num_lost_boundaries
    assert (0, 0) == (accuracy.playback.num_missed, accuracy.playback.num_invented)
    assert 0 == accuracy.identity.num_wrong_marks
    assert () == accuracy.identity.wrong_outcomes


def causes_of(judged: Judged, cause: str) -> set[str]:
    """The causes that may be named for what we did: where the host took the CPU away meanwhile,
    its share of the stall may be the larger one."""
    return {cause, "cpu"} if host_trouble(judged.point.selfcheck) else {cause}


def busy(cpu_s: float) -> None:
    """Use the CPU for so long."""
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


def test_slow_callback_is_a_stall_by_callback(site: TruthSite, tmp_path: Path):
    """30 ms of our own code on the loop."""
    judged = site.run(tmp_path, scripts=SMOOTH, observer=Now(partial(busy, 0.030)))

    claims_hold(judged)
    assert judged.stall_causes & causes_of(judged, "callback")
    assert judged.reasons["loop_stall_ms"]["value"] >= 20


def test_garbage_collection_storm_is_a_stall_by_gc(site: TruthSite, tmp_path: Path):
    """A collection that has very much to look at."""
    heap: list[Any] = []

    def storm() -> None:
        heap.extend({"a": []} for _ in range(300_000))
        asyncio.get_running_loop().call_later(0.1, gc.collect)

    judged = site.run(tmp_path, scripts=SMOOTH, observer=Now(storm), measure_s=2.0)

    claims_hold(judged)
    assert judged.stall_causes & causes_of(judged, "gc")
    assert judged.point.selfcheck["gc"]["max_ms"] >= 10
    assert "loop_stall_ms" in judged.reasons


@pytest.mark.parametrize("stop_ms", [50, 200])
def test_stopped_client_admits_what_it_missed(site: TruthSite, tmp_path: Path, stop_ms: int):
    """SIGSTOP: what came meanwhile was merged, and is in doubt by as much."""
    script = (
        f"sleep 0.05; kill -STOP {os.getpid()}; sleep {stop_ms / 1000}; kill -CONT {os.getpid()}"
    )
    judges: list[subprocess.Popen[bytes]] = []
    observer = Now(lambda: judges.append(subprocess.Popen(["sh", "-c", script])))
    judged = site.run(tmp_path, scripts=SMOOTH, observer=observer, measure_s=1.5)
    judges[0].wait(timeout=5)

    claims_hold(judged)
    assert "stopped" in judged.stall_causes
    assert "stopped" in judged.reasons["loop_stall_ms"]["remedy"]
    if stop_ms > 100:  # several chunks of one reply came meanwhile
        assert judged.accuracy.stamps.num_shared > 0
        assert judged.accuracy.stamps.shared_width_ms.max >= stop_ms / 2


def test_hog_on_the_clients_core_is_lag_by_cpu(site: TruthSite, tmp_path: Path):
    """Sixteen processes that want the same core all the time."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot keep a process on one core")
    before = os.sched_getaffinity(0)
    core = min(before)
    os.sched_setaffinity(0, {core})
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(16)]
    try:
        folder = site.record(tmp_path, scripts=SMOOTH, streams=24, measure_s=1.2)
    finally:
        os.sched_setaffinity(0, before)
        for hog in hogs:
            hog.kill()
            hog.wait()
    judged = site.judge(folder)

    claims_hold(judged)
    assert {"dispatch_lag_p99_ms", "loop_stall_ms"} & judged.reasons.keys()
    assert judged.point.selfcheck["cpu"]["run_delay"] > 0.05
    assert "waited for a CPU" in host_trouble(judged.point.selfcheck)


def test_disk_on_the_loop_is_a_stall_by_disk(
    site: TruthSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A sink that writes and waits for the disk on the loop's own thread."""
    disk = os.open(tmp_path / "slow", os.O_WRONLY | os.O_CREAT)
    plain = RunWriter.append

    def append(writer: RunWriter, record: RequestRecord, payload: list[Buffer]) -> None:
        end = time.perf_counter() + 0.030
        while time.perf_counter() < end:
            os.pwrite(disk, b"x" * (1 << 20), 0)
            os.fsync(disk)
        plain(writer, record, payload)

    monkeypatch.setattr(RunWriter, "append", append)
    judged = site.run(tmp_path, scripts=SMOOTH, streams=4)
    os.close(disk)

    claims_hold(judged)
    assert "loop_stall_ms" in judged.reasons
    # Writing costs CPU too; where the disk is fast, that is the larger part.
    assert judged.stall_causes & (causes_of(judged, "disk") | {"callback"})


def test_slow_disk_under_the_writer_delays_nobody(
    site: TruthSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The store has a thread of its own: 30 ms a write make no stall and lose nothing."""
    plain, waited = os.pwritev, []

    def slow(fd: int, buffers: list[Buffer], offset: int) -> int:
        waited.append(fd)
        time.sleep(0.030)
        return plain(fd, buffers, offset)

    monkeypatch.setattr(os, "pwritev", slow)
    judged = site.run(tmp_path, scripts=SMOOTH)

    claims_hold(judged)
    assert len(waited) > 5
    assert judged.accuracy.identity.num_requests == judged.summary["points"][0]["n"]
    assert "disk" not in judged.stall_causes


class _SteppedWallClock:
    """The wall clock, set by so many ns at one moment, for the clock and the kernel's stamps."""

    def __init__(self) -> None:
        self.by_ns = self.since_ns = 0

    def step(self, by_ns: int) -> None:
        self.since_ns, self.by_ns = time.time_ns(), by_ns

    def of(self, true_ns: int) -> int:
        return true_ns + self.by_ns if self.by_ns and true_ns >= self.since_ns else true_ns

    def now_ns(self) -> int:
        return self.of(time.time_ns())

    def make_socket(self, family: int, kind: int) -> socket.socket:
        wall = self

        class Stepped(socket.socket):
            def recvmsg(self, *sizes: int) -> Any:
                data, ancillary, flags, address = super().recvmsg(*sizes)
                return data, [wall.stamp(each) for each in ancillary], flags, address

        return Stepped(family, kind)

    def stamp(self, message: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
        level, kind, payload = message
        if kind != SO_TIMESTAMPNS:
            return message
        seconds, nanoseconds = struct.unpack("@qq", payload[:16])
        stepped = self.of(seconds * 10**9 + nanoseconds)
        return level, kind, struct.pack("@qq", *divmod(stepped, 10**9))


@pytest.mark.parametrize("by_ms", [40, -40])
def test_wall_clock_that_is_set_is_named_and_moves_no_stamp(
    site: TruthSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_ms: int
):
    """Stamps of the interval in which it happened are given up; those after it are right again."""
    wall = _SteppedWallClock()
    monkeypatch.setattr(harness.runner, "RunClock", partial(RunClock, realtime_ns=wall.now_ns))
    monkeypatch.setattr(
        harness.wire.context, "SocketOptions", partial(SocketOptions, make_socket=wall.make_socket)
    )
    step = Now(lambda: wall.step(by_ms * 1_000_000))
    judged = site.run(tmp_path, scripts=SMOOTH, observer=step)

    claims_hold(judged)
    assert by_ms == pytest.approx(judged.reasons["wall_clock_step_ms"]["value"], abs=1)
    if host_trouble(judged.point.selfcheck) is None:
        assert judged.accuracy.stamps.num_exact > 0.5 * judged.accuracy.stamps.num_chunks


def test_too_few_descriptors_are_the_clients_error(site: TruthSite, tmp_path: Path):
    """A request that could not be made is no latency of the server, and the point is invalid."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def restore() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def starve() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        asyncio.get_running_loop().call_later(0.25, restore)

    def cold(scenario: dict[str, Any]) -> None:
        scenario["connections"] = {"mode": "cold"}

    try:
        judged = site.run(tmp_path, scripts=SMOOTH, observer=Now(starve), change=cold)
    finally:
        restore()

    claims_hold(judged)
    assert "invalid" == judged.verdict
    assert "descriptors" in judged.reasons["client_error"]["remedy"]
    assert judged.summary["points"][0]["outcomes"]["client_error"] > 0
