"""What `compare`, `gate` and `baseline` do."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from analysis.compare import compare, contenders_of
from analysis.compare_words import comparison_json, comparison_markdown
from analysis.errors import AnalysisError, RunDataError
from analysis.evidence import RunEvidence, load_evidence, write_baseline
from analysis.gate import GateVerdict, judge
from analysis.gate_rules import load_gate
from analysis.gate_words import gate_json, gate_junit, gate_markdown, gate_text
from analysis.number_words import count
from analysis.onset import PRESETS
from analysis.view import AnalysisSettings
from harness.cli.analysis_steps import print_comparison
from harness.cli.report_command import parse_start
from harness.config_errors import hint
from harness.records import RunStatus

__all__ = ["GateOutput", "Reading", "compare_runs", "gate_run", "make_baseline"]


@dataclass(frozen=True, slots=True)
class Reading:
    """How runs are to be read, as typed: start rule and onset preset."""

    start: str = "immediate"
    onset: str = "default"

    def settings(self) -> AnalysisSettings:
        """Checked.

        Raises:
            AnalysisError: no such rule.
        """
        presets = {preset.name: preset for preset in PRESETS}
        if self.onset not in presets:
            raise AnalysisError(
                f"--onset: {self.onset!r} is not one of {', '.join(presets)}"
                f"{hint(self.onset, presets)}"
            )
        return AnalysisSettings(onset=presets[self.onset], start=parse_start(self.start))


@dataclass(frozen=True, slots=True)
class GateOutput:
    """Where a gate's answer goes besides stdout."""

    junit: Path | None = None
    summary: Path | None = None
    is_json: bool = False


def compare_runs(
    runs: Sequence[Path], reading: Reading, *, is_forced: bool, out: Path | None, is_json: bool
) -> None:
    """Compare and print.

    Raises:
        AnalysisError: nothing to compare, or not comparable.
        HarnessError: a folder is no run.
    """
    contenders = contenders_of(runs, settings=reading.settings())
    found = compare(contenders, is_forced=is_forced)
    if out is not None:
        _write(out, comparison_markdown(found), mode="w")
        sys.stderr.write(f"wrote {out}\n")
    if is_json:
        typer.echo(json.dumps(comparison_json(found), allow_nan=False))
        return
    print_comparison(found)


def gate_run(
    run: Path,
    rules: str,
    *,
    against: Path | None,
    reading: Reading,
    is_any_machine: bool,
    output: GateOutput,
) -> None:
    """Judge, print, and exit by the verdict.

    Raises:
        AnalysisError: rules or base are wrong.
        HarnessError: the folder is no run.
        typer.Exit: 1 fail, 3 inconclusive.
    """
    gate = load_gate(rules)
    settings = reading.settings()
    base = None if against is None else load_evidence(against, settings=settings)
    found = judge(
        load_evidence(run, settings=settings), gate, base=base, is_any_machine=is_any_machine
    )
    _tell(found, output)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _tell(found: GateVerdict, output: GateOutput) -> None:
    if output.junit is not None:
        _write(output.junit, gate_junit(found), mode="w")
    if output.summary is not None:
        _write(output.summary, gate_markdown(found), mode="a")
    if output.is_json:
        typer.echo(json.dumps(gate_json(found), allow_nan=False))
    else:
        typer.echo(gate_text(found), nl=False)


def make_baseline(run: Path, out: Path, *, is_json: bool = False) -> None:
    """Write a baseline of a complete run; in JSON, say on stdout what is in it.

    Raises:
        RunDataError: the run is not complete, or the file exists or cannot be written.
        HarnessError: the folder is no run.
    """
    evidence = load_evidence(run)
    if evidence.status != RunStatus.COMPLETE:
        raise RunDataError(
            f"{run}: is {evidence.status}, and only a complete run can be a baseline; finish it"
            f" with `earwitness run --resume {run}`"
        )
    write_baseline(evidence, out)
    for point in evidence.points:
        if point.is_invalid:
            sys.stderr.write(
                f"note: {point.engine} at {point.rate_rps:g}/s, seed {point.seed} is invalid;"
                " nothing will be judged against it\n"
            )
    num = sum(len(point.cohort) for point in evidence.points)
    size = f"{count(len(evidence.points), 'point')}, {count(num, 'request')}"
    sys.stderr.write(f"wrote {out}: {size}\n")
    if is_json:
        typer.echo(json.dumps(_baseline_json(evidence, out), allow_nan=False))


def _baseline_json(evidence: RunEvidence, out: Path) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "baseline": str(out),
        "run": evidence.source,
        "num_requests": sum(len(point.cohort) for point in evidence.points),
        "points": [
            {
                "engine": point.engine,
                "rate_rps": point.rate_rps,
                "seed": point.seed,
                "n": len(point.cohort),
                "is_invalid": point.is_invalid,
            }
            for point in evidence.points
        ],
    }


def _write(path: Path, text: str, *, mode: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as fault:
        raise RunDataError(f"{path}: cannot be written: {fault.strerror or fault}") from None
