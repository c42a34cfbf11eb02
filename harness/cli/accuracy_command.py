"""What `earwitness accuracy` does: probe the host, try each point, compare with the truth."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from analysis.accuracy import Accuracy, Bar, bars_for, measure_accuracy
from harness.cli.accuracy_tables import print_points
from harness.config_errors import hint
from harness.environment import Environment, describe_environment
from harness.errors import MissingExtraError, RunFolderError, ScenarioError
from harness.store import open_run
from harness.truth.book import accuracy_scripts, accuracy_shares
from harness.truth.certificate import write_certificate
from harness.truth.expected import expected_replies
from harness.truth.noise import HostNoise, host_trouble, probe_noise
from harness.truth.trial import Cores, Transport, TrialSettings, cores, run_trial

__all__ = ["AccuracyPoint", "AccuracyRequest", "run_accuracy"]

_PROBE_S = 0.5
# Long enough for replies of 2 s to reach their number in flight.
_WARMUP_S = 3.0
_PROBE_AGAIN_S = 0.25
_EXIT_NOT_MET = 1
_EXIT_INCONCLUSIVE = 3


@dataclass(frozen=True, slots=True)
class AccuracyRequest:
    """What was asked for on the command line."""

    streams: str
    seconds: float
    transports: str
    seed: int
    max_tries: int
    is_kernel_stamped: bool = True
    out: Path | None = None
    is_json: bool = False


@dataclass(frozen=True, slots=True)
class AccuracyPoint:
    """One point as it was kept. `trouble`: what was wrong with the host in this try, or None."""

    transport: Transport
    streams: int
    num_tries: int
    trouble: str | None
    accuracy: Accuracy
    bars: tuple[Bar, ...]

    @property
    def is_met(self) -> bool:
        """Whether every figure is on the right side of its line."""
        return all(bar.is_met for bar in self.bars)


@dataclass(frozen=True, slots=True)
class _Bench:
    """What all points share."""

    request: AccuracyRequest
    environment: Environment
    placed: Cores
    root: Path


def run_accuracy(request: AccuracyRequest) -> None:
    """Run it, print it, and leave with the exit code.

    Raises:
        ScenarioError: a number or a transport that is none.
        RunFolderError: the folder to keep things in exists.
    """
    streams = _streams(request.streams)
    placed = cores()
    noise = [probe_noise(_PROBE_S, cpu=cpu) for cpu in _probed(placed)]
    for each in noise:
        sys.stderr.write(f"host noise, {each}\n")
    with _root(request.out) as root:
        transports = _transports(request.transports, root)
        bench = _Bench(request, describe_environment(), placed, root)
        points = [
            _point(bench, transport, number) for transport in transports for number in streams
        ]
    if request.is_json:
        typer.echo(json.dumps(_as_json(request, noise, points), indent=1))
    else:
        print_points(points, noise=noise, seconds=request.seconds)
    missed = [point for point in points if not point.is_met]
    if missed:
        is_hosts_fault = all(point.trouble for point in missed)
        raise typer.Exit(_EXIT_INCONCLUSIVE if is_hosts_fault else _EXIT_NOT_MET)


def _probed(placed: Cores) -> list[int | None]:
    return list(dict.fromkeys((placed.client, placed.server)))


def _streams(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= 10_000 for word in words):
        raise ScenarioError(f"--streams: {text!r} is not a list of numbers from 1 to 10000")
    return [int(word) for word in words]


def _transports(text: str, scratch: Path) -> list[Transport]:
    if text.strip() == "all":
        return [each for each in Transport if _is_possible(each, scratch)]
    known = [each.value for each in Transport]
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise ScenarioError(
                f"--transports: {word!r} is not one of all, {', '.join(known)}{hint(word, known)}"
            )
    return [Transport(word) for word in words]


def _is_possible(transport: Transport, scratch: Path) -> bool:
    """Whether `all` can include it; what is left out is named."""
    if not transport.is_sealed:
        return True
    try:
        write_certificate(scratch)
    except MissingExtraError as missing:
        sys.stderr.write(f"{transport.value} is left out: {missing}\n")
        return False
    return True


@contextlib.contextmanager
def _root(out: Path | None) -> Iterator[Path]:
    """Where run folders go: a folder that is kept, or one that is not."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="earwitness-accuracy-") as name:
            yield Path(name)
        return
    try:
        out.mkdir(parents=True)
    except FileExistsError:
        raise RunFolderError(f"{out}: exists already; name another with -o") from None
    except OSError as fault:
        raise RunFolderError(f"{out}: cannot be made: {fault.strerror or fault}") from None
    yield out


def _point(bench: _Bench, transport: Transport, streams: int) -> AccuracyPoint:
    """One point, tried again while the host spoils it; the last try is kept."""
    request = bench.request
    for turn in range(1, request.max_tries + 1):
        sys.stderr.write(
            f"{transport.value}, {streams} replies in flight, {request.seconds:g} s"
            f"{'' if turn == 1 else f' (try {turn})'}\n"
        )
        point = _try(bench, transport, streams, turn)
        if point.is_met or point.trouble is None:
            break
        sys.stderr.write(f"  spoiled by the host: {point.trouble}\n")
    return point


def _try(bench: _Bench, transport: Transport, streams: int, turn: int) -> AccuracyPoint:
    request, scripts = bench.request, accuracy_scripts()
    noise = [probe_noise(_PROBE_AGAIN_S, cpu=cpu) for cpu in _probed(bench.placed)]
    folder = bench.root / f"{transport.value}-{streams}-try{turn}"
    folder.mkdir()
    settings = TrialSettings(
        transport=transport,
        streams=streams,
        measure_s=request.seconds,
        warmup_s=min(_WARMUP_S, request.seconds),
        seed=request.seed,
        shares=accuracy_shares(),
        is_kernel_stamped=request.is_kernel_stamped,
    )
    trial = run_trial(settings, scripts, folder, environment=bench.environment, placed=bench.placed)
    accuracy = measure_accuracy(trial.result.folder, expected_replies(trial.log, scripts))
    record = open_run(trial.result.folder).record
    return AccuracyPoint(
        transport=transport,
        streams=streams,
        num_tries=turn,
        trouble=host_trouble(record.points[0].selfcheck, noise),
        accuracy=accuracy,
        bars=bars_for(accuracy, streams=streams),
    )


def _as_json(
    request: AccuracyRequest, noise: list[HostNoise], points: list[AccuracyPoint]
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "seconds": request.seconds,
        "seed": request.seed,
        "host_noise": [asdict(each) for each in noise],
        "points": [
            {
                **asdict(point),
                "bars": [{**asdict(bar), "is_met": bar.is_met} for bar in point.bars],
                "coverage": point.accuracy.stamps.coverage,
                "is_met": point.is_met,
            }
            for point in points
        ],
    }
