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
from typing import NoReturn

import typer

__all__ = ["become_module", "piper_arguments", "register", "serve_app"]

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
    port: int = typer.Option(8123, help="Port to listen on; 0 lets the system choose."),
    workers: int = typer.Option(1, help="Inference threads."),
    policy: PiperPolicy = typer.Option(
        PiperPolicy.DEADLINE,
        help="deadline: first sound first, then who runs dry soonest; fifo: one after the other.",
    ),
    max_queue: int = typer.Option(64, help="Open requests beyond one a worker, then 429."),
    noise: float = typer.Option(1.0, help="0: the same audio every time; 1: the voice as trained."),
    drain_s: float = typer.Option(10.0, help="Longest wait for open requests when stopping, in s."),
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
    port: int = typer.Option(8125, help="Port to listen on; 0 lets the system choose."),
    scripts: str | None = typer.Option(
        None, metavar="FILE", help="YAML file of scripts; default: those of `earwitness accuracy`."
    ),
    log: str | None = typer.Option(
        None, metavar="FILE", help="Write what was sent when, as JSON, when the server stops."
    ),
    cert: str | None = typer.Option(None, metavar="FILE", help="PEM certificate: serve TLS."),
    key: str | None = typer.Option(None, metavar="FILE", help="PEM key of the certificate."),
    cpu: int | None = typer.Option(None, metavar="N", help="Run on this core alone."),
    accept_delay_ms: float = typer.Option(0.0, help="Leave every new connection waiting so long."),
    stop_on_stdin_eof: bool = typer.Option(
        False, "--stop-on-stdin-eof", help="Stop when standard input closes (for parent processes)."
    ),
) -> None:
    """Serve scripted audio on an absolute schedule and keep a log of every send.

    The text of a request is the name of a script. One JSON line on standard output says when it is
    ready and where; Ctrl-C stops it.
    """
    given = {"--scripts": scripts, "--log": log, "--cert": cert, "--key": key, "--cpu": cpu}
    arguments = [f"--host={host}", f"--port={port}", f"--accept-delay-ms={accept_delay_ms}"]
    arguments += [f"{name}={value}" for name, value in given.items() if value is not None]
    if stop_on_stdin_eof:
        arguments.append("--stop-on-stdin-eof")
    become_module("harness.truth", arguments)


@serve_app.command("reference")
def serve_reference(
    checkpoint: str | None = typer.Option(
        None, metavar="DIR", help="Checkpoint in the official layout."
    ),
    random: str | None = typer.Option(
        None, metavar="SHAPE", help="Noise instead of a checkpoint: tiny, tiny-0.6b, 0.6b, 1.7b."
    ),
    profile: str = typer.Option("ttfa", help="Profile of the engine, or a YAML file."),
    setting: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Change a key of the profile. Repeatable."
    ),
    device: str = typer.Option("cpu", help="cpu, cuda or cuda:N."),
    dtype: str | None = typer.Option(
        None, help="float32 or bfloat16; default: bfloat16 on cuda, else float32."
    ),
    threads: int | None = typer.Option(
        None, metavar="N", help="CPU threads of a step; default: as torch decides."
    ),
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    port: int = typer.Option(8124, help="Port to listen on; 0 lets the system choose."),
    model_id: str | None = typer.Option(
        None, metavar="NAME", help="Name in /v1/models; default: the folder's."
    ),
    start: str = typer.Option(
        "first-token", help="Speech of arriving text begins at: first-token, clause, sentence."
    ),
    start_max_tokens: int = typer.Option(24, help="Begin with so many tokens anyhow."),
    start_max_wait_s: float = typer.Option(0.5, help="Begin after so many seconds anyhow."),
    drain_s: float = typer.Option(30.0, help="Longest wait for open requests when stopping, in s."),
    api_key_env: str | None = typer.Option(
        None, metavar="NAME", help="Ask for the key held in this environment variable."
    ),
    stop_on_stdin_eof: bool = typer.Option(
        False, "--stop-on-stdin-eof", help="Stop when standard input closes (for parent processes)."
    ),
) -> None:
    """Serve Qwen3-TTS by the bundled engine: OpenAI's and Nari's HTTP shape, and nari.speech.v1.

    One JSON line on standard output says when it is ready and where; Ctrl-C stops it.
    """
    given = {
        "--checkpoint": checkpoint,
        "--random": random,
        "--dtype": dtype,
        "--threads": threads,
        "--model-id": model_id,
        "--api-key-env": api_key_env,
    }
    arguments = [
        f"--profile={profile}",
        f"--device={device}",
        f"--host={host}",
        f"--port={port}",
        f"--start={start}",
        f"--start-max-tokens={start_max_tokens}",
        f"--start-max-wait-s={start_max_wait_s}",
        f"--drain-s={drain_s}",
    ]
    arguments += [f"{name}={value}" for name, value in given.items() if value is not None]
    arguments += [f"--set={each}" for each in setting or ()]
    if stop_on_stdin_eof:
        arguments.append("--stop-on-stdin-eof")
    become_module("reference_engine.server", arguments)


@serve_app.command("replay")
def serve_replay(
    run: str = typer.Argument(help="Folder of a recorded run."),
    point: str | None = typer.Option(
        None, metavar="POINT", help="Which point of the run; needed where it has several."
    ),
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    port: int = typer.Option(8126, help="Port to listen on; 0 lets the system choose."),
    stop_on_stdin_eof: bool = typer.Option(
        False, "--stop-on-stdin-eof", help="Stop when standard input closes (for parent processes)."
    ),
) -> None:
    """Serve a recorded run again with its timing (engine `replay`).

    The text of a request chooses the recorded reply. One JSON line on standard output says when it
    is ready and where; Ctrl-C stops it.
    """
    arguments = [run, f"--host={host}", f"--port={port}"]
    if point is not None:
        arguments.append(f"--point={point}")
    if stop_on_stdin_eof:
        arguments.append("--stop-on-stdin-eof")
    become_module("harness.replay", arguments)
