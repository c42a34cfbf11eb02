"""What `earwitness schedule` does: a run's plan and its size, without sending anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import typer
from rich.table import Table

from engines import registry
from harness.cli.scenario_options import Choices, choose_scenario
from harness.cli.terminal import Terminal
from harness.errors import AuthorizationError
from harness.plan import engines_ahead, plan_points
from harness.prompts import PromptSet, load_prompts
from harness.safety import Estimate, authorize, estimate_load
from harness.scenario import Point, Scenario
from harness.schedule import Schedule

__all__ = ["show_schedule"]

_NS_PER_S = 1_000_000_000


def show_schedule(choices: Choices, *, has_arrivals: bool, is_json: bool) -> None:
    """Print the plan as a table or as JSON.

    No key is needed and no engine is asked: only its usual address is looked up.
    """
    scenario = choose_scenario(choices)
    prompts = load_prompts(scenario.prompts.set, tags=scenario.prompts.tags)
    points = scenario.points()
    plans = plan_points(scenario, points, prompts=prompts)
    base_urls = _base_urls(scenario)
    estimates = estimate_load(
        scenario,
        plans,
        prompts=prompts,
        base_urls={point.point_id: base_urls[point.engine] for point in points},
        ahead=[base_urls[label] for label in engines_ahead(scenario, points)],
    )
    document = {
        "name": scenario.name,
        "prompts": {"set": prompts.name, "sha256": prompts.sha256, "num_prompts": len(prompts)},
        "points": [
            _point(point, plan, prompts, has_arrivals)
            for point, plan in zip(points, plans, strict=True)
        ],
        "estimates": [_estimate(estimate) for estimate in estimates],
        "refused": _refusal(estimates, scenario),
    }
    if is_json:
        typer.echo(json.dumps(document, allow_nan=False))
    else:
        _print(document, estimates, has_arrivals)


def _base_urls(scenario: Scenario) -> dict[str, str]:
    return {
        engine.label: engine.base_url or registry.card(engine.contract).base_url or engine.contract
        for engine in scenario.engines
    }


def _point(point: Point, plan: Schedule, prompts: PromptSet, has_arrivals: bool) -> dict[str, Any]:
    texts = [prompts[arrival.prompt_id].text for arrival in plan]
    found: dict[str, Any] = {
        "point_id": point.point_id,
        "engine": point.engine,
        "rate_rps": point.rate_rps,
        "seed": point.seed,
        "num_warmup": plan.num_warmup,
        "num_measured": plan.num_measured,
        "planned_rps": plan.offered_rps,
        "num_characters": sum(len(text) for text in texts),
        "last_arrival_s": plan.arrivals[-1].scheduled_ns / _NS_PER_S,
    }
    if has_arrivals:
        found["arrivals"] = [
            {
                "index": arrival.index,
                "phase": arrival.phase.value,
                "at_s": arrival.scheduled_ns / _NS_PER_S,
                "prompt_id": arrival.prompt_id,
            }
            for arrival in plan
        ]
    return found


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "host": estimate.host,
        "is_public": estimate.is_public,
        "num_requests": estimate.num_requests,
        "num_ahead": estimate.num_ahead,
        "num_characters": estimate.num_characters,
        "max_rate_rps": estimate.max_rate_rps,
        "duration_s": estimate.duration_s,
        "cost": estimate.cost,
    }


def _refusal(estimates: tuple[Estimate, ...], scenario: Scenario) -> str | None:
    """Why a run of this would be refused; None when it would be let through."""
    try:
        authorize(estimates, scenario.authorization)
    except AuthorizationError as refusal:
        return str(refusal)
    return None


def _print(
    document: Mapping[str, Any], estimates: tuple[Estimate, ...], has_arrivals: bool
) -> None:
    table = Table(title=f"{document['name']}: what a run would send", title_justify="left")
    for heading in ("point", "rate/s", "offered/s", "n", "warm-up", "seed", "characters"):
        is_name = heading == "point"
        table.add_column(heading, justify="left" if is_name else "right", overflow="fold")
    for point in document["points"]:
        table.add_row(
            point["point_id"],
            f"{point['rate_rps']:g}",
            f"{point['planned_rps']:.3g}",
            str(point["num_measured"]),
            str(point["num_warmup"]),
            str(point["seed"]),
            str(point["num_characters"]),
        )
    console = Terminal()
    console.print(table)
    for point in document["points"] if has_arrivals else ():
        for arrival in point["arrivals"]:
            typer.echo(
                f"{point['point_id']}  {arrival['at_s']:9.3f} s  {arrival['phase']:7}  "
                f"{arrival['prompt_id']}"
            )
    for estimate in estimates:
        typer.echo(estimate.line())
    if document["refused"]:
        typer.echo(f"would be refused: {document['refused']}")
