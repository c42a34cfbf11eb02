"""A report as Markdown, fit for the description of a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable

from analysis.report.model import Cell, Decision, ReportModel, Table, Tone

__all__ = ["render_markdown"]

_WORDS = {Tone.GOOD: "", Tone.WARN: "⚠ ", Tone.BAD: "✖ ", Tone.NONE: ""}
# Whatever could start markup, a link, HTML or a mention; texts come from servers and prompts.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~@!])")


def render_markdown(model: ReportModel, *, figures: Iterable[str] = ()) -> str:
    """The whole report less its explorer.

    Args:
        model: what to say.
        figures: paths of pictures beside the file, shown after the decisions.
    """
    parts = [f"# {_plain(model.title)}", ""]
    if model.is_simulated:
        parts += ["> **SIMULATED**: a model's numbers, not measurements.", ""]
    parts += [f"- {_plain(fact.name)}: {_plain(fact.text)}" for fact in model.conditions]
    for decision in model.decisions:
        parts += ["", *_decision(decision)]
    parts += [f"\n![{path}]({path})" for path in figures]
    tables = (
        model.points_table,
        model.more_table,
        model.outcomes_table,
        model.text_table,
        model.interruptions_table,
        model.start_delay_table,
        model.speech_table,
    )
    for table in tables:
        if table.rows:
            parts += ["", *_table(table)]
    parts += ["", *(f"- {_plain(note)}" for note in model.notes)]
    if model.commands:
        parts += ["", "<details><summary>Reproduce</summary>", "", "```sh"]
        parts += [_in_fence(command) for command in model.commands]
        parts += ["```", "", "</details>"]
    parts += ["", *_environment(model)]
    return "\n".join(parts).rstrip() + "\n"


def _decision(decision: Decision) -> list[str]:
    lines = [f"**{_WORDS[decision.tone]}{_plain(decision.question)}**"]
    for finding in decision.findings:
        who = f"{_plain(finding.who)}: " if finding.who else ""
        note = f" ({_plain(finding.cell.note)})" if finding.cell.note else ""
        lines.append(f"- {who}**{_plain(finding.cell.text)}**{note}")
    lines += [f"- {_plain(text)}" for text in (*decision.details, decision.note) if text]
    return lines


def _table(table: Table) -> list[str]:
    lines = [_plain(table.caption), ""]
    lines.append("| " + " | ".join(_plain(column.title) for column in table.columns) + " |")
    lines.append("|" + "|".join("--:" if c.is_number else ":--" for c in table.columns) + "|")
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows]
    return lines


def _cell(cell: Cell) -> str:
    note = f" <sub>{_plain(cell.note)}</sub>" if cell.note else ""
    return f"{_WORDS[cell.tone]}{_plain(cell.text)}{note}"


def _environment(model: ReportModel) -> list[str]:
    lines = ["<details><summary>Environment</summary>", "", "| | |", "|:--|:--|"]
    lines += [f"| {_plain(fact.name)} | {_plain(fact.text)} |" for fact in model.environment]
    return [*lines, "", "</details>"]


def _plain(text: str) -> str:
    """A text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _in_fence(text: str) -> str:
    """A line inside a code fence; it must not be able to end the fence."""
    return " ".join(text.split()).replace("```", "'''")
