"""The `earwitness` command: gathers the groups, turns a person's mistakes into one line.

Nothing heavy is imported here or at the top of a group file, so that `--help` stays quick.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib import metadata
from typing import NoReturn

import typer

__all__ = ["app", "main"]

# One file a group, in the order in which `--help` lists them. Each has `register(app)`.
_GROUPS = (
    "demo",
    "run",
    "report",
    "judge",
    "simulate",
    "serve",
    "engines",
    "checkpoint",
    "accuracy",
    "check",
)

EXIT_INTERRUPTED = 130
EXIT_BAD_ARGUMENTS = 2
EXIT_FOLDER_OR_DISK = 6
# As a shell reports a program that was ended by a closed pipe.
EXIT_READER_GONE = 141
_EXIT_CODES = (
    "Exit codes: 0 done or passed, 1 a gate or check failed, 2 bad arguments or files,"
    " 3 inconclusive or invalid, 4 engine not reached or not ready, 5 all requests failed,"
    " 6 folder or disk, 7 something is not installed, 130 interrupted."
)


def _version(value: bool) -> None:
    if value:
        typer.echo(metadata.version("earwitness"))
        raise typer.Exit


def _build() -> typer.Typer:
    built = typer.Typer(
        name="earwitness",
        help="Measure what a listener hears: open-loop load, audible latency, underruns, WER.",
        epilog=_EXIT_CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )

    @built.callback()
    def _root(
        version: bool = typer.Option(
            False, "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ) -> None:
        """Measure what a listener hears: open-loop load, audible latency, underruns, WER."""

    for group in _GROUPS:
        importlib.import_module(f"harness.cli.{group}").register(built)
    return built


app = _build()


def main() -> None:
    """Run one command; every error that names its exit code becomes one line on stderr."""
    try:
        # Not by calling the app: that would turn Ctrl-C and a closed pipe into codes of its own,
        # and 1 is what a gate says that failed.
        root = typer.main.get_command(app)
        with root.make_context("earwitness", sys.argv[1:]) as context:
            root.invoke(context)
        sys.stdout.flush()
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("earwitness: interrupted\n")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout went away (`| head`). Nothing more can be said there, not even by
        # the interpreter, which would flush once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_READER_GONE)
    except OSError as fault:
        # A file the user named (a disk that is full, a folder that cannot be made); an error of
        # the system without a file is a fault of ours and keeps its traceback.
        if fault.filename is None:
            raise
        sys.stderr.write(f"earwitness: {fault.filename}: {fault.strerror}\n")
        sys.exit(EXIT_FOLDER_OR_DISK)
    except Exception as error:
        _tell(error)


def _tell(error: Exception) -> NoReturn:
    """One line and the exit code of an error that has one; any other keeps its traceback."""
    code = getattr(error, "exit_code", None)
    if code is None:
        raise error
    # A wrong argument: the parser's own exception knows how to print itself. Its class is not
    # named here, since the command library moved it between releases.
    show = getattr(error, "show", None)
    if callable(show):
        show()
        sys.exit(EXIT_BAD_ARGUMENTS)
    sys.stderr.write(f"earwitness: {error}\n")
    sys.exit(code)
