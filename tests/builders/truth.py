"""A truth server for a whole test session, and short ordinary runs against it."""

from __future__ import annotations

import contextlib
import ssl
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.accuracy import Accuracy, measure_accuracy
from analysis.aggregate import summarise_run
from harness.child import start_child
from harness.clock import RunClock
from harness.environment import Environment
from harness.loop import run as run_on_loop
from harness.plan import plan_run
from harness.records import PointRecord
from harness.runner import RunObserver, SilentObserver, run_scenario
from harness.scenario import parse_scenario
from harness.store import open_run
from harness.truth.book import by_name, save_scripts
from harness.truth.certificate import write_certificate
from harness.truth.expected import ExpectedReply, expected_replies
from harness.truth.log import TruthLog, parse_log
from harness.truth.script import (
    Ending,
    Script,
    back_to_back,
    cut_off,
    delayed_end,
    late,
    merged,
    paced,
    split,
)
from harness.truth.sound import Sound
from harness.truth.trial import Transport, TrialSettings, trial_scenario

__all__ = ["REPLY_MS", "Judged", "TruthSite", "short_scripts", "truth_site"]

REPLY_MS = 480.0


def short_scripts() -> dict[str, Script]:
    """Replies of 480 ms in real time, most of them smooth, so that a test takes a second or two."""
    sounds = {
        f"tone-{lead_ms}ms": Sound(duration_ms=REPLY_MS, lead_ms=lead_ms)
        for lead_ms in (0, 25, 60, 110, 150, 200)
    }
    smooth = [paced(name, sound, chunk_ms=40.0) for name, sound in sounds.items()]
    base = smooth[1]
    return by_name(
        [
            *smooth,
            late(base, "late", chunk=5, by_ms=25.0),
            back_to_back(base, "two-at-once", chunk=4, count=2),
            merged(base, "two-in-one", chunk=4, count=2),
            split(base, "split", chunk=6, first_bytes=501, gap_ms=6.0),
            delayed_end(base, "end-alone", by_ms=15.0),
            cut_off(base, "reset", chunk=6, ending=Ending.RESET),
            cut_off(base, "cut-off", chunk=8, ending=Ending.CLOSE),
        ]
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """A run against the truth server, as everybody else sees it and as it really was."""

    folder: Path
    point: PointRecord
    summary: dict[str, Any]
    accuracy: Accuracy

    @property
    def verdict(self) -> str:
        return str(self.summary["points"][0]["validity"]["verdict"])

    @property
    def reasons(self) -> dict[str, Any]:
        """What the report says against the point: remedy by code."""
        found = self.summary["points"][0]["validity"]["reasons"]
        return {reason["code"]: reason for reason in found}

    @property
    def stall_causes(self) -> set[str]:
        return {stall["cause"] for stall in self.point.selfcheck["stalls"]}


@dataclass(frozen=True, slots=True)
class TruthSite:
    """A running truth server and its scripts."""

    base_url: str
    scripts: dict[str, Script]
    transport: Transport = Transport.HTTP
    ca_file: Path | None = None
    shares: dict[str, int] = field(default_factory=dict)

    def log(self) -> TruthLog:
        """Everything it did so far."""
        context = None
        if self.ca_file is not None:
            context = ssl.create_default_context(cafile=str(self.ca_file))
        url = f"{self.base_url}/truth/log"
        with urllib.request.urlopen(url, timeout=10, context=context) as reply:
            return parse_log(reply.read(), where=self.base_url)

    def expected(self) -> dict[int, ExpectedReply]:
        """What its clients should have measured."""
        return expected_replies(self.log(), self.scripts)

    def run(self, folder: Path, **settings: Any) -> Judged:
        """`record`, then `judge`."""
        return self.judge(self.record(folder, **settings))

    def judge(self, run_folder: Path) -> Judged:
        """What a recorded run says, and what was true."""
        return Judged(
            folder=run_folder,
            point=open_run(run_folder).record.points[0],
            summary=summarise_run(run_folder),
            accuracy=measure_accuracy(run_folder, self.expected()),
        )

    def record(
        self,
        folder: Path,
        *,
        scripts: Sequence[str] = (),
        streams: int = 10,
        measure_s: float = 0.7,
        warmup_s: float = 0.1,
        is_kernel_stamped: bool = True,
        observer: RunObserver | None = None,
        change: Callable[[dict[str, Any]], None] | None = None,
        shares: dict[str, int] | None = None,
        seed: int = 1,
    ) -> Path:
        """One ordinary run into `folder`/run; `change` may alter the scenario as plain data."""
        chosen = {name: self.scripts[name] for name in scripts} if scripts else self.scripts
        settings = TrialSettings(
            transport=self.transport,
            streams=streams,
            measure_s=measure_s,
            warmup_s=warmup_s,
            reply_s=REPLY_MS / 1000,
            seed=seed,
            shares=shares or {},
        )
        scenario = trial_scenario(
            settings, chosen, folder, base_url=self.base_url, ca_file=self.ca_file
        )
        if change is not None:
            data = scenario.resolved()
            change(data)
            scenario = parse_scenario(data, where="test", base_dir=folder)
        result = run_on_loop(
            run_scenario(
                plan_run(scenario),
                folder / "run",
                environment=Environment(),
                observer=observer or SilentObserver(),
                is_kernel_stamped=is_kernel_stamped,
            )
        )
        return result.folder


@contextlib.contextmanager
def truth_site(
    folder: Path, scripts: dict[str, Script], *, transport: Transport = Transport.HTTP
) -> Iterator[TruthSite]:
    """Serve scripts from a process of its own while the block lasts."""
    book = folder / "scripts.json"
    save_scripts(scripts, book)
    argv = [sys.executable, "-P", "-m", "harness.truth", "--port=0", "--stop-on-stdin-eof"]
    argv.append(f"--scripts={book}")
    ca_file = None
    if transport.is_sealed:
        files = write_certificate(folder)
        argv += [f"--cert={files.certificate}", f"--key={files.key}"]
        ca_file = files.certificate
    with start_child(argv, name="truth server", ready_s=20, clock=RunClock()) as server:
        yield TruthSite(server.base_url, scripts, transport, ca_file)
