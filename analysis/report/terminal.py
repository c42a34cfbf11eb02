"""The summary a person sees at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from analysis.evidence import SIMULATED_NOTE
from analysis.report.model import Cell, Decision, ReportModel, Table, Tone

__all__ = ["print_model", "print_table"]

_GAP = 1  # after each column: the line that is not drawn
_EDGE = 1
_SHORTEST_NAME = 8
_LONGEST_FIGURE = 8
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
    tables = (
        model.points_table,
        model.outcomes_table,
        model.text_table,
        model.interruptions_table,
        model.speech_table,
    )
    for table in tables:
        if table.rows:
            print_table(table, console)
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


def print_table(table: Table, console: Console) -> None:
    """Print a table with as many of its columns as fit without breaking a word."""
    built = RichTable(header_style="bold", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    widths = _widths(table, console.width)
    for place, width in widths.items():
        column = table.columns[place]
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        built.add_column(Text(column.title), justify=justify, overflow="fold", width=width)
    for row in table.rows:
        built.add_row(*(_cell(row[place]) for place in widths))
    console.print()
    console.print(Text(table.caption, style="dim"))
    console.print(built)


def _widths(table: Table, room: int) -> dict[int, int]:
    """Width by place of each column that is shown.

    Those of the highest rank are left out until the longest words of the rest fit; what is free
    then goes to those that would have to wrap.
    """
    least = {place: _longest(table, place, _words) for place in range(len(table.columns))}
    for rank in sorted({column.rank for column in table.columns} - {0}, reverse=True):
        if _free(least, room) >= 0:
            break
        least = {p: width for p, width in least.items() if table.columns[p].rank < rank}
    # The first names somebody, at any length; it alone gives way.
    if (lacking := -_free(least, room)) > 0:
        least[0] = min(least[0], max(_SHORTEST_NAME, least[0] - lacking))
    wanted = {place: _longest(table, place, str.splitlines) for place in least}
    while _free(least, room) > 0 and (short := [p for p in least if least[p] < wanted[p]]):
        least[min(short, key=least.__getitem__)] += 1
    return least


def _words(text: str) -> list[str]:
    """What is not broken: single words, and a figure with its unit."""
    return [text] if len(text) <= _LONGEST_FIGURE else text.split()


def _free(widths: Mapping[int, int], room: int) -> int:
    return room - _EDGE - sum(width + _GAP for width in widths.values())


def _longest(table: Table, place: int, split: Callable[[str], list[str]]) -> int:
    """Letters of the longest part of a column's texts."""
    cells = [row[place] for row in table.rows]
    texts = [table.columns[place].title, *(t for cell in cells for t in (cell.text, cell.note))]
    return max(len(part) for text in texts for part in split(text))


def _cell(cell: Cell) -> Text:
    text = Text(cell.text, style=_STYLES[cell.tone])
    if cell.note:
        text.append(f"\n{cell.note}", style="dim")
    return text
