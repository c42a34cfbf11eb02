"""What `earwitness report` does: hear, analyse, print, write."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from analysis.compare_words import comparison_json
from analysis.errors import AnalysisError
from analysis.playback import IMMEDIATE, StartRule, buffer_ms, delay_ms
from analysis.report import ReportSettings
from analysis.report.render import FORMATS, load_report, write_formats
from analysis.view import AnalysisSettings
from harness.cli.analysis_steps import (
    WordScoring,
    measure,
    print_comparison,
    print_report,
    score_words,
)

__all__ = ["ReportRequest", "compare_reports", "make_report", "parse_formats", "parse_start"]

_RULES: Mapping[str, Callable[[float], StartRule]] = {"delay_ms": delay_ms, "buffer_ms": buffer_ms}


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What was asked for on the command line. `words` None: no recogniser is run."""

    folder: Path
    formats: str
    start: str
    settings: ReportSettings
    words: WordScoring | None
    is_json: bool


def make_report(request: ReportRequest) -> None:
    """Do it; the summary goes to stdout, the names of written files to stderr.

    Raises:
        AnalysisError: an option, the run or the recogniser; the message says which.
        HarnessError: the folder is no run.
    """
    formats = parse_formats(request.formats)
    analysis = AnalysisSettings(start=parse_start(request.start))
    measure(request.folder, analysis)
    if request.words is not None:
        score_words(request.folder, request.words)
    report = load_report(request.folder, settings=request.settings, analysis=analysis)
    written = write_formats(report, formats)
    print_report(report, is_json=request.is_json)
    for path in written:
        sys.stderr.write(f"wrote {path}\n")


def compare_reports(
    folders: Sequence[Path],
    out: Path,
    *,
    settings: ReportSettings,
    start: str,
    is_forced: bool,
    is_json: bool,
) -> None:
    """Hold runs against the first, print what it comes to and write one page about it.

    Raises:
        AnalysisError: the runs cannot be compared, or the page not written.
        HarnessError: a folder is no run.
    """
    from analysis.report.comparison import load_comparison, write_comparison

    analysis = AnalysisSettings(start=parse_start(start))
    for folder in folders:
        measure(folder, analysis)
    compared = load_comparison(folders, settings=settings, analysis=analysis, is_forced=is_forced)
    written = write_comparison(compared, out)
    if is_json:
        runs = [report.metrics for report in compared.reports]
        document = {"runs": runs, "comparison": comparison_json(compared.found)}
        typer.echo(json.dumps(document, allow_nan=False))
    else:
        print_comparison(compared.found)
    sys.stderr.write(f"wrote {written}\n")


def parse_formats(text: str) -> tuple[str, ...]:
    """`html,md` as names; `none` is empty.

    Raises:
        AnalysisError: a name that is not a format.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if names == ("none",):
        return ()
    for name in names:
        if name not in FORMATS:
            known = ", ".join(FORMATS)
            raise AnalysisError(f"--format: {name!r} is not one of {known}, none")
    return names


def parse_start(text: str) -> StartRule:
    """`immediate`, `delay_ms=200`, `buffer_ms=200`.

    Raises:
        AnalysisError: anything else.
    """
    if text == "immediate":
        return IMMEDIATE
    name, _, value = text.partition("=")
    try:
        milliseconds = float(value)
    except ValueError:
        milliseconds = math.nan
    if name not in _RULES or not 0 <= milliseconds < math.inf:
        raise AnalysisError(
            f"--start: {text!r} is no start rule; expected immediate, delay_ms=N or buffer_ms=N"
            " with N at least 0"
        )
    return _RULES[name](milliseconds)
