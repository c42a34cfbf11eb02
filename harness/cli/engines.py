"""`earwitness engines`: what can be measured, over what, and how far each was checked."""

from __future__ import annotations

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("engines", help="List the engines: transport, formats, what they can do.")(_engines)


def _engines(
    name: str = typer.Argument(
        "", help="One engine, with its parameters. Default: all, as a table."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """List the engines, or show one."""
    import dataclasses
    import json

    from engines import registry
    from harness.cli import engine_tables

    cards = [registry.card(name)] if name else [registry.card(known) for known in registry.names()]
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(card) for card in cards], indent=2))
    elif name:
        engine_tables.print_card(cards[0])
    else:
        engine_tables.print_cards(cards)
