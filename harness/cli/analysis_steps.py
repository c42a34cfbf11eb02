"""The way from a run folder to printed figures, shared by the commands that end with a report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

__all__ = ["analyse", "print_metrics"]


def analyse(folder: Path) -> dict[str, Any]:
    """Derive, aggregate and render; returns what is in derived/metrics.json.

    Raises:
        AnalysisError: the folder cannot be analysed.
    """
    from analysis.aggregate import summarise_run
    from analysis.report import render

    metrics = summarise_run(folder)
    render(folder)
    return metrics


def print_metrics(metrics: Mapping[str, Any], *, is_json: bool) -> None:
    """The summary on stdout: JSON for scripts, tables for people."""
    if is_json:
        typer.echo(json.dumps(metrics, allow_nan=False))
        return
    from rich.console import Console

    from analysis.report.terminal import print_summary

    print_summary(metrics, Console())
