"""Tables about engines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engines.base import EngineCard
from harness.cli.terminal import Terminal

if TYPE_CHECKING:
    from harness.cli.contract_check import ContractReport

__all__ = ["print_card", "print_cards", "print_contract_report"]

# Wide enough for the table when stdout is a file or a pipe, where no terminal says its width.
_PIPE_WIDTH = 140


def print_cards(cards: Sequence[EngineCard], *, console: Console | None = None) -> None:
    """One row an engine."""
    table = Table("engine", "transport", "formats", "text in", "cancel", "checked", box=None)
    for card in cards:
        can = card.capabilities
        table.add_row(
            escape(card.name),
            can.transport,
            " ".join(can.formats),
            "streamed" if can.has_incremental_text else "whole",
            "stops" if can.can_cancel else "closes",
            f"seen live {escape(can.seen_live)}" if can.seen_live else "spec only",
        )
    _console(console).print(table)


def print_card(card: EngineCard, *, console: Console | None = None) -> None:
    """Everything known of one engine, a line each."""
    can = card.capabilities
    table = Table(box=None, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in (
        ("engine", f"{card.name}: {card.title}"),
        ("usual address", card.base_url or "none; give --base-url"),
        ("transport", can.transport),
        ("formats", " ".join(can.formats)),
        ("audio streams", "yes" if can.is_streaming else "no: the whole clip at once"),
        ("text streams", "yes" if can.has_incremental_text else "no"),
        ("cancel stops work", "yes" if can.can_cancel else "not known; the connection is closed"),
        ("checked", f"seen live {can.seen_live}" if can.seen_live else "spec only"),
        ("source", card.source),
        ("parameters", " ".join(card.parameters) or "none"),
        ("note", can.note),
    ):
        if value:
            table.add_row(label, escape(value))
    _console(console).print(table)


def print_contract_report(report: ContractReport, *, console: Console | None = None) -> None:
    """What came, then every mismatch and note on a line of its own."""
    record, info = report.record, report.info
    out = _console(console)
    who = " ".join(word for word in (info.server_name, info.server_version) if word)
    shape = "no audio"
    if record.format is not None and record.chunks:
        length = "" if report.duration_s is None else f", {report.duration_s:.2f} s"
        shape = f"{record.format.sample_format} in {len(record.chunks)} chunks{length}"
    out.print(escape(f"{report.engine} at {report.base_url}: {who or 'a server without a name'}"))
    out.print(escape(f"  reply     {record.transport_outcome}, {shape}"))
    for line in report.mismatches:
        out.print(escape(f"  MISMATCH  {line}"))
    for line in report.notes:
        out.print(escape(f"  note      {line}"))
    if report.is_match:
        out.print("  nothing contradicts the contract")


def _console(console: Console | None) -> Console:
    if console is not None:
        return console
    found = Terminal(soft_wrap=False)
    return found if found.is_terminal else Terminal(width=_PIPE_WIDTH)
