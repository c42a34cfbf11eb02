"""From a run folder to report files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.aggregate import summarise_run
from analysis.capacity import read_capacity
from analysis.compare import Comparison, Contender, compare
from analysis.derive import derive_run
from analysis.errors import AnalysisError, NotComparableError, RunDataError
from analysis.evidence import RunEvidence, load_evidence
from analysis.report.build import build_model
from analysis.report.clips import ClipSet, choose_clips, collect_clips
from analysis.report.csv_tables import render_csv
from analysis.report.explorer import explorer_data
from analysis.report.html import PageData, render_html
from analysis.report.markdown import render_markdown
from analysis.report.model import ReportModel
from analysis.report.settings import ReportSettings
from analysis.report.tables import RunTables, join_tables
from analysis.report.target import choose_target
from analysis.speech import load_transcripts
from analysis.view import AnalysisSettings
from harness.store import StoredRun, open_run

__all__ = ["DEFAULT_FORMATS", "FORMATS", "Report", "load_report", "render", "write_formats"]

DEFAULT_FORMATS = ("html", "md", "png")
FIGURES_FOLDER = "figures"
_NO_CLIPS = ClipSet({}, 0, 0)


@dataclass(frozen=True, slots=True)
class Report:
    """A run, read and put into words."""

    folder: Path
    run: StoredRun
    metrics: Mapping[str, Any]
    model: ReportModel
    tables: RunTables
    settings: ReportSettings
    evidence: RunEvidence


def load_report(
    folder: Path,
    *,
    settings: ReportSettings | None = None,
    analysis: AnalysisSettings | None = None,
) -> Report:
    """Read a run folder, deriving and summarising what is not there yet.

    Raises:
        RunFolderError: no readable run folder.
        RunDataError: the derived part cannot be written; or the run holds no point.
    """
    settings = settings or ReportSettings()
    run = open_run(folder)
    if not run.record.points:
        raise RunDataError(f"{folder}: the run has no points, so there is nothing to report")
    metrics = summarise_run(folder, settings=analysis)
    tables = join_tables(run, derive_run(folder, settings=analysis))
    evidence = load_evidence(folder, settings=analysis)
    capacities = read_capacity(evidence, settings.slo)
    model = build_model(metrics, run.record, settings, capacities=capacities)
    return Report(folder, run, metrics, model, tables, settings, evidence)


def render(
    folder: Path,
    formats: Sequence[str] = DEFAULT_FORMATS,
    *,
    settings: ReportSettings | None = None,
    analysis: AnalysisSettings | None = None,
) -> list[Path]:
    """Write reports of a run into its folder.

    Args:
        folder: of the run.
        formats: of `FORMATS`.
        settings: of the report.
        analysis: how the run is read.

    Returns:
        What was written.

    Raises:
        AnalysisError: an unknown format.
        RunDataError: the folder cannot be written.
    """
    _check(formats)
    return write_formats(load_report(folder, settings=settings, analysis=analysis), formats)


def write_formats(report: Report, formats: Sequence[str]) -> list[Path]:
    """Write a loaded report; figures first, since the Markdown refers to them.

    Raises:
        AnalysisError: an unknown format.
        RunDataError: the folder cannot be written.
    """
    _check(formats)
    written: list[Path] = []
    for each in sorted(formats, key=list(FORMATS).index):
        written += FORMATS[each](report)
    return written


def _check(formats: Sequence[str]) -> None:
    for each in formats:
        if each not in FORMATS:
            raise AnalysisError(f"report format {each!r} is not one of {', '.join(FORMATS)}")


def _html(report: Report) -> list[Path]:
    settings = report.settings
    clips = _NO_CLIPS
    if settings.has_audio:
        clips = collect_clips(report.run, choose_clips(report.tables, settings), settings)
    data = PageData(
        tables=report.tables,
        explorer=explorer_data(report.tables, load_transcripts(report.folder)),
        clips=clips,
        target_rps=choose_target(report.model.engines, settings).rate_rps,
        comparison=_compared(report),
    )
    return [_write(report.folder / "report.html", render_html(report.model, data))]


def _compared(report: Report) -> Comparison | None:
    """The run's engines against its first one; None where there is one, or no common rate."""
    contenders = [Contender(name, name, report.evidence) for name in report.evidence.engines]
    if len(contenders) < 2:
        return None
    try:
        return compare(contenders)
    except NotComparableError:
        return None


def _markdown(report: Report) -> list[Path]:
    figures = sorted((report.folder / FIGURES_FOLDER).glob("*.png"))
    paths = [f"{FIGURES_FOLDER}/{path.name}" for path in figures]
    return [_write(report.folder / "report.md", render_markdown(report.model, figures=paths))]


def _csv(report: Report) -> list[Path]:
    return [_write(report.folder / "report.csv", render_csv(report.model))]


def _png(report: Report) -> list[Path]:
    from analysis.plots import write_figures  # it draws this package's model, so imports it

    return write_figures(report.model, report.folder / FIGURES_FOLDER, formats=("png",))


def _svg(report: Report) -> list[Path]:
    from analysis.plots import write_figures  # as above

    return write_figures(report.model, report.folder / FIGURES_FOLDER, formats=("svg",))


FORMATS: Mapping[str, Callable[[Report], list[Path]]] = {
    "png": _png,
    "svg": _svg,
    "html": _html,
    "md": _markdown,
    "csv": _csv,
}
"""What `render` can write, in the order in which it writes them."""


def _write(path: Path, text: str) -> Path:
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as failure:
        raise RunDataError(f"{path}: cannot be written: {failure.strerror}") from failure
    return path
