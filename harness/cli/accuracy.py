"""`earwitness accuracy`: how far the figures of this tool are from the truth, on this machine."""

from __future__ import annotations

from pathlib import Path

import typer

from harness.cli.option_checks import finite

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("accuracy")(accuracy)


def accuracy(
    streams: str = typer.Option(
        "10,100,500", metavar="N,...", help="Replies in flight, on average, of each point."
    ),
    seconds: float = typer.Option(
        10.0, min=1.0, callback=finite, help="Length of each point's measurement."
    ),
    transports: str = typer.Option(
        "all", metavar="NAME,...", help="http, https, ... or all of them."
    ),
    seed: int = typer.Option(
        1, min=0, max=2**63 - 1, help="Of arrivals and of the order of scripts."
    ),
    tries: int = typer.Option(
        3, min=1, help="How often a point is tried that the host has spoiled."
    ),
    user_stamps: bool = typer.Option(
        False, "--user-stamps", help="Do without the kernel's receive stamps, to see what it costs."
    ),
    out: Path | None = typer.Option(
        None, "-o", "--out", metavar="DIR", help="Keep run folders and truth logs here."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON."),
) -> None:
    """Measure a server whose every send is logged, and compare each figure with the truth.

    The server plays scripted audio from a process of its own; the client is the normal one. Ends
    with 0 if every line is met, 1 if one is not, 3 if the host was too noisy to tell.
    """
    from harness.cli.accuracy_command import AccuracyRequest, run_accuracy

    run_accuracy(
        AccuracyRequest(
            streams=streams,
            seconds=seconds,
            transports=transports,
            seed=seed,
            max_tries=tries,
            is_kernel_stamped=not user_stamps,
            out=out,
            is_json=as_json,
        )
    )
