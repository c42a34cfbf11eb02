"""Tables about engines for a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engines.card import EngineCard
from engines.http_contract import AuthSpec, FieldSpec
from engines.redact import shown_place
from harness.cli.terminal import Terminal

if TYPE_CHECKING:
    from harness.cli.contract_check import ContractReport

__all__ = ["card_json", "print_card", "print_cards", "print_contract_report"]

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
        ("key", _key(card.auth)),
        ("note", can.note),
        ("parameters", "" if card.parameters else "none"),
    ):
        if value:
            table.add_row(label, escape(value))
    for n, (name, spec) in enumerate(card.parameters.items()):
        table.add_row("" if n else "parameters", escape(f"{name}: {_parameter(spec)}"))
    _console(console).print(table)


def card_json(card: EngineCard) -> dict[str, Any]:
    """The same facts for scripts."""
    return {
        "name": card.name,
        "title": card.title,
        "source": card.source,
        "base_url": card.base_url,
        "capabilities": asdict(card.capabilities),
        "parameters": [
            {
                "name": name,
                "type": spec.type.value,
                "default": spec.default,
                "one_of": list(spec.one_of),
                "min": spec.min,
                "max": spec.max,
                "is_required": spec.required,
                "note": spec.note,
            }
            for name, spec in card.parameters.items()
        ],
        "key": None
        if card.auth is None
        else {
            "hosts": list(card.auth.hosts),
            "variables": {header: key.env for header, key in card.auth.headers.items()},
            "is_required": card.auth.required,
        },
    }


def _key(auth: AuthSpec | None) -> str:
    """The variables that hold it, and where alone it goes."""
    if auth is None:
        return ""
    variables = ", ".join(f"{key.env} (sent as {header})" for header, key in auth.headers.items())
    need = "needed" if auth.required else "taken"
    return f"{variables}; {need} at {', '.join(auth.hosts)}, elsewhere only by --send-key-to"


def _parameter(spec: FieldSpec) -> str:
    """Type, default, what it may be."""
    words = [spec.type.value]
    if spec.required:
        words.append("required")
    elif spec.default is not None:
        words.append(f"default {json.dumps(spec.default)}")
    if spec.one_of:
        words.append(f"one of {' '.join(str(choice) for choice in spec.one_of)}")
    if spec.min is not None:
        words.append(f"at least {spec.min:g}")
    if spec.max is not None:
        words.append(f"at most {spec.max:g}")
    return ", ".join([*words, *([spec.note] if spec.note else [])])


def print_contract_report(report: ContractReport, *, console: Console | None = None) -> None:
    """What came, then every mismatch and note on a line of its own."""
    record, info = report.record, report.info
    out = _console(console)
    who = " ".join(word for word in (info.server_name, info.server_version) if word)
    shape = "no audio"
    if record.format is not None and record.chunks:
        length = "" if report.duration_s is None else f", {report.duration_s:.2f} s"
        shape = f"{record.format.sample_format} in {len(record.chunks)} chunks{length}"
    place = shown_place(report.base_url)
    out.print(
        escape(f"{report.engine}, {place}{f': {who}' if who else ' (does not say its name)'}")
    )
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
