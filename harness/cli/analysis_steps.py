"""The way from a run folder to printed figures, shared by the commands that end with a report."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from engines.installing import install_command
from harness.cli.progress import CountLine
from harness.errors import MissingExtraError

if TYPE_CHECKING:
    from analysis.compare import Comparison
    from analysis.report import Report
    from analysis.view import AnalysisSettings

__all__ = [
    "WordScoring",
    "analyse",
    "measure",
    "print_comparison",
    "print_report",
    "require_whisper",
    "score_words",
]


@dataclass(frozen=True, slots=True)
class WordScoring:
    """Which clips a recogniser hears: at most so many an engine, from which prompts and rates."""

    max_clips_per_engine: int = 48
    seed: int = 0
    tags: tuple[str, ...] = ()
    max_rate_rps: float | None = None
    weights: Path | None = None
    allow_download: bool = False


def analyse(folder: Path, *, words: WordScoring | None = None) -> Report:
    """Derive, hear, aggregate and write the report; returns it.

    Args:
        folder: of a closed run.
        words: which clips to transcribe; None: none, and a word error rate stays as it was.

    Raises:
        AnalysisError: the folder cannot be analysed, or the recogniser is missing.
    """
    from analysis.report import DEFAULT_FORMATS, load_report, write_formats

    measure(folder)
    if words is not None:
        score_words(folder, words)
    report = load_report(folder)
    write_formats(report, DEFAULT_FORMATS)
    return report


def measure(folder: Path, settings: AnalysisSettings | None = None) -> None:
    """Derive every request on all cores, with a line of progress; what follows reads the result.

    Raises:
        AnalysisError: the folder cannot be analysed.
        HarnessError: it is no run.
    """
    from analysis.derive import derive_run
    from harness.cpu import num_usable_cores

    line = CountLine("measuring replies", sys.stderr)
    cores = num_usable_cores()
    derive_run(folder, settings=settings, num_processes=cores, on_progress=line.show)
    line.close()


def require_whisper(remedy: str) -> None:
    """Find out before the load, not after it.

    Raises:
        MissingExtraError: the recogniser is not installed; `remedy` says how to go without.
    """
    missing = [name for name in ("torch", "whisper") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{', '.join(missing)} not installed; run {install_command('whisper')}, or {remedy}"
        )


def score_words(folder: Path, words: WordScoring) -> None:
    """Transcribe a seeded draw of clips into derived/transcripts.parquet.

    Raises:
        AnalysisError: the recogniser or its weights are missing.
    """
    from analysis.speech import open_whisper, score_run

    sys.stderr.write("loading Whisper\n")
    transcriber = open_whisper(weights=words.weights, allow_download=words.allow_download)
    line = CountLine("hearing clips with Whisper", sys.stderr)
    score_run(
        folder,
        transcriber=transcriber,
        max_clips_per_engine=words.max_clips_per_engine,
        seed=words.seed,
        tags=words.tags,
        max_rate_rps=words.max_rate_rps,
        on_progress=line.show,
    )
    line.close()


def print_report(report: Report, *, is_json: bool) -> None:
    """The summary on stdout: metrics.json for scripts, tables for people."""
    if is_json:
        typer.echo(json.dumps(report.metrics, allow_nan=False))
        return
    from analysis.report.terminal import print_model
    from harness.cli.terminal import Terminal

    print_model(report.model, Terminal())


def print_comparison(found: Comparison) -> None:
    """What a comparison comes to, its table, and what could explain a difference, on stdout."""
    from analysis.report.compared import print_compared
    from harness.cli.terminal import Terminal

    print_compared(found, Terminal())
