"""`earwitness serve ...`: start a server that comes with the toolkit.

Each sub-command becomes the server: its process is replaced, so signals, exit codes and output are
the server's own. The bundled voice is under another licence than this file and is therefore only
ever started, never imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from harness.cli.option_checks import finite

__all__ = [
    "PiperMode",
    "PiperPolicy",
    "become_module",
    "piper_arguments",
    "register",
    "serve_app",
]

serve_app = typer.Typer(
    name="serve",
    help="Start a server that comes with the toolkit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class PiperMode(StrEnum):
    """How the bundled voice cuts its audio into chunks."""

    STREAM = "stream"
    SENTENCE = "sentence"


class PiperPolicy(StrEnum):
    """Which request gets the next free inference thread."""

    DEADLINE = "deadline"
    FIFO = "fifo"


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    app.add_typer(serve_app)


def become_module(module: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by `python -m module arguments`."""
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: a folder called like one of our packages in the user's directory is not ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])


def piper_arguments(
    *,
    mode: PiperMode,
    host: str,
    port: int,
    workers: int,
    policy: PiperPolicy,
    max_queue: int,
    noise: float,
    drain_s: float,
    api_key_env: str | None,
    is_bound_to_stdin: bool,
) -> list[str]:
    """The command line of the bundled voice's server; it checks the ranges itself."""
    arguments = [
        f"--mode={mode.value}",
        f"--host={host}",
        f"--port={port}",
        f"--workers={workers}",
        f"--policy={policy.value}",
        f"--max-queue={max_queue}",
        f"--noise={noise}",
        f"--drain-s={drain_s}",
    ]
    if api_key_env is not None:
        arguments.append(f"--api-key-env={api_key_env}")
    if is_bound_to_stdin:
        arguments.append("--stop-on-stdin-eof")
    return arguments


@serve_app.command("piper")
def serve_piper(
    mode: PiperMode = typer.Option(
        PiperMode.STREAM, help="stream: chunks inside the sentence; sentence: one chunk each."
    ),
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    port: int = typer.Option(
        8123, min=0, max=65_535, help="Port to listen on; 0 lets the system choose."
    ),
    workers: int = typer.Option(1, help="Inference threads."),
    policy: PiperPolicy = typer.Option(
        PiperPolicy.DEADLINE,
        help="deadline: first sound first, then who runs dry soonest; fifo: one after the other.",
    ),
    max_queue: int = typer.Option(64, help="Open requests beyond one a worker, then 429."),
    noise: float = typer.Option(
        1.0, callback=finite, help="0: the same audio every time; 1: the voice as trained."
    ),
    drain_s: float = typer.Option(
        10.0, callback=finite, help="Longest wait for open requests when stopping, in s."
    ),
    api_key_env: str | None = typer.Option(
        None, metavar="NAME", help="Ask for the key held in this environment variable."
    ),
    stop_on_stdin_eof: bool = typer.Option(
        False, "--stop-on-stdin-eof", help="Stop when standard input closes (for parent processes)."
    ),
) -> None:
    """Serve the bundled neural voice (for evaluation only) over an OpenAI-shaped API.

    One JSON line on standard output says when it is ready and where; Ctrl-C stops it.
    """
    become_module(
        "engines.embedded",
        piper_arguments(
            mode=mode,
            host=host,
            port=port,
            workers=workers,
            policy=policy,
            max_queue=max_queue,
            noise=noise,
            drain_s=drain_s,
            api_key_env=api_key_env,
            is_bound_to_stdin=stop_on_stdin_eof,
        ),
    )


@serve_app.command("truth")
def serve_truth(
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    port: int = typer.Option(
        8125, min=0, max=65_535, help="Port to listen on; 0 lets the system choose."
    ),
    scripts: str | None = typer.Option(
        None, metavar="FILE", help="YAML file of scripts; default: those of `earwitness accuracy`."
    ),
    log: Path | None = typer.Option(
        None,
        metavar="FILE",
        dir_okay=False,
        writable=True,
        help="Write what was sent when, as JSON, when the server stops.",
    ),
    cert: str | None = typer.Option(None, metavar="FILE", help="PEM certificate: serve TLS."),
    key: str | None = typer.Option(None, metavar="FILE", help="PEM key of the certificate."),
    cpu: int | None = typer.Option(
        None, min=0, max=65_535, metavar="N", help="Run on this core alone."
    ),
    accept_delay_ms: float = typer.Option(
        0.0, min=0, callback=finite, help="Leave every new connection waiting so long."
    ),
    stop_on_stdin_eof: bool = typer.Option(
        False, "--stop-on-stdin-eof", help="Stop when standard input closes (for parent processes)."
    ),
) -> None:
    """Serve scripted audio on an absolute schedule and keep a log of every send.

    The text of a request is the name of a script. One JSON line on standard output says when it is
    ready and where; Ctrl-C stops it.
    """
    if key is not None and cert is None:
        raise typer.BadParameter(
            "names a key, but --cert names no certificate.", param_hint="'--key'"
        )
    if log is not None:
        from harness.machine_limits import check_writable

        check_writable(log.absolute().parent)
        if not log.absolute().parent.exists():
            raise typer.BadParameter(f"{log.parent} is not there.", param_hint="'--log'")
    given = {"--scripts": scripts, "--log": log, "--cert": cert, "--key": key, "--cpu": cpu}
    arguments = [f"--host={host}", f"--port={port}", f"--accept-delay-ms={accept_delay_ms}"]
    arguments += [f"{name}={value}" for name, value in given.items() if value is not None]
    if stop_on_stdin_eof:
        arguments.append("--stop-on-stdin-eof")
    become_module("harness.truth", arguments)


@serve_app.command("replay")
def serve_replay(
    run: Path = typer.Argument(help="Folder of a recorded run."),
    point: str | None = typer.Option(
        None, metavar="ID", help="Which point of it; needed where it has several."
    ),
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    port: int = typer.Option(
        8126, min=0, max=65_535, help="Port to listen on; 0 lets the system choose."
    ),
    stop_on_stdin_eof: bool = typer.Option(
        False, "--stop-on-stdin-eof", help="Stop when standard input closes (for parent processes)."
    ),
) -> None:
    """Serve a recorded run again with its timing, to see what another client makes of it.

    The text of a request chooses the reply. One JSON line on standard output says when it is ready
    and where; Ctrl-C stops it.
    """
    arguments = [f"--host={host}", f"--port={port}"]
    if point is not None:
        arguments.append(f"--point={point}")
    if stop_on_stdin_eof:
        arguments.append("--stop-on-stdin-eof")
    become_module("harness.replay", [*arguments, "--", str(run)])


_Checkpoint = Annotated[
    str | None, typer.Option(metavar="DIR", help="Checkpoint in the official layout.")
]
_RandomShape = Annotated[
    str | None,
    typer.Option(
        metavar="SHAPE", help="Noise instead of a checkpoint: tiny, tiny-0.6b, 0.6b, 1.7b."
    ),
]
_Profile = Annotated[str, typer.Option(help="Profile of the engine, or a YAML file.")]
_Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the profile. Repeatable."),
]
_Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
_Dtype = Annotated[
    str | None, typer.Option(help="float32 or bfloat16; default: bfloat16 on cuda, else float32.")
]
_Threads = Annotated[
    int | None,
    typer.Option(metavar="N", help="CPU threads of a step; default: as torch decides."),
]
_Host = Annotated[str, typer.Option(help="Address to listen on.")]
_Port = Annotated[
    int, typer.Option(help="Port to listen on; 0 lets the system choose.", min=0, max=65_535)
]
_ModelId = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name in /v1/models; default: the folder's.")
]
_Start = Annotated[
    str,
    typer.Option(help="Speech of arriving text begins at: first-token, clause, sentence."),
]
_StartTokens = Annotated[int, typer.Option(help="Begin with so many tokens anyhow.")]
_StartWait = Annotated[
    float, typer.Option(help="Begin after so many seconds anyhow.", min=0, callback=finite)
]
_Drain = Annotated[
    float,
    typer.Option(
        help="Longest wait for open requests when stopping, in s.", min=0, callback=finite
    ),
]
_KeyVariable = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Ask for the key held in this environment variable."),
]
_StopOnEof = Annotated[
    bool,
    typer.Option(
        "--stop-on-stdin-eof", help="Stop when standard input closes (for parent processes)."
    ),
]


@serve_app.command("reference")
def serve_reference(
    checkpoint: _Checkpoint = None,
    random: _RandomShape = None,
    profile: _Profile = "ttfa",
    setting: _Settings = None,
    device: _Device = "cpu",
    dtype: _Dtype = None,
    threads: _Threads = None,
    host: _Host = "127.0.0.1",
    port: _Port = 8124,
    model_id: _ModelId = None,
    start: _Start = "first-token",
    start_max_tokens: _StartTokens = 24,
    start_max_wait_s: _StartWait = 0.5,
    drain_s: _Drain = 30.0,
    api_key_env: _KeyVariable = None,
    stop_on_stdin_eof: _StopOnEof = False,
) -> None:
    """Serve Qwen3-TTS by the bundled engine: OpenAI's and Nari's HTTP shape, and nari.speech.v1.

    One JSON line on standard output says when it is ready and where; Ctrl-C stops it.
    """
    given = {
        "checkpoint": checkpoint,
        "random": random,
        "profile": profile,
        "device": device,
        "dtype": dtype,
        "threads": threads,
        "host": host,
        "port": port,
        "model-id": model_id,
        "start": start,
        "start-max-tokens": start_max_tokens,
        "start-max-wait-s": start_max_wait_s,
        "drain-s": drain_s,
        "api-key-env": api_key_env,
    }
    arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
    arguments += [f"--set={each}" for each in setting or ()]
    if stop_on_stdin_eof:
        arguments.append("--stop-on-stdin-eof")
    become_module("reference_engine.server", arguments)
