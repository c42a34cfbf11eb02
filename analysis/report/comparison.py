"""The page that holds runs against each other: one self-contained file, like that of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.compare import Comparison, compare, contenders
from analysis.errors import RunDataError
from analysis.report.compared import compared_section, merge_or_revert, summary_markup
from analysis.report.markup import Markup, el
from analysis.report.model import ReportModel
from analysis.report.page import page_markup, page_section
from analysis.report.render import Report, load_report
from analysis.report.sections import card_markup, header, legend_markup, table_markup
from analysis.report.settings import ReportSettings
from analysis.report.side_by_side import caveats, common_head, curves_markup, merge_engines
from analysis.view import AnalysisSettings

__all__ = ["ComparedRuns", "load_comparison", "write_comparison"]


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Runs that were read and held against the first."""

    found: Comparison
    reports: tuple[Report, ...]


def load_comparison(
    paths: Sequence[Path],
    *,
    settings: ReportSettings | None = None,
    analysis: AnalysisSettings | None = None,
    is_forced: bool = False,
    seed: int = 0,
) -> ComparedRuns:
    """Read and compare runs.

    Args:
        paths: run folders; the first engine of the first is what the others are held against.
        settings: of the report.
        analysis: how the runs are read.
        is_forced: compare runs that differ in what must be alike; the page says in what.
        seed: of the resampling.

    Raises:
        NotComparableError: the runs differ in what must be alike.
        RunFolderError, RunDataError: no readable run.
    """
    settings = settings or ReportSettings()
    reports = tuple(
        load_report(path, settings=replace(settings, title=path.name), analysis=analysis)
        for path in paths
    )
    opponents = contenders([report.evidence for report in reports])
    return ComparedRuns(compare(opponents, is_forced=is_forced, seed=seed), reports)


def write_comparison(compared: ComparedRuns, out: Path) -> Path:
    """Write the page about them.

    Raises:
        RunDataError: `out` cannot be written.
    """
    models = [report.model for report in compared.reports]
    head = common_head(models, " against ".join(compared.found.contenders))
    text = page_markup(head.title, _body(compared.found, models, head), top=[header(head)])
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise RunDataError(f"{out}: cannot be written: {failure.strerror}") from failure
    return out


def _body(found: Comparison, models: Sequence[ReportModel], head: ReportModel) -> list[Markup]:
    engines = merge_engines(models) if len(models) > 1 else models[0].engines
    warnings = [*found.notes, *caveats(models)]
    parts = [
        page_section(
            "decisions",
            "In short",
            summary_markup(found),
            el("ul", card_markup(merge_or_revert(found)), cls="cards"),
        ),
        compared_section(found, head),
        page_section("curves", "Curves", legend_markup(engines), curves_markup(engines, head)),
        page_section("points", "Every point", *map(_points, models)),
    ]
    if warnings:
        items = el("ul", *(el("li", text) for text in warnings))
        parts.append(page_section("caveats", "What to read it with", items))
    return parts


def _points(model: ReportModel) -> Markup:
    """A run's table of points under the name of the run."""
    table = model.points_table
    return table_markup(replace(table, caption=f"{model.title}: {table.caption}"))
