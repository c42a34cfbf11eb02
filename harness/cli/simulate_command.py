"""What `earwitness simulate` does: plan as for a run, serve on a virtual clock, print or store."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from harness.cli.scenario_options import Choices, options_of, overrides_of
from harness.cli.simulated_run import SimulatedPoint, write_simulated_run
from harness.errors import ScenarioError
from harness.prompts import Prompt, PromptSet, load_prompts
from harness.runner import check_folder
from harness.scenario import Scenario, parse_scenario
from harness.schedule import Schedule, build_schedule
from reference_engine.config import Profile, load_profile
from reference_engine.cost_table import CostTable, load_costs
from reference_engine.simulate import SimulatedArrival, Simulation, simulate
from reference_engine.simulated_summary import PointSummary, summarise

__all__ = [
    "FRAMES_PER_WORD",
    "SimulateRequest",
    "codec_frames_of",
    "point_arrivals",
    "run_simulations",
    "short_prompts",
    "simulate_seeded",
]

# A frame is 80 ms; English voices say about 2.4 words a second.
FRAMES_PER_WORD = 5.2
_MIN_FRAMES = 6
_WARMUP_S = 5.0
_DRAIN_S = 30.0
_HEAD = [
    "profile", "RPS", "seed", "n", "p50 ms", "p95 ms", "p99 ms", "failed", "underrun",
    "least slack ms", "streams", "device", "rows",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """What was asked for on the command line."""

    profiles: tuple[str, ...]
    cost: str
    rates: str
    duration_s: float
    seeds: str
    policy: str | None = None
    prompts: str = "voice-agent"
    max_words: int = 0
    out: Path | None = None
    is_json: bool = False


def codec_frames_of(prompt: Prompt) -> int:
    """How many codec frames a prompt takes to say."""
    return max(_MIN_FRAMES, round(FRAMES_PER_WORD * len(prompt.text.split())))


def short_prompts(name: str, max_words: int) -> PromptSet:
    """A prompt set without its longest texts (`max_words` 0: with all of them).

    Raises:
        ScenarioError: no such set, or nothing is short enough.
    """
    found = load_prompts(name)
    if not max_words:
        return found
    kept = tuple(p for p in found.prompts if len(p.text.split()) <= max_words)
    if not kept:
        raise ScenarioError(f"--max-words: no prompt of {name!r} has {max_words} words or fewer")
    return PromptSet(f"{found.name}, at most {max_words} words", found.sha256, kept)


def point_arrivals(schedule: Schedule, prompts: PromptSet) -> list[SimulatedArrival]:
    """The plan of a point as the simulator takes it."""
    arrivals = []
    for arrival in schedule:
        prompt = prompts[arrival.prompt_id]
        arrivals.append(
            SimulatedArrival(
                index=arrival.index,
                at_ns=arrival.scheduled_ns,
                num_codec_frames=codec_frames_of(prompt),
                num_characters=len(prompt.text),
            )
        )
    return arrivals


def run_simulations(request: SimulateRequest) -> None:
    """Simulate every profile at every rate and seed; print figures, and write a folder if asked.

    Raises:
        HarnessError, ReferenceEngineError: an option, a profile or a table is wrong.
    """
    if request.out is not None:
        check_folder(request.out)
    costs = load_costs(request.cost)
    profiles = _profiles(request)
    scenario = _scenario(request, tuple(profiles))
    prompts = short_prompts(request.prompts, request.max_words)
    points = _simulate(scenario, profiles, costs, prompts=prompts)
    if request.out is not None:
        write_simulated_run(
            request.out,
            scenario,
            points,
            prompts=prompts,
            profiles=profiles,
            costs=costs,
            command=sys.argv,
        )
        sys.stderr.write(f"simulated run in {request.out}\n")
    summaries = [summarise(point.simulation, from_ns=point.schedule.warmup_ns) for point in points]
    if request.is_json:
        typer.echo(json.dumps(_as_json(points, summaries, profiles, costs), allow_nan=False))
        return
    _print(points, summaries, profiles, costs, prompts=prompts)


def _profiles(request: SimulateRequest) -> dict[str, Profile]:
    """Profiles by the label under which figures name them."""
    overrides = {} if request.policy is None else {"policy": request.policy}
    profiles = {}
    for name in request.profiles:
        profile = load_profile(name, overrides=overrides)
        label = name.replace("/", "-").removesuffix(".yaml").lstrip(".-")
        profiles[label if request.policy is None else f"{label}-{request.policy}"] = profile
    return profiles


def _scenario(request: SimulateRequest, labels: Sequence[str]) -> Scenario:
    """The load as any other run describes it."""
    given = Choices(rates=request.rates, seeds=request.seeds, duration_s=request.duration_s)
    data: dict[str, Any] = {
        "schema": 1,
        "name": "simulated",
        "engines": [{"contract": "simulated", "name": label} for label in labels],
        "arrivals": {"process": "poisson", "rates_rps": [1.0], "seeds": [1]},
        "phases": {"warmup_s": _WARMUP_S, "measure_s": 60.0, "drain_s": _DRAIN_S},
        "prompts": {"set": request.prompts},
        "recording": {"audio": "none"},
    }
    return parse_scenario(
        data,
        where="simulate",
        base_dir=Path.cwd(),
        overrides=overrides_of(given),
        options=options_of(given),
    )


def _simulate(
    scenario: Scenario, profiles: dict[str, Profile], costs: CostTable, *, prompts: PromptSet
) -> list[SimulatedPoint]:
    points = []
    for point in scenario.points():
        schedule = build_schedule(
            scenario,
            rate_rps=point.rate_rps,
            seed=point.seed,
            point_id=point.point_id,
            prompts=prompts,
        )
        simulation = simulate(
            profiles[point.engine],
            costs,
            point_arrivals(schedule, prompts),
            drain_s=scenario.phases.drain_s,
        )
        points.append(SimulatedPoint(point, schedule, simulation, scenario))
    return points


def _as_json(
    points: Sequence[SimulatedPoint],
    summaries: Sequence[PointSummary],
    profiles: dict[str, Profile],
    costs: CostTable,
) -> dict[str, Any]:
    return {
        "kind": "simulated",
        "cost_table": {"label": costs.label, "kind": costs.kind.value, "source": costs.source},
        "profiles": {
            label: {"hash": profile.hash, "settings": profile.resolved()}
            for label, profile in profiles.items()
        },
        "points": [
            {
                "point_id": each.point.point_id,
                "profile": each.point.engine,
                "rate_rps": each.point.rate_rps,
                "seed": each.point.seed,
                **dataclasses.asdict(summary),
            }
            for each, summary in zip(points, summaries, strict=True)
        ],
    }


def _print(
    points: Sequence[SimulatedPoint],
    summaries: Sequence[PointSummary],
    profiles: dict[str, Profile],
    costs: CostTable,
    *,
    prompts: PromptSet,
) -> None:
    frames = [codec_frames_of(prompt) for prompt in prompts.prompts]
    typer.echo(f"SIMULATED with the cost table: {costs.label} ({costs.kind.value})")
    typer.echo(
        f"{prompts.name}: mean {sum(frames) / len(frames):.1f} codec frames; first audible PCM of"
        " all requests, failures worse than any latency"
    )
    for label, profile in profiles.items():
        typer.echo(f"profile {label}: hash {profile.hash}")
    rows = [
        [each.point.engine, f"{each.point.rate_rps:g}", str(each.point.seed), *_cells(summary)]
        for each, summary in zip(points, summaries, strict=True)
    ]
    # Plain columns: a terminal's width must not cut a figure.
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    for row in (_HEAD, *rows):
        typer.echo("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _cells(summary: PointSummary) -> list[str]:
    def ms(value: float | None) -> str:
        return "not reached" if value is None else f"{value:.1f}"

    return [
        str(summary.num_requests),
        ms(summary.p50_ms),
        ms(summary.p95_ms),
        ms(summary.p99_ms) + ("" if summary.num_requests >= 100 else " (= max)"),
        str(summary.num_failed),
        str(summary.num_underrun),
        "-" if summary.min_slack_ms is None else f"{summary.min_slack_ms:.0f}",
        f"{summary.mean_concurrent:.0f}",
        f"{summary.device_share:.0%}",
        f"{summary.frame_rows:.1f}",
    ]


def simulate_seeded(
    profile: Profile, costs: CostTable, *, rate_rps: float, seed: int, duration_s: float,
    prompts: PromptSet,
) -> tuple[Simulation, int]:  # fmt: skip
    """One point without a scenario file: the simulation, and when its warm-up ends (ns)."""
    request = SimulateRequest(("one",), "", f"{rate_rps:.12g}", duration_s, str(seed))
    scenario = _scenario(request, ("one",))
    schedule = build_schedule(scenario, rate_rps=rate_rps, seed=seed, prompts=prompts)
    return (
        simulate(profile, costs, point_arrivals(schedule, prompts), drain_s=_DRAIN_S),
        schedule.warmup_ns,
    )
