"""`earwitness simulate`, `engine-bench`, `gpu-check`: the reference engine, simulated and timed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.option_checks import finite, refuse_given
from harness.cli.shared_options import JsonOption

__all__ = ["register"]

DurationOption = Annotated[
    float, typer.Option("--duration", help="Seconds of measurement.", callback=finite)
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Run folder to write; must not exist.", show_default=False),
]
StudyOption = Annotated[
    Path | None,
    typer.Option(
        "--study",
        help="Write the tables and figures of the engine's README into a new folder instead.",
        show_default=False,
    ),
]
StreamsOption = Annotated[
    str, typer.Option("--streams", help="Streams in progress, for example 1,64,256.")
]
CheckpointOption = Annotated[
    Path | None, typer.Option("--checkpoint", help="Also time the steps of this checkpoint.")
]
RandomOption = Annotated[
    str | None,
    typer.Option("--random", help="Also time a random checkpoint of this shape (tiny)."),
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="Where the steps run: cpu, cuda or cuda:N.")
]
DtypeOption = Annotated[
    str | None, typer.Option("--dtype", help="float32 or bfloat16 (default: bfloat16 on cuda).")
]
CostsOutOption = Annotated[
    Path | None,
    typer.Option(
        "--costs-out",
        help="Write what was measured as a cost table for `simulate --cost` (a new file).",
    ),
]
CompareOption = Annotated[
    bool,
    typer.Option(
        "--compare-official",
        help="Also race the official package (tiny random checkpoint unless one is named).",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    app.command("simulate")(simulate)
    app.command("engine-bench")(engine_bench)
    app.command("gpu-check")(gpu_check)


# What `--study` decides for itself; beside it these would be ignored without a word.
_DECIDED_BY_THE_STUDY = ("profile", "cost", "rates", "seeds", "policy", "out", "json_")


def simulate(
    context: typer.Context,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", help="A profile of the engine, or a YAML file. Repeatable."),
    ] = None,
    cost: Annotated[
        str, typer.Option("--cost", help="A cost table: how long steps take, and says who.")
    ] = "h100-target",
    rates: Annotated[str, typer.Option("--rates", help="Arrivals a second.")] = "1,4,10,20",
    duration: DurationOption = 60.0,
    seeds: Annotated[str, typer.Option("--seeds", "--seed", help="Seeds, for example 1,2.")] = "1",
    policy: Annotated[
        str | None, typer.Option("--policy", help="Instead of the profile's own policy.")
    ] = None,
    prompts: Annotated[
        str, typer.Option("--prompts", help="A prompt set; its word counts set the lengths.")
    ] = "voice-agent",
    max_words: Annotated[
        int, typer.Option("--max-words", help="Leave longer prompts out (0: none).")
    ] = 24,
    out: OutOption = None,
    study: StudyOption = None,
    json_: JsonOption = False,
) -> None:
    """Serve Poisson arrivals on a virtual clock: latency and underruns a policy would give."""
    from harness.cli.simulate_command import SimulateRequest, run_simulations
    from harness.cli.simulate_study import write_study

    if study is not None:
        refuse_given(
            context, _DECIDED_BY_THE_STUDY, "a study chooses this itself; drop one of the two."
        )
        write_study(study, duration_s=duration, prompts=prompts, max_words=max_words)
        return
    run_simulations(
        SimulateRequest(
            profiles=tuple(profile or ("ttfa",)),
            cost=cost,
            rates=rates,
            duration_s=duration,
            seeds=seeds,
            policy=policy,
            prompts=prompts,
            max_words=max_words,
            out=out,
            is_json=json_,
        )
    )


def engine_bench(
    profile: Annotated[str, typer.Option("--profile", help="A profile of the engine.")] = "ttfa",
    streams: StreamsOption = "1,8,64,256",
    turns: Annotated[int, typer.Option("--turns", min=1, help="Turns to time at each.")] = 5000,
    checkpoint: CheckpointOption = None,
    shape: RandomOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    max_rows: Annotated[
        int, typer.Option("--max-rows", min=1, help="Leave shapes of more rows out.")
    ] = 32,
    calls: Annotated[
        int, typer.Option("--calls", min=2, max=1000, help="Calls to time at each shape.")
    ] = 12,
    costs_out: CostsOutOption = None,
    compare_official: CompareOption = False,
    official_python: Annotated[
        Path,
        typer.Option("--official-python", help="Interpreter that has the official package."),
    ] = Path(".venv-oracle/bin/python"),
    json_: JsonOption = False,
) -> None:
    """Time what the host costs a scheduling turn, and what the steps of a checkpoint take."""
    from harness.cli.engine_bench_command import BenchRequest, run_bench

    run_bench(
        BenchRequest(
            profile=profile,
            streams=streams,
            num_turns=turns,
            checkpoint=checkpoint,
            shape=shape,
            device=device,
            dtype=dtype,
            max_rows=max_rows,
            num_calls=calls,
            costs_out=costs_out,
            official_python=official_python if compare_official else None,
            is_json=json_,
        )
    )


def gpu_check(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; must not exist.")],
    device: Annotated[str, typer.Option("--device", help="cuda, cuda:N or cpu.")] = "cuda",
    shape: Annotated[
        str | None,
        typer.Option("--shape", help="Of the random weights (default: 1.7b; tiny on a CPU)."),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(
            "--budget", min=0, help="Seconds after which no further part begins.", callback=finite
        ),
    ] = 560.0,
    pack: Annotated[
        Path | None,
        typer.Option(
            "--pack",
            help="Also keep everything in one .tar.gz, written anew as each part ends.",
            show_default=False,
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Check and measure the reference engine on a device in one short run, without a network.

    Kernels and captured stages against their plain twins, a cost table, then the server under
    load. On a CPU it proves the run itself; its figures mean nothing for a GPU.
    """
    import dataclasses
    import json

    from harness.cli.gpu_check_command import GpuCheckRequest, check_device, run_gpu_check
    from harness.clock import RunClock

    request = GpuCheckRequest(out=out, device=device, shape=shape, budget_s=budget, pack=pack)
    check_device(request)
    results = run_gpu_check(request, clock=RunClock())
    if json_:
        typer.echo(json.dumps([dataclasses.asdict(each) for each in results]))
    if any(each.status == "failed" for each in results):
        raise typer.Exit(1)
