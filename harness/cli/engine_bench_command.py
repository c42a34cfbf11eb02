"""What `earwitness engine-bench` does: time the host's turns, and the steps of a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.extras import require_reference
from harness.errors import ScenarioError
from harness.machine_limits import check_new
from reference_engine.clock import MonotonicClock, thread_cpu_ns
from reference_engine.config import Profile, Stages, load_profile
from reference_engine.engine_bench import TurnCosts, measure_turns

if TYPE_CHECKING:
    from reference_engine.official.speed import SpeedComparison
    from reference_engine.step_bench import StepBench

__all__ = ["BenchRequest", "run_bench"]

# Far beyond what any device serves; a turn over more would only exhaust memory.
_MAX_STREAMS = 4096


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What was asked for on the command line."""

    profile: str
    streams: str
    num_turns: int
    checkpoint: Path | None = None
    shape: str | None = None
    device: str = "cpu"
    dtype: str | None = None
    max_rows: int = 32
    num_calls: int = 12
    costs_out: Path | None = None
    # Interpreter of the official package to race against; None for no race.
    official_python: Path | None = None
    is_json: bool = False


def run_bench(request: BenchRequest) -> None:
    """Measure and print.

    Raises:
        HarnessError, ReferenceEngineError: an option, the profile or the checkpoint is wrong.
    """
    _check(request)
    profile = load_profile(request.profile)
    turns = [
        measure_turns(profile, num_streams=num, num_turns=request.num_turns, cpu_ns=thread_cpu_ns)
        for num in _streams(request.streams)
    ]
    bench = _steps(request, profile)
    steps = bench.as_json() if bench else {}
    if bench and request.costs_out:
        _write_costs(request.costs_out, bench, turns[0])
    race = _race(request)
    if request.is_json:
        turn_rows = [dataclasses.asdict(each) for each in turns]
        official = {"official": race.as_json()} if race else {}
        typer.echo(json.dumps({"turns": turn_rows, **steps, **official}))
        return
    _print_turns(turns)
    _print_steps(steps)
    if race:
        _print_race(race)


def _check(request: BenchRequest) -> None:
    """Refuse before anything is timed what could not be timed, or not be kept."""
    has_model = request.checkpoint is not None or request.shape is not None
    if not has_model and (request.costs_out is not None or request.device != "cpu"):
        raise ScenarioError(
            "--device and --costs-out: nothing to time; name --checkpoint or --random"
        )
    if request.checkpoint is not None and request.shape is not None:
        raise ScenarioError("--checkpoint and --random: name one of them")
    if request.dtype not in (None, "float32", "bfloat16"):
        raise ScenarioError(f"--dtype: found {request.dtype!r}, expected float32 or bfloat16")
    if request.costs_out is not None:
        check_new(request.costs_out)
    python = request.official_python
    if python is not None and not python.is_file():
        raise ScenarioError(
            f"--official-python: {python} is not a file; `make oracle` builds "
            ".venv-oracle/bin/python"
        )
    if has_model or python is not None:
        require_reference("engine-bench")


def _streams(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise ScenarioError(f"--streams: found {text!r}, expected numbers such as 1,64") from None
    if not all(1 <= number <= _MAX_STREAMS for number in numbers):
        raise ScenarioError(
            f"--streams: found {text[:80]!r}, expected numbers between 1 and {_MAX_STREAMS}"
        )
    return numbers


def _steps(request: BenchRequest, profile: Profile) -> StepBench | None:
    """Times of the checkpoint's steps; nothing where none was named."""
    if request.checkpoint is None and request.shape is None:
        return None
    from reference_engine.checkpoint.make import make_checkpoint

    if request.checkpoint is not None:
        return _time_steps(request.checkpoint, request, profile)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / f"random-{request.shape}"
        make_checkpoint(folder, shape=str(request.shape), seed=0)
        return _time_steps(folder, request, profile)


def _time_steps(folder: Path, request: BenchRequest, profile: Profile) -> StepBench:
    """All stages where a cost table is wanted, else the profile's own."""
    from reference_engine.step_bench import measure_steps

    dtype = request.dtype or ("float32" if request.device == "cpu" else "bfloat16")
    return measure_steps(
        folder,
        profile,
        device=request.device,
        dtype=dtype,
        max_rows=request.max_rows,
        num_calls=request.num_calls,
        stages=tuple(Stages) if request.costs_out else (),
    )


def _write_costs(path: Path, bench: StepBench, turns: TurnCosts) -> None:
    """Keep the figures as a cost table, and say where."""
    from reference_engine.measured_costs import cost_table, write_costs

    label = f"{bench.device}, {Path(bench.checkpoint).name} in {bench.dtype}, measured"
    write_costs(cost_table(bench, turn_us=turns.p50_us, label=label), path)
    typer.echo(f"cost table: {path} (earwitness simulate --cost {path})", err=True)


def _race(request: BenchRequest) -> SpeedComparison | None:
    """Codec frames a second of both, in one interleaved run; None where no race was asked for."""
    if request.official_python is None:
        return None
    from reference_engine.checkpoint.make import make_checkpoint
    from reference_engine.official.speed import compare_official

    python, clock = request.official_python, MonotonicClock()
    if request.checkpoint is not None:
        return compare_official(request.checkpoint, python=python, clock=clock)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "checkpoint"
        make_checkpoint(folder, shape=request.shape or "tiny", seed=0)
        return compare_official(folder, python=python, clock=clock)


def _print_race(race: SpeedComparison) -> None:
    typer.echo(
        f"\ncodec frames a second, one CPU thread, {race.frames_per_request} frames a request,"
        f" best of {race.rounds} interleaved rounds"
    )
    typer.echo(
        f"{'drawing':>8} {'batch':>6} {'ours':>9} {'official':>9} {'ratio':>7}"
        f" {'to official at batch 1':>24}"
    )
    for row in race.rows:
        alone = race.row(sampled=row.sampled, batch=race.rows[0].batch)
        typer.echo(
            f"{'sampled' if row.sampled else 'greedy':>8} {row.batch:>6} {row.ours_fps:>9.1f}"
            f" {row.official_fps:>9.1f} {row.ratio:>6.1f}x"
            f" {row.ours_fps / alone.official_fps:>23.1f}x"
        )


def _print_turns(turns: Sequence[TurnCosts]) -> None:
    typer.echo("scheduling turns with a runner that does nothing, thread CPU time (us)")
    typer.echo(f"{'streams':>8} {'turns':>7} {'p50':>8} {'p99':>8}   full steps: n, p50, p99")
    for each in turns:
        typer.echo(
            f"{each.num_streams:>8} {each.num_turns:>7} {each.p50_us:>8.1f} {each.p99_us:>8.1f}"
            f"   {each.num_full:>7} {each.full_p50_us:>8.1f} {each.full_p99_us:>8.1f}"
        )


def _print_steps(steps: dict[str, Any]) -> None:
    if not steps:
        return
    ceilings = steps["ceilings"]
    typer.echo(
        f"\nsteps of {steps['checkpoint']} on {steps['device']}, {steps['dtype']}, wall time (ms);"
        f" floor at {ceilings['bytes_per_s'] / 1e9:.0f} GB/s and"
        f" {ceilings['model_flops_per_s'] / 1e12:.3g} TFLOP/s, both measured"
    )
    typer.echo(
        f"{'stage':>10} {'rows':>5} {'width':>6} {'p50':>9} {'device':>9} {'gap':>8} {'floor':>9}"
        f" {'x floor':>8} {'limit':>6} {'launches':>9}"
    )
    for each in steps["steps"]:
        typer.echo(
            f"{each['stage']:>10} {each['rows']:>5} {each['width']:>6} {each['p50_ms']:>9.2f}"
            f" {each['device_ms']:>9.2f} {each['host_gap_ms']:>8.3f} {each['floor_ms']:>9.4f}"
            f" {each['device_ms'] / each['floor_ms']:>8.1f} {each['limit']:>6}"
            f" {each['launches']:>9}"
        )
    typer.echo(
        f"row flags on the host after {steps['flags_ms']:.3f} ms, samples after"
        f" {steps['samples_ms']:.3f} ms; {steps['launch_us']:.1f} us a launch, step by step"
    )
