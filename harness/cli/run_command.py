"""What `earwitness run` does: plan, ask consent, load, close the folder, then analyse it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from harness.cli.analysis_steps import WordScoring, analyse, print_report, require_whisper
from harness.cli.progress import ProgressLine
from harness.cli.scenario_options import Choices, choose_scenario
from harness.clock import RunClock
from harness.environment import describe_environment
from harness.errors import (
    AllRequestsFailedError,
    HarnessError,
    LoadStoppedError,
    RunFolderError,
    RunInterruptedError,
    ScenarioError,
)
from harness.loop import run as run_loop
from harness.machine_limits import disk_warning
from harness.plan import Consent, RunPlan, plan_run, redactor
from harness.records import RunRecord, RunStatus
from harness.runner import RunResult, check_folder, remaining_points, run_scenario
from harness.scenario import Point, Scenario, parse_scenario
from harness.store import open_run

__all__ = ["RunRequest", "execute", "run_and_report"]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What was asked for on the command line."""

    choices: Choices
    out: Path | None = None
    resume: Path | None = None
    consent: Consent = field(default_factory=Consent)
    has_report: bool = True
    has_wer: bool = False
    is_json: bool = False


def run_and_report(request: RunRequest) -> None:
    """Run it and print what it found.

    Raises:
        HarnessError: in all its kinds; the exit code is theirs.
    """
    if request.has_wer:
        require_whisper("leave out --wer")
    if request.resume is not None:
        if request.out is not None:
            raise ScenarioError("-o: --resume writes into the folder it goes on with; drop one")
        scenario, points = _what_is_left(request.resume, request.choices)
        folder = request.resume
    else:
        scenario, points = choose_scenario(request.choices), None
        folder = request.out or _default_folder(scenario)
        check_folder(folder)
    plan = plan_run(scenario, consent=request.consent, points=points)
    for estimate in plan.estimates:
        sys.stderr.write(f"will send to {estimate.line()}\n")
    result = execute(plan, folder, is_resumed=request.resume is not None)
    sys.stderr.write(f"recorded in {folder} ({result.status})\n")
    _finish(request, result)


def execute(plan: RunPlan, folder: Path, *, is_resumed: bool = False) -> RunResult:
    """Run a plan with progress on stderr; Ctrl-C and SIGTERM end it in order.

    Raises:
        HarnessError: as `run_scenario`.
    """
    _warn_of_a_full_disk(plan, folder)
    observer = ProgressLine(plan, sys.stderr)
    try:
        return run_loop(_execute(plan, folder, observer, is_resumed=is_resumed))
    except HarnessError as fault:
        # It may hold words of a server, and those what the server was told.
        raise type(fault)(redactor(plan.secrets)(str(fault))) from None
    finally:
        observer.close()


def _warn_of_a_full_disk(plan: RunPlan, folder: Path) -> None:
    warning = disk_warning(
        folder,
        plan.scenario.recording,
        num_requests=sum(estimate.num_requests for estimate in plan.estimates),
        num_characters=sum(estimate.num_characters for estimate in plan.estimates),
    )
    if warning is not None:
        sys.stderr.write(f"earwitness: warning: {warning}\n")


async def _execute(
    plan: RunPlan, folder: Path, observer: ProgressLine, *, is_resumed: bool
) -> RunResult:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    try:
        return await run_scenario(
            plan,
            folder,
            environment=describe_environment(),
            observer=observer,
            command=["earwitness", *sys.argv[1:]],
            stop=stop,
            is_resumed=is_resumed,
        )
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(signum)


def _finish(request: RunRequest, result: RunResult) -> None:
    """Analyse what was recorded, then say how it ended."""
    if result.status is RunStatus.INTERRUPTED:
        raise RunInterruptedError(
            f"interrupted; what had finished is in {result.folder}: look at it with "
            f"`earwitness report {result.folder}`, go on with --resume {result.folder}"
        )
    is_invalid = False
    if request.has_report:
        report = analyse(result.folder, words=WordScoring() if request.has_wer else None)
        print_report(report, is_json=request.is_json)
        is_invalid = _has_invalid_point(report.metrics, open_run(result.folder).record)
    if result.status is RunStatus.INCOMPLETE:
        raise LoadStoppedError(f"{result.folder}: {result.reason}")
    if result.num_ok == 0 and result.num_measured:
        raise AllRequestsFailedError(
            f"{result.folder}: all {result.num_measured} measured requests failed"
        )
    if is_invalid:
        sys.stderr.write("earwitness: a point is invalid; its figures must not be used\n")
        raise typer.Exit(LoadStoppedError.exit_code)


def _has_invalid_point(metrics: Mapping[str, Any], stored: RunRecord) -> bool:
    """Of the whole points: the remains of an interrupted one say nothing about this run."""
    whole = {point.point_id for point in stored.points if point.is_complete}
    return any(
        point["validity"]["verdict"] == "invalid"
        for point in metrics["points"]
        if point["point_id"] in whole
    )


def _default_folder(scenario: Scenario) -> Path:
    """`results/<name>-<UTC time>`, which a second run in the same second would not find free."""
    moment = RunClock().anchor_utc[:19].replace(":", "").replace("-", "")
    return Path("results") / f"{scenario.name}-{moment}"


def _what_is_left(folder: Path, choices: Choices) -> tuple[Scenario, tuple[Point, ...]]:
    stored = open_run(folder).record
    if stored.status is RunStatus.RUNNING:
        raise RunFolderError(f"{folder}: was not closed; run `earwitness recover {folder}` first")
    points = remaining_points(stored)
    if not points:
        raise RunFolderError(f"{folder}: every point is complete; there is nothing to resume")
    return _stored_scenario(folder, stored, choices), points


def _stored_scenario(folder: Path, stored: RunRecord, choices: Choices) -> Scenario:
    """The scenario of the first sitting: another one would not belong into the same tables."""
    if not choices.is_empty:
        raise ScenarioError(
            "--resume: goes on with the scenario stored in the folder; drop the other options"
        )
    return parse_scenario(
        stored.scenario, where=str(folder / "run.json"), base_dir=folder.absolute()
    )
