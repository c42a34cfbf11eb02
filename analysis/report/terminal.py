"""The summary a person sees at the end of a run."""

from __future__ import annotations

from typing import Literal

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from analysis.evidence import SIMULATED_NOTE
from analysis.report.model import Cell, Decision, ReportModel, Table, Tone

__all__ = ["print_model"]

# In columns of the terminal: where all of the table of points fits without breaking its words.
# Narrower than that, columns of detail are left out; what is left fits into 80.
_WIDE = 170
_STYLES = {Tone.GOOD: "green", Tone.WARN: "yellow", Tone.BAD: "red", Tone.NONE: ""}


def print_model(model: ReportModel, console: Console) -> None:
    """Print decisions, the table of points and their conditions.

    Every text is printed as it is: nothing a server sent is read as console markup.
    """
    console.print(Text(model.title, style="bold"))
    if model.is_simulated:
        console.print(Panel(Text(SIMULATED_NOTE), style="yellow"))
    for fact in model.conditions:
        console.print(Text(f"{fact.name}: {fact.text}", style="dim"))
    for decision in model.decisions:
        _print_decision(decision, console)
    for table in (model.points_table, model.outcomes_table, model.speech_table):
        if table.rows:
            console.print()
            console.print(Text(table.caption, style="dim"))
            console.print(_rich_table(table, is_wide=console.width >= _WIDE))
    for note in model.notes:
        console.print(Text(f"Note: {note}"))


def _print_decision(decision: Decision, console: Console) -> None:
    console.print()
    console.print(Text(decision.question, style=f"bold {_STYLES[decision.tone]}".strip()))
    for finding in decision.findings:
        line = Text("  ")
        line.append(f"{finding.who}: " if finding.who else "")
        line.append(finding.cell.text, style=f"bold {_STYLES[finding.cell.tone]}".strip())
        if finding.cell.note:
            line.append(f"  {finding.cell.note}", style="dim")
        console.print(line)
    for text in (*decision.details, decision.note):
        if text:
            console.print(Padding(Text(text, style="dim"), (0, 0, 0, 4)))


def _rich_table(table: Table, *, is_wide: bool) -> RichTable:
    built = RichTable(
        header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    shown = [i for i, column in enumerate(table.columns) if is_wide or not column.is_detail]
    for column in (table.columns[i] for i in shown):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        built.add_column(Text(column.title), justify=justify, overflow="fold")
    for row in table.rows:
        built.add_row(*(_cell(row[i]) for i in shown))
    return built


def _cell(cell: Cell) -> Text:
    text = Text(cell.text, style=_STYLES[cell.tone])
    if cell.note:
        text.append(f"\n{cell.note}", style="dim")
    return text
