"""Options that several commands take in the same words."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "AllowCommandsOption",
    "AllowEnvOption",
    "JsonOption",
    "ParamOption",
    "SendKeyOption",
    "VoiceOption",
]

VoiceOption = Annotated[
    str | None, typer.Option("--voice", help="A voice of the engines that are run.")
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        help="A parameter of the engines that are run, as in speed=1.2; `earwitness engines NAME` "
        "lists them. Repeatable.",
        metavar="K=V",
    ),
]
SendKeyOption = Annotated[
    list[str] | None,
    typer.Option("--send-key-to", help="A further host that may see the contract's key."),
]
AllowEnvOption = Annotated[
    bool,
    typer.Option(
        "--allow-contract-env",
        help="Let contract files of your own name environment variables.",
    ),
]
AllowCommandsOption = Annotated[
    bool,
    typer.Option("--allow-commands", help="Start the commands that the scenario names as engines."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
