"""`kill -9` at any moment of a run: what had finished is kept, and recovering is repeatable."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.records import RunStatus
from harness.store import open_run, recover
from tests.builders.servers import ScriptedServer
from tests.builders.voices import SPOKEN, short_run_file, voice

ROOT = Path(__file__).resolve().parents[3]
NUM_KILLS = 20
# A request counts as finished if the server had written its end this long before the kill.
FINISHED_BEFORE_NS = 250_000_000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def killer() -> Iterator[subprocess.Popen[str]]:
    """The process that forks and kills runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.harness.store.killer"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    assert 0 == process.wait(timeout=10)


def _texts_finished_before(server: ScriptedServer, killed_ns: int) -> list[str]:
    """Texts of the requests whose last byte the server had written early enough."""
    requests = server.requests
    ends: dict[int, int] = {}
    written: dict[int, int] = {}
    for send in server.sends:
        written[send.request] = written.get(send.request, 0) + 1
        ends[send.request] = send.after_ns
    return [
        requests[n].json["input"]
        for n, end_ns in ends.items()
        # Head, two pieces and the last chunk: four writes make a whole reply.
        if requests[n].method == "POST"
        and written[n] == 4
        and end_ns <= killed_ns - FINISHED_BEFORE_NS
    ]


@pytest.mark.parametrize("seed", range(NUM_KILLS))
def test_a_kill_loses_nothing_that_had_finished(
    seed: int, killer: subprocess.Popen[str], tmp_path: Path
):
    """Every reply that ended 250 ms before the kill is there, whole; a second recovery is idle."""
    folder = tmp_path / "run"
    phases = {"warmup_s": 0.1, "measure_s": 3.0, "drain_s": 1.0}
    arrivals = {"process": "poisson", "rates_rps": [80.0], "seeds": [seed]}
    with ScriptedServer(voice()) as server:
        sections = {"phases": phases, "arrivals": arrivals, "connections": {"pool": 8}}
        path = short_run_file(tmp_path, server.base_url, **sections)
        assert killer.stdin is not None
        assert killer.stdout is not None
        killer.stdin.write(f"{path} {folder} {random.Random(seed).uniform(0, 500)}\n")
        killer.stdin.flush()
        said = killer.stdout.readline()
        assert said, "the killer has ended; its standard error says why"
        killed_ns = int(said)
        finished = _texts_finished_before(server, killed_ns)

    recovery = recover(folder)
    stored = open_run(folder)
    once = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    assert RunStatus.INCOMPLETE is stored.record.status
    assert recovery.num_damaged == 0
    assert sorted(finished) == sorted(set(finished) & set(stored.requests["text"]))
    ok = stored.requests[stored.requests["transport_outcome"] == "ok"]
    assert all(stored.payload(request_id) == SPOKEN for request_id in ok["request_id"])
    assert not recover(folder).was_needed
    assert once == {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
