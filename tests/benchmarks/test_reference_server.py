"""The reference server measured by the harness, and driven to its limits. Prints its figures."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engines import registry
from harness.records import RequestRecord
from tests.builders.reference_server import server_process
from tests.builders.wire import every, run_load

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

TINY = ["--random=tiny", "--profile=cpu"]
NUM_STARTS = 5
SPEECH = {"voice": "ryan", "ignore_eos": True, "max_new_tokens": 13}


@contextmanager
def _server(folder: Path, *more: str) -> Iterator[str]:
    folder.mkdir(exist_ok=True)
    with server_process([*TINY, *more], folder=folder, ready_s=120) as running:
        yield running.url


def _first_pcm_ms(record: RequestRecord) -> float:
    """What the server says of its own way to the first PCM, as stored with the request."""
    assert record.server_timing is not None
    said = json.loads(record.server_timing)["server_timing"]
    found = re.search(r"first_pcm;dur=([\d.]+)", said)
    assert found is not None
    return float(found[1])


def test_the_harness_hears_what_the_server_says_it_sent(tmp_path: Path):
    """At 1 RPS on loopback the client's ttfp is the server's own first PCM and little more."""
    with _server(tmp_path) as url:
        adapter = registry.create("reference", base_url=url, params=SPEECH)
        ran = run_load(adapter, every(1_000, 20, num_warmup=2), drain_s=5.0)
    gaps_ms = []
    for record in ran.records[2:]:
        assert "ok" == record.transport_outcome.value, record.error_text
        ttfp_ms = (record.chunks[0].arrival_ns - record.dispatched_ns) / 1e6
        gaps_ms.append(ttfp_ms - _first_pcm_ms(record))
    p50 = statistics.median(gaps_ms)
    print(
        f"\nttfp less the server's own first PCM, n {len(gaps_ms)}:"
        f" min {min(gaps_ms):.2f}, p50 {p50:.2f}, max {max(gaps_ms):.2f} ms"
    )

    assert p50 <= 2.0


def test_the_first_request_after_ready_is_as_fast_as_any(tmp_path: Path):
    """Whatever has to run once has run before the server said that it is ready: five starts."""
    ratios = []
    print()
    for number in range(NUM_STARTS):
        with _server(tmp_path / str(number)) as url:
            adapter = registry.create("reference", base_url=url, params=SPEECH)
            ran = run_load(adapter, every(700, 11), drain_s=5.0)
        first_ms, *rest_ms = [_first_pcm_ms(record) for record in ran.records]
        steady_ms = statistics.median(rest_ms)
        ratios.append(first_ms / steady_ms)
        print(f"start {number}: first {first_ms:.1f} ms, then p50 {steady_ms:.1f} ms (n 10)")
    print(f"first over steady, median of {NUM_STARTS} starts: {statistics.median(ratios):.2f}")

    assert statistics.median(ratios) <= 1.2


SCENARIO = """
schema: 1
name: {name}
engines:
  - contract: nari-ws
    name: reference
    base_url: {url}
    params: {{voice: ryan, ignore_eos: true, max_new_tokens: 31}}
arrivals: {{process: constant, rates_rps: [0.5], seeds: [1]}}
phases: {{warmup_s: 4, measure_s: 40, drain_s: 15}}
prompts: {{set: voice-agent, tags: [wer, short]}}
text_pacing: {pacing}
timeouts: {{ready_s: 120, first_audio_s: 30, total_s: 60}}
"""
WORDS = "{mode: words, rate_per_s: 16}"  # a language model of some 16 words a second


def _measure(folder: Path, name: str, url: str, pacing: str) -> list[dict[str, Any]]:
    """Run a scenario by the command; the stored requests of its measured phase."""
    import pandas as pd

    scenario = folder / f"{name}.yaml"
    scenario.write_text(
        SCENARIO.format(name=name, url=url.replace("http://", "ws://"), pacing=pacing)
    )
    out = folder / name
    earwitness = Path(sys.executable).with_name("earwitness")
    command = [earwitness, "run", scenario, "-o", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 3), done.stderr[-2_000:]
    rows = pd.read_parquet(out / "requests.parquet")
    chunks = pd.read_parquet(out / "chunks.parquet").groupby("request_id").arrival_ns.min()
    rows = rows[(rows.phase == "measure") & (rows.transport_outcome == "ok")]
    return [
        {
            "index": row.index_,
            "first_ms": (chunks[row.request_id] - row.dispatched_ns) / 1e6,
            "after_text_ms": (chunks[row.request_id] - row.last_text_ns) / 1e6,
        }
        for row in rows.rename(columns={"index": "index_"}).itertuples()
    ]


def _p50(rows: list[dict[str, Any]], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def test_text_that_arrives_in_pieces_saves_its_own_length(tmp_path: Path):
    """Paired: the same texts, spoken as they come or once they are whole; and each start rule."""
    found: dict[str, list[dict[str, Any]]] = {}
    for rule in ("first-token", "clause", "sentence"):
        with _server(tmp_path / rule, f"--start={rule}", "--start-max-wait-s=30") as url:
            found[rule] = _measure(tmp_path, f"words-{rule}", url, WORDS)
            if rule == "first-token":
                found["whole"] = _measure(tmp_path, "whole", url, "{mode: whole}")
    whole = {row["index"]: row["first_ms"] for row in found["whole"]}
    print()
    for name, rows in found.items():
        print(
            f"{name:>12}: n {len(rows)}, first sound {_p50(rows, 'first_ms'):7.1f} ms after the"
            f" first word, {_p50(rows, 'after_text_ms'):7.1f} ms after the last (p50)"
        )
    # Whoever waits for the whole text hears nothing before its last word came.
    savings = [
        (row["first_ms"] - row["after_text_ms"]) + whole[row["index"]] - row["first_ms"]
        for row in found["first-token"]
        if row["index"] in whole
    ]
    print(f"paired saving: n {len(savings)}, p50 {statistics.median(savings):.1f} ms")

    assert len(savings) > 10
    assert statistics.median(savings) > 0
    assert _p50(found["first-token"], "first_ms") <= _p50(found["sentence"], "first_ms")
