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
from analysis.evidence import RunEvidence, run_evidence
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
_PICTURES = ("png", "svg")
FORMATS = (*_PICTURES, "html", "md", "csv")
"""What `render` can write."""
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
    derived = derive_run(folder, settings=analysis)
    evidence = run_evidence(run, derived, metrics)
    capacities = read_capacity(evidence, settings.slo)
    model = build_model(metrics, run.record, settings, capacities=capacities)
    return Report(folder, run, metrics, model, join_tables(run, derived), settings, evidence)


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
    """Write a loaded report.

    Whatever refers to pictures, or is one, leaves the pictures of this report in the folder and no
    others: those of an earlier one would contradict it.

    Raises:
        AnalysisError: an unknown format.
        RunDataError: the folder cannot be written.
    """
    _check(formats)
    pictures: list[Path] = []
    if not {"md", *_PICTURES}.isdisjoint(formats):
        # Imported here: it draws this package's model, so it imports this package.
        from analysis.plots import write_figures

        wanted = [each for each in _PICTURES if each in formats]
        pictures = write_figures(report.model, report.folder / FIGURES_FOLDER, formats=wanted)
    texts: Mapping[str, Callable[[], str]] = {
        "html": lambda: _html(report),
        "md": lambda: _markdown(report, pictures),
        "csv": lambda: render_csv(report.model),
    }
    pages = [
        _write(report.folder / f"report.{each}", text())
        for each, text in texts.items()
        if each in formats
    ]
    return [*pictures, *pages]


def _check(formats: Sequence[str]) -> None:
    for each in formats:
        if each not in FORMATS:
            raise AnalysisError(f"report format {each!r} is not one of {', '.join(FORMATS)}")


def _html(report: Report) -> str:
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
    return render_html(report.model, data)


def _compared(report: Report) -> Comparison | None:
    """The run's engines against its first one; None where there is one, or no common rate."""
    contenders = [Contender(name, name, report.evidence) for name in report.evidence.engines]
    if len(contenders) < 2:
        return None
    try:
        return compare(contenders)
    except NotComparableError:
        return None


def _markdown(report: Report, pictures: Sequence[Path]) -> str:
    shown = [path for path in pictures if path.suffix == ".png"] or pictures
    paths = [path.relative_to(report.folder).as_posix() for path in shown]
    return render_markdown(report.model, figures=paths)


def _write(path: Path, text: str) -> Path:
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as failure:
        raise RunDataError(f"{path}: cannot be written: {failure.strerror}") from failure
    return path
