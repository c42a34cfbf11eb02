"""`earwitness demo`: a real neural voice under open-loop load, from nothing to a report."""

from __future__ import annotations

from pathlib import Path

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    quick: bool = typer.Option(False, "--quick", help="Three rates of 12 s instead of four of 25."),
    out: Path = typer.Option(
        Path("results/demo"), "-o", "--out", metavar="DIR", help="Run folder; must not exist."
    ),
    wer: bool = typer.Option(True, help="Score intelligibility with Whisper (extra: whisper)."),
    as_json: bool = typer.Option(False, "--json", help="Print metrics.json on stdout."),
) -> None:
    """Load the bundled voice in both of its modes at several rates and report what was heard.

    Rates are shares of what one worker can do on this machine, measured first. Everything runs on
    this computer; nothing is downloaded. Client and engine share its cores, so a verdict of
    `suspect` is likely and says why.
    """
    from harness.cli.demo_command import DemoRequest, run_demo

    run_demo(DemoRequest(out=out, is_quick=quick, has_wer=wer, is_json=as_json))
