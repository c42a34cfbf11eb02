"""Several runs in the same pictures and tables. It shows; it claims no difference.

Whether a difference is real is a paired test (`earwitness compare`); curves next to each other
are not one, and the page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.report.charts import percentile_chart, share_chart
from analysis.report.facts import is_identity
from analysis.report.markup import Markup, el, join
from analysis.report.model import Cell, Column, EngineView, ReportModel, Table
from analysis.report.sections import figure_markup, legend_markup, table_markup
from harness.records import RunStatus

__all__ = ["caveats", "common_head", "curves_markup", "merge_engines", "side_by_side"]

_NO_TEST = (
    "Curves side by side are no test: whether a difference is real is what `earwitness compare`"
    " decides, on pairs of requests."
)


def merge_engines(models: Sequence[ReportModel]) -> tuple[EngineView, ...]:
    """All engines of all runs, named `run: engine`, each with its own colour and marker."""
    named = [
        replace(engine, name=f"{model.title}: {engine.name}")
        for model in models
        for engine in model.engines
    ]
    return tuple(replace(engine, series=number) for number, engine in enumerate(named))


def common_head(models: Sequence[ReportModel], title: str) -> ReportModel:
    """What the head of a common page may say: what holds for every run, and the worst of the rest.

    What it leaves out is among the `caveats`.
    """
    first, *others = models
    is_shared = {fact: all(fact in each.conditions for each in others) for fact in first.conditions}
    incomplete = (each.status for each in models if each.status != RunStatus.COMPLETE)
    return replace(
        first,
        title=title,
        is_simulated=any(each.is_simulated for each in models),
        status=next(incomplete, first.status),
        created_utc="" if others else first.created_utc,
        conditions=tuple(fact for fact, holds in is_shared.items() if holds),
        notes=(),
    )


def side_by_side(models: Sequence[ReportModel]) -> Markup:
    """The common page of some runs."""
    engines = merge_engines(models)
    return join(
        el("ul", el("li", _NO_TEST), *(el("li", text) for text in caveats(models)), cls="banner"),
        legend_markup(engines),
        curves_markup(engines, common_head(models, "")),
        table_markup(_points(models)),
    )


def curves_markup(engines: Sequence[EngineView], model: ReportModel) -> Markup:
    """The pictures in which engines of several runs are drawn together."""
    charts = [
        *(percentile_chart(engines, percent, is_log=False) for percent in (50, 95)),
        percentile_chart(engines, 95, metric="audible_received", is_log=False),
        share_chart(engines, "underrun_rate", title="Replies that stutter", chart_id="underruns"),
        share_chart(engines, "wer", title="Word error rate", chart_id="wer"),
    ]
    return el("div", *(figure_markup(chart, model) for chart in charts), cls="grid-charts")


def caveats(models: Sequence[ReportModel]) -> tuple[str, ...]:
    """What a comparison must be read with: what differs between the runs, and each one's notes."""
    found = []
    if len({model.is_simulated for model in models}) > 1:
        found.append("Measured and simulated runs are mixed; a model's numbers are no measurement.")
    for name, why in (
        ("Start rule", "the player starts by different rules"),
        ("Stamps", "arrival times come from different clocks"),
        ("Arrivals", "the load was planned differently"),
        ("Prompts", "different texts were spoken"),
    ):
        texts = {_fact(model, name) for model in models}
        if len(texts) > 1:
            found.append(f"{name} differs ({' / '.join(sorted(texts))}): {why}.")
    found += [f"The machines differ in {text}." for text in _machine_differences(models)]
    found += [f"{model.title}: {note}" for model in models for note in model.notes]
    return tuple(found)


def _machine_differences(models: Sequence[ReportModel]) -> list[str]:
    """What tells one machine from another; how busy it was at a moment does not."""
    machines = [
        {fact.name: fact.text for fact in model.environment if is_identity(fact.name)}
        for model in models
    ]
    names = dict.fromkeys(name for machine in machines for name in machine)
    told = {name: dict.fromkeys(each.get(name, "unknown") for each in machines) for name in names}
    return [
        f"{name.partition(': ')[2].replace('_', ' ')} ({' / '.join(texts)})"
        for name, texts in told.items()
        if len(texts) > 1
    ]


def _fact(model: ReportModel, name: str) -> str:
    return next((fact.text for fact in model.conditions if fact.name == name), "unknown")


def _points(models: Sequence[ReportModel]) -> Table:
    """Every point of every run in one table, the run in front."""
    first = models[0].points_table
    rows = tuple((Cell(model.title), *row) for model in models for row in model.points_table.rows)
    return Table(first.caption, (Column("run", is_number=False), *first.columns), rows)
