"""The tables of a simulator study as Markdown; every one says what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cli.simulate_study import (
    POLICIES,
    PROFILES,
    Measured,
    Study,
    ladder_rungs,
    profiles_without,
)
from reference_engine.cost_table import CostKind, load_costs

__all__ = ["LATENCY_LIMIT_MS", "kind_words", "markdown", "num_seeds", "sustained"]

LATENCY_LIMIT_MS = 50.0


def kind_words(cost: str) -> str:
    """What a cost table is, in words nobody can mistake."""
    kind = load_costs(cost).kind
    return {
        CostKind.TARGET: "targets: nobody has measured these stage times",
        CostKind.MEASURED_BY_OTHERS: "stage times measured by others",
        CostKind.MEASURED: "stage times measured here",
    }[kind]


def markdown(study: Study) -> str:
    """All tables."""
    parts: list[str] = []
    for cost in sorted({point.job.cost for point in study.points}):
        parts += [f"### Simulated with `{cost}` ({kind_words(cost)})", ""]
        parts += [*_curves(study, cost), *_capacity(study, cost)]
        parts += [*_policies(study, cost), *_ladder(study, cost), *_without(study, cost)]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def _ms(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.1f}"


def _cell(study: Study, part: str, **keys: object) -> str:
    """p95, and the share of requests with an underrun where there is one."""
    if not study.of(part, **keys):
        return "-"
    share = study.underrun_share(part, **keys)
    text = _ms(study.worst_p95_ms(part, **keys))
    return text if not share else f"{text} ({share:.1%} underrun)"


def num_seeds(points: Sequence[Measured]) -> str:
    """`1 seed` or `2 seeds`."""
    num = len({point.job.seed for point in points})
    return f"{num} seed" if num == 1 else f"{num} seeds"


def _conditions(study: Study, part: str, cost: str) -> str:
    points = study.of(part, cost=cost)
    seconds = sorted({point.job.duration_s for point in points})
    sizes = sorted({point.summary.num_requests for point in points})
    return (
        f"{num_seeds(points)} x {seconds[0]:g} s, n = {sizes[0]} to {sizes[-1]} a point; failures"
        " worse than any latency"
    )


def _curves(study: Study, cost: str) -> list[str]:
    rates = study.rates("curve")
    rows = [
        [f"`{name}`", *(_cell(study, "curve", cost=cost, profile=name, rate_rps=r) for r in rates)]
        for name in PROFILES
    ]
    said = (
        f"First audible PCM, p95 in ms, by arrivals a second ({_conditions(study, 'curve', cost)})."
    )
    return [said, "", *_table(["profile", *(f"{rate:g}" for rate in rates)], rows)]


def sustained(points: Sequence[Measured], *, max_p95_ms: float | None) -> Measured | None:
    """The last point before the first that has an underrun, a failure or too high a p95."""
    best = None
    for point in points:
        is_quick = max_p95_ms is None or (
            point.summary.p95_ms is not None and point.summary.p95_ms <= max_p95_ms
        )
        if not (point.summary.is_smooth and is_quick):
            break
        best = point
    return best


def _capacity(study: Study, cost: str) -> list[str]:
    rows = []
    for name in PROFILES:
        points = study.of("curve", cost=cost, profile=name)
        quick = sustained(points, max_p95_ms=LATENCY_LIMIT_MS)
        smooth = sustained(points, max_p95_ms=None)
        rows.append(
            [
                f"`{name}`",
                "none" if quick is None else f"{quick.job.rate_rps:g}",
                "none" if smooth is None else f"{smooth.job.rate_rps:g}",
                "-" if smooth is None else f"{smooth.summary.mean_concurrent:.0f}",
                "-" if smooth is None else f"{smooth.summary.device_share:.0%}",
            ]
        )
    head = ["profile", f"highest rate with p95 <= {LATENCY_LIMIT_MS:g} ms",
            "highest rate without any underrun", "streams at that rate", "device busy"]  # fmt: skip
    said = "How far it goes, of the rates above (no underrun, no failure at it or below it)."
    return [said, "", *_table(head, rows)]


def _policies(study: Study, cost: str) -> list[str]:
    rates = study.rates("policy")
    rows = [
        [f"`{name}`", *(_cell(study, "policy", cost=cost, policy=name, rate_rps=r) for r in rates)]
        for name in POLICIES
    ]
    for name in POLICIES[1:]:
        ratios = []
        for rate in rates:
            ours = study.worst_p95_ms("policy", cost=cost, policy=POLICIES[0], rate_rps=rate)
            theirs = study.worst_p95_ms("policy", cost=cost, policy=name, rate_rps=rate)
            ratios.append("-" if not ours or not theirs else f"{theirs / ours:.2f} x")
        rows.append([f"`{name}` / `{POLICIES[0]}`", *ratios])
    said = (
        "What the policy is worth: profile `ttfa`, same chunks, same arrivals, p95 in ms"
        f" ({_conditions(study, 'policy', cost)})."
    )
    return [said, "", *_table(["policy", *(f"{rate:g}" for rate in rates)], rows)]


def _ladder(study: Study, cost: str) -> list[str]:
    rates = study.rates("ladder")
    rows = [
        [
            f"`{rung.removeprefix('ladder/')}`",
            *(_cell(study, "ladder", cost=cost, profile=rung, rate_rps=rate) for rate in rates),
        ]
        for rung in ladder_rungs()
    ]
    said = (
        "What each optimisation is worth: every rung is the one above it and one thing more, p95 in"
        f" ms ({_conditions(study, 'ladder', cost)})."
    )
    return [said, "", *_table(["rung", *(f"{rate:g}" for rate in rates)], rows)]


def _without(study: Study, cost: str) -> list[str]:
    rates = study.rates("without")
    if not rates:
        return []
    rows = [
        [
            f"`{name.removeprefix('ladder/')}`",
            *(_cell(study, "without", cost=cost, profile=name, rate_rps=rate) for rate in rates),
        ]
        for name in profiles_without()
    ]
    said = (
        "What `ttfa` loses when one optimisation is switched off and all others stay on, p95 in ms"
        f" ({_conditions(study, 'without', cost)})."
    )
    return [said, "", *_table(["profile", *(f"{rate:g}" for rate in rates)], rows)]
