"""`python -m reference_engine.server`: the engine as a server process."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml
from aiohttp.http_exceptions import HttpProcessingError

from reference_engine.clock import Clock, MonotonicClock
from reference_engine.config import Profile, load_profile
from reference_engine.errors import ArgumentError, MissingExtraError, ReferenceEngineError
from reference_engine.model.config_reader import read_codec_config, read_model_config
from reference_engine.server.settings import (
    DEFAULT_PORT,
    ServerSettings,
    StartRule,
    StartSettings,
)
from reference_engine.server.sockets import bind

if TYPE_CHECKING:
    from reference_engine.assemble import AssembledEngine

__all__ = ["Launch", "main", "parse_arguments"]

_NEEDED = ("torch", "safetensors", "tokenizers", "prometheus_client")
_RANDOM = ("tiny", "tiny-0.6b", "0.6b", "1.7b")
# The engine's thread holds the interpreter between kernels; the default of 5 ms is a codec frame's
# worth of waiting for whoever has bytes to send.
_SWITCH_INTERVAL_S = 0.0005
_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")
_MAX_THREADS = 1_024  # more only fail, and not in words that say why


@dataclass(frozen=True, slots=True)
class Launch:
    """What the command line says."""

    settings: ServerSettings
    profile: Profile
    checkpoint: Path | None
    random_shape: str | None
    device: str
    dtype: str
    num_threads: int | None


def parse_arguments(argv: Sequence[str]) -> Launch:
    """The command line, checked.

    Raises:
        ReferenceEngineError: a value is out of range, a profile unknown, a key not set.
        SystemExit: help was asked for.
    """
    given = _parser().parse_args(argv)
    _check(given)
    name = f"random-{given.random}" if given.random else given.checkpoint.resolve().name
    return Launch(
        settings=ServerSettings(
            model_id=given.model_id or name,
            host=given.host,
            port=given.port,
            api_key=_api_key(given.api_key_env),
            drain_s=given.drain_s,
            start=StartSettings(
                StartRule(given.start), given.start_max_tokens, given.start_max_wait_s
            ),
            should_stop_on_stdin_eof=given.stop_on_stdin_eof,
        ),
        profile=load_profile(given.profile, overrides=_overrides(given.set)),
        checkpoint=given.checkpoint,
        random_shape=given.random,
        device=given.device,
        dtype=given.dtype or ("float32" if given.device == "cpu" else "bfloat16"),
        num_threads=given.threads,
    )


def _check(given: argparse.Namespace) -> None:
    """Raise what is wrong with single values; the checkpoint's configuration is read for it."""
    if (given.checkpoint is None) == (given.random is None):
        raise ArgumentError("give one of --checkpoint DIR and --random tiny|1.7b")
    for name in ("drain_s", "start_max_wait_s"):
        if not 0 <= getattr(given, name) < 1e6:
            raise ArgumentError(f"--{name.replace('_', '-')}: expected seconds, at least 0")
    if not 0 <= given.port <= 65_535:
        raise ArgumentError(f"--port: {given.port} is not in 0..65535")
    if given.start_max_tokens < 1:
        raise ArgumentError(f"--start-max-tokens: {given.start_max_tokens}; expected at least 1")
    if given.threads is not None and not 1 <= given.threads <= _MAX_THREADS:
        raise ArgumentError(f"--threads: {given.threads} is not in 1..{_MAX_THREADS}")
    if _DEVICE.fullmatch(given.device) is None:
        raise ArgumentError(f"--device: {given.device!r} is not cpu, cuda or cuda:N")
    if given.checkpoint is not None:
        read_model_config(given.checkpoint)
        read_codec_config(given.checkpoint)


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ArgumentError(f"--api-key-env: the variable {variable} is not set or empty")
    return key


def _overrides(settings: Sequence[str]) -> dict[str, Any]:
    """`a.b=value` pairs, nested; values are YAML."""
    nested: dict[str, Any] = {}
    for setting in settings:
        path, is_pair, text = setting.partition("=")
        if not is_pair or not path:
            raise ArgumentError(f"--set: {setting!r}; expected KEY=VALUE, as in codec=redecode")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise ArgumentError(f"--set: the value of {setting!r} is not YAML") from None
        at = nested
        *outer, last = path.split(".")
        for key in outer:
            at = at.setdefault(key, {})
            if not isinstance(at, dict):
                raise ArgumentError(f"--set: {path} is inside of what another --set replaced")
        at[last] = value
    return nested


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, without the usage of two dozen options."""

    def error(self, message: str) -> NoReturn:
        text = message.removeprefix("argument ")
        raise ArgumentError(f"{text}; --help lists what there is")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m reference_engine.server", allow_abbrev=False)
    add = parser.add_argument
    add("--checkpoint", type=Path, metavar="DIR", help="a checkpoint in the official layout")
    add("--random", choices=_RANDOM, help="noise of this shape instead of a checkpoint")
    add("--profile", default="ttfa", help="a profile of the engine, or a YAML file")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change the profile")
    add("--device", default="cpu", help="cpu, cuda or cuda:N")
    add("--dtype", choices=("float32", "bfloat16"), help="default: bfloat16 on cuda, else float32")
    add("--threads", type=int, help="CPU threads of a step; default: as torch decides")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, default=DEFAULT_PORT, help="0 lets the system choose")
    add("--model-id", help="name in /v1/models; default: the folder's")
    add(
        "--start",
        choices=[rule.value for rule in StartRule],
        default=StartRule.FIRST_TOKEN,
        help="of arriving text",
    )
    add("--start-max-tokens", type=int, default=24, help="begin with so many tokens anyhow")
    add("--start-max-wait-s", type=float, default=0.5, help="begin after so long anyhow")
    add("--drain-s", type=float, default=30.0, help="longest wait for requests when stopping")
    add("--api-key-env", metavar="NAME", help="ask for the key in this environment variable")
    add("--stop-on-stdin-eof", action="store_true", help="stop when standard input closes")
    return parser


def _check_extra(is_installed: Callable[[str], bool]) -> None:
    missing = [name for name in _NEEDED if not is_installed(name)]
    if missing:
        raise MissingExtraError(
            f"the reference engine needs {', '.join(missing)}, not installed here; run"
            " pip install -e '.[reference]' in the folder of earwitness"
        )


def _load(launch: Launch, clock: Clock) -> AssembledEngine:
    """Everything that takes long; runs in a worker thread."""
    import torch

    from reference_engine.assemble import assemble
    from reference_engine.checkpoint.make import make_checkpoint

    if launch.num_threads is not None:
        torch.set_num_threads(launch.num_threads)
    dtype = getattr(torch, launch.dtype)
    build = partial(
        assemble, profile=launch.profile, device=launch.device, dtype=dtype, clock=clock
    )
    if launch.random_shape is None:
        assert launch.checkpoint is not None
        return build(launch.checkpoint)
    with tempfile.TemporaryDirectory(prefix="earwitness-random-") as folder:
        made = Path(folder) / "checkpoint"
        make_checkpoint(made, shape=launch.random_shape, seed=0)
        return build(made)


def _is_ours(record: logging.LogRecord) -> bool:
    """Not a client's malformed HTTP, which got its 400, and not a connection that was cut.

    Each request has a line of its own that says so; tracebacks would only bury real ones.
    """
    fault = record.exc_info[1] if record.exc_info else None
    return not isinstance(fault, HttpProcessingError | ConnectionError)


def _set_up_logs() -> None:
    logging.basicConfig(format="earwitness: %(message)s", level=logging.WARNING)
    for name in ("reference_engine.requests", "reference_engine.graphs"):
        logging.getLogger(name).setLevel(logging.INFO)
    logging.getLogger("aiohttp.server").addFilter(_is_ours)


def _serve(launch: Launch) -> None:
    # Taken before what takes long is imported: a wrong address is told at once.
    sockets = bind(launch.settings.host, launch.settings.port)
    from reference_engine.server.process import serve_until_stopped
    from reference_engine.server.service import Service

    clock = MonotonicClock()
    service = Service(
        launch.settings,
        partial(_load, launch, clock),
        clock=clock,
        version=metadata.version("earwitness"),
    )
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    asyncio.run(serve_until_stopped(service, sockets, stdout=sys.stdout, stderr=sys.stderr))


def main(argv: Sequence[str]) -> int:
    """Run until stopped; returns the exit code."""
    _set_up_logs()
    try:
        launch = parse_arguments(argv)
        _check_extra(lambda name: importlib.util.find_spec(name) is not None)
        _serve(launch)
    except ReferenceEngineError as error:
        sys.stderr.write(f"earwitness: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
