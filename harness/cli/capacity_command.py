"""What `earwitness capacity` does: read a sweep, or search with an engine under load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import typer

from analysis.capacity import (
    Capacity,
    CapacityStatus,
    Search,
    Trial,
    read_capacity,
    search_capacity,
    trial_of,
)
from analysis.capacity_words import capacity_json, capacity_text
from analysis.cost import Pricing
from analysis.evidence import load_evidence
from analysis.slo import Slo, load_slo
from harness.cli.run_command import execute
from harness.cli.scenario_options import Choices, choose_scenario
from harness.clock import RunClock
from harness.config_errors import hint
from harness.errors import RunInterruptedError, ScenarioError
from harness.machine_limits import check_new
from harness.plan import Consent, plan_run
from harness.records import RunStatus
from harness.scenario import Scenario

__all__ = ["CapacityRequest", "find_capacity"]

_INCONCLUSIVE = 3


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """What was asked for on the command line.

    choices: a finished run's folder in place of the scenario, with an engine of it at most; else
        what to search with.
    """

    choices: Choices
    consent: Consent = field(default_factory=Consent)
    slo: Path | None = None
    out: Path | None = None
    start_rps: float | None = None
    max_rps: float = 100.0
    ratio: float = 1.2
    num_agreeing: int = 3
    min_requests: int = 40
    budget_min: float = 20.0
    pricing: Pricing = field(default_factory=Pricing)
    is_json: bool = False


def find_capacity(request: CapacityRequest) -> None:
    """Answer and print.

    Raises:
        AnalysisError: the objective or the run cannot be read.
        HarnessError: the scenario, the engine or the folder.
        typer.Exit: 3 where there is no answer.
    """
    slo = Slo() if request.slo is None else load_slo(request.slo)
    folder = Path(request.choices.scenario or "")
    if (folder / "run.json").exists():
        answers = _read(request, folder, slo)
    else:
        answers = [_search(request, slo)]
    _print(answers, request)
    if any(a.status in (CapacityStatus.NO_DATA, CapacityStatus.BUDGET) for a in answers):
        raise typer.Exit(_INCONCLUSIVE)


def _print(answers: list[Capacity], request: CapacityRequest) -> None:
    try:
        if request.is_json:
            stored = capacity_json(answers, pricing=request.pricing)
            typer.echo(json.dumps(stored, allow_nan=False))
        else:
            typer.echo(capacity_text(answers, pricing=request.pricing), nl=False)
    except ValueError as wrong:
        raise ScenarioError(f"capacity: {wrong}") from None


def _read(request: CapacityRequest, folder: Path, slo: Slo) -> list[Capacity]:
    """Of a finished sweep; what only a search can use is refused, not ignored."""
    choices = request.choices
    for option, value in (
        ("-o", request.out),
        ("--base-url", choices.base_url),
        ("--voice", choices.voice),
        ("--param", choices.params),
        ("--start-rate", request.start_rps),
        ("--set", choices.assignments),
    ):
        if value:
            raise ScenarioError(f"capacity: {option}: {folder} is finished and only read; drop it")
    answers = read_capacity(load_evidence(folder), slo)
    names = [answer.engine for answer in answers]
    for engine in choices.engines:
        if engine not in names:
            raise ScenarioError(
                f"capacity: --engine: {engine!r} is not one of {', '.join(names)}"
                f"{hint(engine, names)}"
            )
    return [answer for answer in answers if answer.engine in (choices.engines or names)]


def _search(request: CapacityRequest, slo: Slo) -> Capacity:
    scenario = choose_scenario(request.choices)
    if len(scenario.engines) != 1:
        names = ", ".join(engine.label for engine in scenario.engines)
        raise ScenarioError(f"capacity: searches one engine; choose one of {names} with --engine")
    if request.out is None:
        raise ScenarioError("capacity: a search writes runs; name a new folder with -o")
    check_new(request.out)
    start_rps = request.start_rps
    if start_rps is None:
        start_rps = min(scenario.arrivals.rates_rps)
    try:
        search = Search(
            start_rps,
            lowest_rps=min(0.01, start_rps),
            highest_rps=request.max_rps,
            ratio=request.ratio,
            num_agreeing=request.num_agreeing,
        )
    except ValueError as wrong:
        raise ScenarioError(f"capacity: {wrong}") from None
    return search_capacity(
        _measure(request, scenario, slo), search, engine=scenario.engines[0].label, slo=slo
    )


def _measure(
    request: CapacityRequest, scenario: Scenario, slo: Slo
) -> Callable[[float, int], Trial | None]:
    """Runs one point into a folder of its own; None once the budget is spent."""
    out = request.out
    assert out is not None
    clock = RunClock()
    limit_ns = round(request.budget_min * 60e9)

    def measure(rate_rps: float, seed: int) -> Trial | None:
        if clock.now_ns() >= limit_ns:
            return None
        measure_s = max(scenario.phases.measure_s, request.min_requests / rate_rps)
        choices = replace(
            request.choices, rates=repr(rate_rps), seeds=str(seed), duration_s=measure_s
        )
        chosen = choose_scenario(choices)
        folder = out / f"r{rate_rps:g}-s{seed}"
        result = execute(plan_run(chosen, consent=request.consent), folder)
        if result.status is RunStatus.INTERRUPTED:
            raise RunInterruptedError(f"interrupted; what was measured so far is in {out}")
        (point,) = load_evidence(folder).points
        trial = trial_of(point, slo)
        sys.stderr.write(f"{rate_rps:g}/s, seed {seed}: {_told(trial)}\n")
        return trial

    return measure


def _told(trial: Trial) -> str:
    if trial.meets is None:
        return "says nothing, the client was invalid"
    return "meets the objective" if trial.meets else f"misses it: {'; '.join(trial.misses)}"
