"""From metrics.json and run.json to what a report says. Figures are put into words here, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.capacity import Capacity
from analysis.metrics import PointValue, registry
from analysis.percentiles import PercentileStatus
from analysis.report.decisions import decide, reason_words
from analysis.report.facts import commands, conditions, engine_facts, environment, notes
from analysis.report.model import (
    Cell,
    EngineView,
    MetricView,
    PointView,
    RateView,
    ReportModel,
    Term,
    Tone,
)
from analysis.report.point_tables import (
    interruptions_table,
    more_table,
    outcomes_table,
    points_table,
    start_delay_table,
    text_table,
)
from analysis.report.settings import ReportSettings
from analysis.report.speech_view import speech_table, wer_cell
from analysis.report.terms import GENERAL_TERMS, OUTCOME_DEFINITIONS
from analysis.report.words import (
    NOT_MEASURED,
    metric_words,
    num_hits,
    number,
    percentile_note,
    point_value,
    rate,
    share,
    share_cell,
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
        points_table=points_table(engines),
        more_table=more_table(points),
        outcomes_table=outcomes_table(points),
        text_table=text_table(points),
        interruptions_table=interruptions_table(points),
        speech_table=speech_table(engines),
        start_delay_table=start_delay_table(points),
        environment=environment(run) if run else (),
        commands=commands(run) if run else (),
        terms=_terms(),
        notes=notes(metrics, run),
    )


# -- engines and points ---------------------------------------------------------------------------


def _engines(metrics: Mapping[str, Any], run: RunRecord | None) -> tuple[EngineView, ...]:
    points = [_point(point) for point in metrics["points"]]
    rates = [_rate(raw, points) for raw in metrics["rates"]]
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
                    pooled=tuple(each for each in rates if each.engine == name),
                    wer=wer_cell(heard.get(name)),
                    speech=heard.get(name),
                )
            )
    return tuple(views)


def _rate(raw: Mapping[str, Any], points: Sequence[PointView]) -> RateView:
    seeds = [point for point in points if point.point_id in raw["point_ids"]]
    return RateView(
        engine=raw["engine"],
        rate_rps=raw["rate_rps"],
        seeds=tuple(raw["seeds"]),
        n=raw["n"],
        failures=_failures(point_value(raw, "failure_rate")),
        verdict=_worst([point.verdict for point in seeds], ("invalid", "suspect")),
        load=_worst([point.load for point in seeds], ("overloaded", "unknown")),
        metrics=_metrics(raw),
        underruns=share_cell(point_value(raw, "underrun_rate")),
        raw=raw,
    )


def _worst(cells: Sequence[Cell], worst_first: Sequence[str]) -> Cell:
    """The worst word among those of some seeds."""
    found = {cell.text: cell for cell in cells}
    return next((found[text] for text in worst_first if text in found), cells[0])


def _metrics(raw: Mapping[str, Any]) -> dict[str, MetricView]:
    """Request metrics; a metric of the point as a whole has one value instead of percentiles."""
    return {
        name: _metric(name, metric) for name, metric in raw["metrics"].items() if "p50" in metric
    }


def _point(raw: Mapping[str, Any]) -> PointView:
    verdict = raw["validity"]["verdict"]
    outcomes = {str(name): int(num) for name, num in raw["outcomes"].items() if num}
    return PointView(
        point_id=raw["point_id"],
        engine=raw["engine"],
        rate_rps=raw["rate_rps"],
        seed=raw["seed"],
        is_complete=raw["is_complete"],
        achieved=Cell(rate(raw["achieved_rps"]), raw["achieved_rps"]),
        n=raw["n"],
        failures=_failures(point_value(raw, "failure_rate")),
        outcomes=outcomes,
        verdict=Cell(verdict, tone=_VERDICT_TONES.get(verdict, Tone.NONE)),
        reasons=tuple(reason_words([reason]) for reason in raw["validity"]["reasons"]),
        load=Cell(raw["load"], tone=Tone.WARN if raw["load"] == "overloaded" else Tone.NONE),
        metrics=_metrics(raw),
        underruns=share_cell(point_value(raw, "underrun_rate")),
        wer=share_cell(point_value(raw, "wer")),
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
    value, unit = found["value"], raw["unit"]
    text = share(value) if unit == "share" else number(value, unit)
    return Cell(text, value, percentile_note(raw, percent))


def _successes(raw: Mapping[str, Any]) -> str:
    found = raw.get("successes")
    if not found or not found["n"]:
        return "no request succeeded"
    unit = raw["unit"]
    parts = [f"{name} {number(found[name], unit)}" for name in ("min", "p50", "mean", "p95")]
    return f"successes alone (n = {found['n']}): " + ", ".join(parts)


def _failures(found: PointValue | None) -> Cell:
    if found is None or found.value is None:
        return Cell(NOT_MEASURED)
    num_failed = num_hits(found)
    tone = Tone.BAD if num_failed else Tone.NONE
    return Cell(f"{num_failed} of {found.n}", found.value, share(found.value), tone)


def _terms() -> tuple[Term, ...]:
    metrics = tuple(
        Term(metric.name, metric_words(metric.name), metric.definition, metric.unit)
        for metric in registry().values()
    )
    outcomes = tuple(
        Term(f"outcome_{name}", name.replace("_", " "), definition, "outcome")
        for name, definition in OUTCOME_DEFINITIONS.items()
    )
    return (*GENERAL_TERMS, *metrics, *outcomes)
