"""From metrics.json and run.json to what a report says. Figures are put into words here, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.capacity import Capacity
from analysis.metrics import PointValue, registry
from analysis.metrics.playback import START_DELAYS_MS
from analysis.percentiles import PercentileStatus
from analysis.report.decisions import decide, reason_words
from analysis.report.facts import commands, conditions, engine_facts, environment, notes
from analysis.report.model import (
    Cell,
    Column,
    EngineView,
    MetricView,
    PointView,
    ReportModel,
    Table,
    Term,
    Tone,
)
from analysis.report.settings import ReportSettings
from analysis.report.speech_view import speech_table, wer_cell
from analysis.report.terms import GENERAL_TERMS, OUTCOME_DEFINITIONS
from analysis.report.words import (
    NOT_MEASURED,
    interval_share,
    number,
    percentile_note,
    point_value,
    rate,
    share,
    with_note,
)
from harness.records import RunKind, RunRecord

__all__ = ["build_model"]

_VERDICT_TONES = {"valid": Tone.GOOD, "suspect": Tone.WARN, "invalid": Tone.BAD}


def build_model(
    metrics: Mapping[str, Any],
    run: RunRecord | None,
    settings: ReportSettings,
    *,
    capacities: Sequence[Capacity] = (),
) -> ReportModel:
    """The whole of a report less its charts and its explorer.

    Args:
        metrics: the contents of metrics.json.
        run: the head of the run; None leaves out environment and commands.
        settings: what was chosen.
        capacities: of its engines; empty leaves out what they answer.
    """
    engines = _engines(metrics, run)
    points = [point for engine in engines for point in engine.points]
    return ReportModel(
        title=settings.title or metrics["name"],
        is_simulated=metrics["kind"] == RunKind.SIMULATED,
        status=metrics["status"],
        created_utc=run.created_utc if run else "",
        conditions=conditions(metrics, run),
        decisions=decide(
            engines, settings, start_rule=metrics["start_rule"], capacities=capacities
        ),
        engines=engines,
        points_table=_points_table(points),
        outcomes_table=_outcomes_table(points),
        speech_table=speech_table(engines),
        start_delay_table=_start_delay_table(points),
        environment=environment(run) if run else (),
        commands=commands(run) if run else (),
        terms=_terms(),
        notes=notes(metrics, run),
    )


# -- engines and points ---------------------------------------------------------------------------


def _engines(metrics: Mapping[str, Any], run: RunRecord | None) -> tuple[EngineView, ...]:
    points = [_point(point) for point in metrics["points"]]
    described = {str(engine.get("name")): engine for engine in run.engines} if run else {}
    heard = {entry["engine"]: entry["wer"] for entry in metrics["engines"]}
    # In the order of the run's own list, so that colours stay with their engine.
    names = dict.fromkeys([*described, *(point.engine for point in points)])
    views: list[EngineView] = []
    for name in names:
        own = sorted(
            (point for point in points if point.engine == name),
            key=lambda point: (point.rate_rps, point.seed),
        )
        if own:
            views.append(
                EngineView(
                    name=name,
                    series=len(views),
                    facts=engine_facts(described.get(name, {})),
                    points=tuple(own),
                    wer=wer_cell(heard.get(name)),
                    speech=heard.get(name),
                )
            )
    return tuple(views)


def _point(raw: Mapping[str, Any]) -> PointView:
    verdict = raw["validity"]["verdict"]
    outcomes = {str(name): int(num) for name, num in raw["outcomes"].items() if num}
    own = raw["metrics"]
    return PointView(
        point_id=raw["point_id"],
        engine=raw["engine"],
        rate_rps=raw["rate_rps"],
        seed=raw["seed"],
        achieved=Cell(rate(raw["achieved_rps"]), raw["achieved_rps"]),
        n=raw["n"],
        failures=_failures(point_value(raw, "failure_rate")),
        outcomes=outcomes,
        verdict=Cell(verdict, tone=_VERDICT_TONES.get(verdict, Tone.NONE)),
        reasons=tuple(reason_words([reason]) for reason in raw["validity"]["reasons"]),
        load=Cell(raw["load"], tone=Tone.WARN if raw["load"] == "overloaded" else Tone.NONE),
        metrics={
            name: _metric(name, metric)
            for name, metric in own.items()
            if "p50" in metric  # a metric of the point as a whole has one value instead
        },
        underruns=_share_cell(point_value(raw, "underrun_rate")),
        wer=_share_cell(point_value(raw, "wer")),
        raw=raw,
    )


def _metric(name: str, raw: Mapping[str, Any]) -> MetricView:
    return MetricView(
        name=name,
        unit=raw["unit"],
        n=raw["n"],
        missing=raw["missing"],
        not_reached=raw["not_reached"],
        p50=_percentile_cell(raw, 50),
        p95=_percentile_cell(raw, 95),
        p99=_percentile_cell(raw, 99),
        successes=_successes(raw),
        raw=raw,
    )


def _percentile_cell(raw: Mapping[str, Any], percent: int) -> Cell:
    """One percentile; n is left to the row, which has it once."""
    found = raw[f"p{percent}"]
    if found["status"] == PercentileStatus.NO_DATA:
        return Cell(NOT_MEASURED)
    if found["status"] == PercentileStatus.NOT_REACHED:
        return Cell("not reached", None, f"{raw['not_reached']} of {raw['n']} failed", Tone.BAD)
    return Cell(number(found["value"], raw["unit"]), found["value"], percentile_note(raw, percent))


def _successes(raw: Mapping[str, Any]) -> str:
    found = raw.get("successes")
    if not found or not found["n"]:
        return "no request succeeded"
    unit = raw["unit"]
    parts = [f"{name} {number(found[name], unit)}" for name in ("min", "p50", "mean", "p95")]
    return f"successes alone (n = {found['n']}): " + ", ".join(parts)


def _share_cell(found: PointValue | None) -> Cell:
    """A share of a point with its interval; what it does not apply to is said, not hidden."""
    if found is None or found.value is None:
        missing = f"not applicable to {found.missing}" if found and found.missing else ""
        return Cell(NOT_MEASURED, note=missing)
    return Cell(share(found.value), found.value, interval_share(found.lo, found.hi))


def _failures(found: PointValue | None) -> Cell:
    if found is None or found.value is None:
        return Cell(NOT_MEASURED)
    num_failed = round(found.value * found.n)
    tone = Tone.BAD if num_failed else Tone.NONE
    return Cell(f"{num_failed} of {found.n}", found.value, share(found.value), tone)


# -- tables ---------------------------------------------------------------------------------------

_POINT_COLUMNS = (
    Column("engine", is_number=False),
    Column("rate"),
    Column("achieved", "achieved_rate", is_detail=True),
    Column("n"),
    Column("audible TTFA p50", "audible_ttfa"),
    Column("audible TTFA p95", "audible_ttfa"),
    Column("audible TTFA p99", "audible_ttfa", is_detail=True),
    Column("received p50", "audible_received", is_detail=True),
    Column("received p95", "audible_received"),
    Column("from schedule p95", "audible_ttfa_from_schedule", is_detail=True),
    Column("stutter", "underrun_rate"),
    Column("stalls p95", "stall_total", is_detail=True),
    Column("failed", "failure_rate"),
    Column("WER", "wer", is_detail=True),
    Column("load", "load", is_number=False, is_detail=True),
    Column("verdict", "verdict", is_number=False),
)


def _points_table(points: Sequence[PointView]) -> Table:
    has_seeds = len({point.seed for point in points}) > 1
    rows = tuple(
        (
            Cell(point.engine),
            Cell(rate(point.rate_rps), point.rate_rps, f"seed {point.seed}" if has_seeds else ""),
            point.achieved,
            Cell(str(point.n), point.n),
            _of(point, "audible_ttfa", 50),
            _of(point, "audible_ttfa", 95),
            _of(point, "audible_ttfa", 99),
            _of(point, "audible_received", 50),
            _of(point, "audible_received", 95),
            _of(point, "audible_ttfa_from_schedule", 95),
            _with_n(point, point.underruns, "underrun_rate"),
            _of(point, "stall_total", 95),
            point.failures,
            _with_n(point, point.wer, "wer"),
            point.load,
            point.verdict,
        )
        for point in points
    )
    caption = (
        "Every point. Percentiles are over all arrivals of the measurement phase, below them"
        " their 95 % interval; a failed request is worse than any latency. Received: when the"
        " first sound arrived, which a player that cuts leading silence could play."
    )
    return Table(caption, _POINT_COLUMNS, rows)


def _of(point: PointView, name: str, percent: int) -> Cell:
    """A cell of the table of points; n stands beside it where it is not that of the row."""
    metric = point.metrics.get(name)
    if metric is None:
        return Cell(NOT_MEASURED)
    found: Cell = getattr(metric, f"p{percent}")
    return found if metric.n == point.n else with_note(found, f"n = {metric.n}")


def _with_n(point: PointView, cell: Cell, name: str) -> Cell:
    found = point_value(point.raw, name)
    is_own_n = cell.value is None or found is None or found.n == point.n
    return cell if is_own_n or found is None else with_note(cell, f"n = {found.n}")


def _outcomes_table(points: Sequence[PointView]) -> Table:
    """How requests ended; a column for every outcome that occurred."""
    totals = Counter[str]()
    for point in points:
        totals.update(point.outcomes)
    names = sorted(totals, key=lambda name: (name != "ok", -totals[name], name))
    columns = (
        Column("engine", is_number=False),
        Column("rate"),
        *(Column(name.replace("_", " "), f"outcome_{name}") for name in names),
    )
    rows = tuple(
        (
            Cell(point.engine),
            Cell(rate(point.rate_rps), point.rate_rps),
            *(Cell(str(point.outcomes.get(name, 0))) for name in names),
        )
        for point in points
    )
    return Table("How the requests of the measurement phase ended.", columns, rows)


def _start_delay_table(points: Sequence[PointView]) -> Table:
    names = tuple(f"pass_rate_{delay}ms" for delay in START_DELAYS_MS)
    columns = (
        Column("engine", is_number=False),
        Column("rate"),
        *(
            Column(f"no gap at +{delay} ms", name)
            for delay, name in zip(START_DELAYS_MS, names, strict=True)
        ),
        Column("delay for ≤ 1 % gaps", "start_delay_for_1_percent"),
        Column("delay needed p95", "required_delay"),
    )
    rows = []
    for point in points:
        needed = point_value(point.raw, "start_delay_for_1_percent")
        rows.append(
            (
                Cell(point.engine),
                Cell(rate(point.rate_rps), point.rate_rps),
                *(
                    _with_n(point, _share_cell(point_value(point.raw, name)), name)
                    for name in names
                ),
                Cell(number(needed.value if needed else None, "ms")),
                _of(point, "required_delay", 95),
            )
        )
    caption = (
        "Share of replies that play without a gap when the player starts so long after the first"
        " playable chunk, and the smallest start delay that leaves gaps in at most 1 % of them."
        " Replies that came in one chunk have no continuity and are left out."
    )
    return Table(caption, columns, tuple(rows))


def _terms() -> tuple[Term, ...]:
    metrics = tuple(
        Term(metric.name, metric.name.replace("_", " "), metric.definition, metric.unit)
        for metric in registry().values()
    )
    outcomes = tuple(
        Term(f"outcome_{name}", name.replace("_", " "), definition, "outcome")
        for name, definition in OUTCOME_DEFINITIONS.items()
    )
    return (*GENERAL_TERMS, *metrics, *outcomes)
