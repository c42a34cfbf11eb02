"""Ours beside bare aiohttp and httpx clients, on the same truth, in turns. Prints; never in CI.

All three send the same arrivals of the same scripts to one truth server; who goes first changes
with the round. An arrival is wrong by its distance to the send that carried it; an underrun is
wrong if the truth rules it out or a true one was not seen.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from analysis.accuracy import measure_accuracy
from analysis.accuracy.figures import spread
from analysis.playback import MediaArrival, simulate_playback
from harness.environment import describe_environment
from harness.loop import run as run_on_loop
from harness.plan import plan_run
from harness.runner import run_scenario
from harness.truth.book import accuracy_scripts, accuracy_shares
from harness.truth.expected import ExpectedReply
from harness.truth.script import Container, Script
from harness.truth.trial import Transport, TrialSettings, cores, trial_scenario
from tests.benchmarks.clients import CLIENTS
from tests.builders.truth import TruthSite, truth_site

pytestmark = pytest.mark.bench
ROUNDS, MEASURE_S = 2, 6.0
MS = 1_000_000


@dataclass
class Figures:
    """One client's errors, over all rounds."""

    arrival_us: list[float] = field(default_factory=list)
    lag_ms: list[float] = field(default_factory=list)
    num_true: int = 0
    num_missed: int = 0
    num_invented: int = 0
    num_undecided: int = 0

    def line(self, name: str) -> str:
        arrival, lag = spread(self.arrival_us), spread(self.lag_ms)
        return (
            f"{name:<11} arrival off by {arrival.p50:.1f} / {arrival.p99:.1f} / {arrival.max:.1f}"
            f" us; dispatch lag {lag.p50:.3f} / {lag.p99:.3f} ms; underruns {self.num_true}"
            f" true, {self.num_missed} missed, {self.num_invented} invented,"
            f" {self.num_undecided} undecided"
        )


def raw_scripts() -> dict[str, Script]:
    """Those that end well and hold bare samples: what all three clients can read alike."""
    return {
        name: script
        for name, script in accuracy_scripts().items()
        if script.is_whole and script.container is Container.RAW
    }


def judge_plain(rows: list[dict[str, Any]], truth: dict[int, ExpectedReply], to: Figures) -> None:
    """What a plain client saw, by its own stamps and the same player."""
    for row in rows:
        to.lag_ms.append((row["sent_ns"] - row["due_ns"]) / MS)
        true = truth[row["number"]]
        arrivals, before = [], 0
        for end, seen_ns in row["chunks"]:
            bracket = true.arrival_of(end - 1)
            assert bracket.hi_ns is not None
            outside = max(0, seen_ns - bracket.hi_ns, bracket.lo_ns - seen_ns)
            to.arrival_us.append(outside / 1_000)
            arrivals.append(MediaArrival(seen_ns, end // 2 - before))
            before = end // 2
        stalls = {s.index: s for s in simulate_playback(arrivals, 24_000).stalls}
        ends = [end for end, _ in row["chunks"]]
        for index, stall in enumerate(true.stalls(ends), start=1):
            has_stall = index in stalls and stalls[index].length_ns >= MS
            to.num_true += stall.length.lo_ns >= MS
            to.num_missed += stall.length.lo_ns >= MS and not has_stall
            to.num_invented += has_stall and stall.length.hi_ns < MS


def run_plain(
    name: str, site: TruthSite, folder: Path, plan: list[tuple[float, str]], core: int | None
) -> list[dict[str, Any]]:
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan))
    script = Path(__file__).with_name("clients.py")
    argv = [sys.executable, str(script), name, site.base_url]
    argv += [str(folder / "plan.json"), str(folder / "out.json")]
    subprocess.run([*argv, *([] if core is None else [str(core)])], check=True, timeout=120)
    return json.loads((folder / "out.json").read_text())


def run_ours(
    site: TruthSite, folder: Path, settings: TrialSettings, core: int | None
) -> tuple[list[tuple[float, str]], Figures]:
    """An ordinary run; returns its plan too, so that the others can follow it."""
    folder.mkdir()
    scenario = trial_scenario(settings, site.scripts, folder, base_url=site.base_url)
    plan = plan_run(scenario)
    texts = {prompt.id: prompt.text for prompt in plan.prompts.prompts}
    arrivals = [(a.scheduled_ns / 1e9, texts[a.prompt_id]) for a in plan.schedules[0]]
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        result = run_on_loop(run_scenario(plan, folder / "run", environment=describe_environment()))
    finally:
        os.sched_setaffinity(0, before)
    found = measure_accuracy(result.folder, site.expected())
    playback = found.playback
    figures = Figures(
        arrival_us=[],
        num_true=playback.num_true,
        num_missed=playback.num_missed,
        num_invented=playback.num_invented,
        num_undecided=playback.num_undecided,
    )
    return arrivals, _with_spreads(figures, result.folder, site)


def _with_spreads(figures: Figures, folder: Path, site: TruthSite) -> Figures:
    """Every single error of ours, for the same percentiles as the others'."""
    from analysis.accuracy.pairs import open_truth_run

    for pair in open_truth_run(folder).pairs(site.expected()):
        said = pair.reported
        assert said.dispatched_ns is not None
        assert pair.truth is not None
        figures.lag_ms.append((said.dispatched_ns - said.scheduled_ns) / MS)
        for index, end in enumerate(pair.payload_ends()):
            true = pair.on_run_clock(pair.truth.arrival_of(end - 1))
            assert true.hi_ns is not None
            at_ns = int(pair.chunks.arrival_ns[index])
            figures.arrival_us.append(max(0, at_ns - true.hi_ns, true.lo_ns - at_ns) / 1_000)
    return figures


@pytest.mark.timeout(600)
@pytest.mark.parametrize("streams", [10, 100, 300])
def test_ours_beside_plain_clients(streams: int, tmp_path: Path):
    """Arrival error, dispatch lag and underruns of each; the ratios of the medians and p99s."""
    placed, totals = cores(), {name: Figures() for name in ("earwitness", *CLIENTS)}
    shares = {name: number for name, number in accuracy_shares().items() if name in raw_scripts()}
    (served := tmp_path / "served").mkdir()
    with truth_site(served, raw_scripts(), cpu=placed.server) as site:
        for turn in range(ROUNDS):
            settings = TrialSettings(
                Transport.HTTP, streams, MEASURE_S, warmup_s=0.0, seed=turn, shares=shares
            )
            plan, ours = run_ours(site, tmp_path / f"ours-{turn}", settings, placed.client)
            _add(totals["earwitness"], ours)
            order = CLIENTS if turn % 2 else CLIENTS[::-1]
            for name in order:
                folder = tmp_path / f"{name}-{turn}"
                rows = run_plain(name, site, folder, plan, placed.client)
                judge_plain(rows, site.expected(), totals[name])
    print(f"\n{streams} replies in flight, {ROUNDS} rounds of {MEASURE_S:g} s (p50 / p99 / max)")
    for name, figures in totals.items():
        print(figures.line(name))
    for name in CLIENTS:
        print(_ratios(name, totals[name], totals["earwitness"]))

    assert (0, 0) == (totals["earwitness"].num_missed, totals["earwitness"].num_invented)
    for name in CLIENTS:
        assert statistics.median(totals[name].arrival_us) > statistics.median(
            totals["earwitness"].arrival_us
        )


def _add(total: Figures, more: Figures) -> None:
    total.arrival_us += more.arrival_us
    total.lag_ms += more.lag_ms
    total.num_true += more.num_true
    total.num_missed += more.num_missed
    total.num_invented += more.num_invented
    total.num_undecided += more.num_undecided


def _ratios(name: str, theirs: Figures, ours: Figures) -> str:
    """Theirs over ours; arrivals from 1 us, below which ours has nothing to divide by."""
    mine, other = spread(ours.arrival_us), spread(theirs.arrival_us)
    lag, other_lag = spread(ours.lag_ms), spread(theirs.lag_ms)
    arrival_p50, arrival_p99 = other.p50 / max(1.0, mine.p50), other.p99 / max(1.0, mine.p99)
    return (
        f"{name} / earwitness: arrival error p50 {arrival_p50:.0f} x, p99 {arrival_p99:.0f} x; "
        f"dispatch lag p50 {other_lag.p50 / lag.p50:.1f} x, p99 {other_lag.p99 / lag.p99:.1f} x"
    )
