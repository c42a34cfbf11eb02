"""`earwitness engines` and `earwitness contract`: what can be measured, and is it what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.option_checks import finite

if TYPE_CHECKING:
    from harness.cli.contract_check import ContractReport

__all__ = ["register"]

EXIT_MISMATCH = 1

_contract = typer.Typer(
    name="contract",
    help="Check an engine's contract against a live server.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def register(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("engines", help="List the engines: transport, formats, what they can do.")(_engines)
    app.add_typer(_contract)


def _engines(
    name: str = typer.Argument(
        "", help="One engine, with its parameters. Default: all, as a table."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """List the engines, or show one."""
    import json

    from engines import registry
    from harness.cli import engine_tables

    cards = [registry.card(name)] if name else [registry.card(known) for known in registry.names()]
    if as_json:
        typer.echo(json.dumps([engine_tables.card_json(card) for card in cards], indent=2))
    elif name:
        engine_tables.print_card(cards[0])
    else:
        engine_tables.print_cards(cards)


@_contract.command("check")
def _check(
    engine: Annotated[str, typer.Argument(help="An engine's name or a contract file.")],
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="The server. Default: the usual address.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="What is to be said.")] = None,
    voice: Annotated[
        str | None, typer.Option("--voice", help="One of the server's voices.")
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Option("--param", help="A parameter, as in seed=7. Repeatable.", metavar="K=V"),
    ] = None,
    streams_text: Annotated[
        bool, typer.Option("--stream-text", help="Send the text word by word, 10 ms apart.")
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", help="Seconds for the reply.", min=0.001, callback=finite),
    ] = 60.0,
    key_hosts: Annotated[
        list[str] | None, typer.Option("--send-key-to", help="A further host for the key.")
    ] = None,
    allow_env: Annotated[
        bool,
        typer.Option("--allow-contract-env", help="Let a contract file name variables for keys."),
    ] = False,
    allow_commands: Annotated[
        bool, typer.Option("--allow-commands", help="Let the engine run a command.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Send one short request and print every mismatch with the contract.

    Exit code 0: none, 1: some, 4: unreachable, not ready or another server.
    """
    from engines import registry
    from harness.cli import contract_check
    from harness.cli.scenario_options import named_values

    adapter = registry.create(
        engine,
        base_url=base_url,
        params=named_values(params or (), "--param"),
        key_hosts=key_hosts or (),
        allow_env=allow_env,
    )
    said = text or contract_check.DEFAULT_TEXT
    _announce(adapter.base_url, len(said))
    _print_report(
        contract_check.run_check(
            adapter,
            said,
            voice=voice,
            streams_text=streams_text,
            timeout_s=timeout_s,
            allow_commands=allow_commands,
        ),
        as_json=as_json,
    )


def _announce(base_url: str, num_characters: int) -> None:
    from engines.redact import shown_place

    place = shown_place(base_url)
    typer.echo(f"one request of {num_characters} characters to {place}", err=True)


def _print_report(report: ContractReport, *, as_json: bool) -> None:
    """The findings on stdout; a mismatch ends the command with its exit code."""
    import json

    from harness.cli import engine_tables

    if as_json:
        typer.echo(json.dumps(_as_json(report), indent=2))
    else:
        engine_tables.print_contract_report(report)
    if not report.is_match:
        raise typer.Exit(EXIT_MISMATCH)


def _as_json(report: ContractReport) -> dict[str, Any]:
    record, info = report.record, report.info
    return {
        "engine": report.engine,
        "base_url": report.base_url,
        "is_match": report.is_match,
        "mismatches": list(report.mismatches),
        "notes": list(report.notes),
        "outcome": str(record.transport_outcome),
        "server": {
            "name": info.server_name,
            "version": info.server_version,
            "models": list(info.models),
            "is_match": info.is_match,
        },
        "http_status": record.http_status,
        "content_type": record.content_type,
        "format": None if record.format is None else str(record.format.sample_format),
        "num_chunks": len(record.chunks),
        "audio_bytes": sum(chunk.num_bytes for chunk in record.chunks),
        "duration_s": report.duration_s,
    }
