"""A truth server for a whole test session, and short ordinary runs against it."""

from __future__ import annotations

import contextlib
import json
import ssl
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.accuracy import Accuracy, measure_accuracy
from analysis.aggregate import summarise_run
from analysis.metrics import request_metrics
from analysis.stamps import StampRule
from analysis.view import AnalysisContext, RequestView, view_request
from engines import registry
from engines.base import SpeechRequest
from harness.child import start_child
from harness.clock import RunClock
from harness.environment import Environment
from harness.loop import run as run_on_loop
from harness.observer import RunObserver, SilentObserver
from harness.plan import plan_run
from harness.records import PointRecord, StampSource
from harness.runner import run_scenario
from harness.scenario import parse_scenario
from harness.settings import ConnectionMode, ConnectionSettings, WireSettings
from harness.single import single
from harness.store import open_run
from harness.truth.book import by_name, save_scripts
from harness.truth.certificate import write_certificate
from harness.truth.expected import Bracket, ExpectedReply, expected_replies
from harness.truth.log import TruthLog, parse_log
from harness.truth.script import (
    Container,
    Ending,
    Item,
    ItemKind,
    Script,
    Step,
    back_to_back,
    cut_off,
    delayed_end,
    late,
    merged,
    paced,
    split,
)
from harness.truth.sound import Sound
from harness.truth.trial import CONTRACT, Transport, TrialSettings, trial_scenario

__all__ = [
    "REPLY_MS",
    "Heard",
    "Judged",
    "TruthSite",
    "case_scripts",
    "short_scripts",
    "truth_site",
]

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


def case_scripts() -> dict[str, Script]:
    """Replies from practice, each with an answer that is easy to get wrong."""

    def reply(name: str, chunks: Sequence[tuple[float, float]], lead_ms: float = 0.0) -> Script:
        """Chunks as (at ms, ms of audio), the end in one send with the last."""
        sound = Sound(duration_ms=sum(length for _, length in chunks), lead_ms=lead_ms)
        steps = [Step(at_ms=0, put=(Item(kind=ItemKind.HEAD),))]
        for index, (at_ms, length_ms) in enumerate(chunks, start=1):
            audio = Item(kind=ItemKind.AUDIO, samples=sound.num_samples(length_ms))
            end = (Item(kind=ItemKind.END),) if index == len(chunks) else ()
            steps.append(Step(at_ms=at_ms, put=(audio, *end)))
        return Script(name=name, sound=sound, steps=tuple(steps))

    header_first = reply("header-first", [(300 + 10 * i, 10) for i in range(20)])
    head, *rest = header_first.steps
    container = Step(at_ms=50, put=(Item(kind=ItemKind.CONTAINER),))
    return by_name(
        [
            reply("tone-in-time", [(20, 400), (300, 500)], lead_ms=400),
            reply("tone-too-late", [(20, 400), (600, 500)], lead_ms=400),
            reply("hasty-start", [(100, 80), (400, 640), (900, 640)]),
            reply("steady", [(25 + 20 * i, 25) for i in range(20)]),
            reply("two-bursts", [(205 if i < 10 else 405, 25) for i in range(20)]),
            Script(
                name="header-first",
                sound=header_first.sound,
                steps=(head, container, *rest),
                container=Container.WAV,
            ),
        ]
    )


@dataclass(frozen=True, slots=True)
class Heard:
    """One reply as analysis sees it, and the truth about it on the same clock."""

    view: RequestView
    truth: ExpectedReply
    shift_ns: int

    @property
    def metrics(self) -> dict[str, float | None]:
        """Every request metric by name."""
        return {metric.name: metric.compute(self.view) for metric in request_metrics()}

    def since_dispatch_ms(self, bracket: Bracket | None) -> tuple[float, float]:
        """A moment of the truth as latency: not less, not more."""
        assert bracket is not None
        assert bracket.hi_ns is not None
        origin_ns = self.view.record.dispatched_ns - self.shift_ns
        return (bracket.lo_ns - origin_ns) / 1e6, (bracket.hi_ns - origin_ns) / 1e6


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
    names: tuple[str, ...] = ()  # of the scripts that a run draws from; none: all

    def over(self, transport: Transport) -> TruthSite:
        """The same server, asked in another way."""
        assert transport.is_sealed == self.transport.is_sealed
        return replace(self, transport=transport)

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

    def say(self, name: str) -> Heard:
        """One reply, outside a run."""
        clock = RunClock()
        adapter = registry.create(str(CONTRACT), base_url=self.base_url)
        wire = WireSettings(connections=ConnectionSettings(mode=ConnectionMode.COLD))
        said = run_on_loop(single(adapter, SpeechRequest("one", name), settings=wire, clock=clock))
        rule = StampRule(StampSource.KERNEL, clock.uncertainty_ns)
        view = view_request(said.record, said.payload, AnalysisContext(stamps=rule))
        number = json.loads(said.record.server_timing or "{}")["truth_request"]
        return Heard(view, self.expected()[int(number)], clock.from_monotonic_ns(0))

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
        names = scripts or self.names or tuple(self.scripts)
        chosen = {name: self.scripts[name] for name in names}
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
    folder: Path,
    scripts: dict[str, Script],
    *,
    transport: Transport = Transport.HTTP,
    names: tuple[str, ...] = (),
    cpu: int | None = None,
) -> Iterator[TruthSite]:
    """Serve scripts from a process of its own while the block lasts."""
    book = folder / "scripts.json"
    save_scripts(scripts, book)
    argv = [sys.executable, "-P", "-m", "harness.truth", "--port=0", "--stop-on-stdin-eof"]
    argv.append(f"--scripts={book}")
    argv += [] if cpu is None else [f"--cpu={cpu}"]
    ca_file = None
    if transport.is_sealed:
        files = write_certificate(folder)
        argv += [f"--cert={files.certificate}", f"--key={files.key}"]
        ca_file = files.certificate
    with start_child(argv, name="truth server", ready_s=20, clock=RunClock()) as server:
        yield TruthSite(server.base_url, scripts, transport, ca_file, names)
