"""`earwitness compare`, `gate`, `baseline` and `capacity`: from records to decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.option_checks import above_zero, finite
from harness.cli.shared_options import (
    AllowCommandsOption,
    AllowEnvOption,
    JsonOption,
    ParamOption,
    SendKeyOption,
    VoiceOption,
)

__all__ = ["register"]

StartOption = Annotated[
    str,
    typer.Option("--start", help="When the player starts: immediate, delay_ms=N, or buffer_ms=N."),
]
OnsetOption = Annotated[
    str, typer.Option("--onset", help="The rule for the first sound: default, or nari-v1.")
]


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    app.command("compare")(compare)
    app.command("gate")(gate)
    app.command("baseline")(baseline)
    app.command("capacity")(capacity)


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders or baselines; every engine in them is held against the first."
        ),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Compare also what differs in load or prompts.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write Markdown there.", show_default=False)
    ] = None,
    start: StartOption = "immediate",
    onset: OnsetOption = "default",
    json_: JsonOption = False,
) -> None:
    """Say which engine is heard sooner at which rate, by how much, how sure, and by what means."""
    from harness.cli.judge_command import Reading, compare_runs

    compare_runs(runs, Reading(start, onset), is_forced=force, out=out, is_json=json_)


def gate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    rules: Annotated[
        str,
        typer.Option("--rules", help="A YAML file, or voice-agent, strict-50ms, no-regression."),
    ] = "voice-agent",
    against: Annotated[
        Path | None,
        typer.Option("--against", help="The base: a run or a baseline.", show_default=False),
    ] = None,
    any_machine: Annotated[
        bool, typer.Option("--any-machine", help="Judge although the base is from another machine.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write JUnit XML there.", show_default=False)
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(
            "--summary", help="Append Markdown there (a CI step summary).", show_default=False
        ),
    ] = None,
    start: StartOption = "immediate",
    onset: OnsetOption = "default",
    json_: JsonOption = False,
) -> None:
    """Pass (0), fail (1) or inconclusive (3), rule by rule."""
    from harness.cli.judge_command import GateOutput, Reading, gate_run

    gate_run(
        run,
        rules,
        against=against,
        reading=Reading(start, onset),
        is_any_machine=any_machine,
        output=GateOutput(junit=junit, summary=summary, is_json=json_),
    )


def baseline(
    run: Annotated[Path, typer.Argument(help="The folder of a complete run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; must not exist.")] = Path(
        "baseline.json"
    ),
    json_: JsonOption = False,
) -> None:
    """Keep what later runs are held against, in one file that is fit for a repository."""
    from harness.cli.judge_command import make_baseline

    make_baseline(run, out, is_json=json_)


TargetArgument = Annotated[
    str, typer.Argument(help="A finished run's folder, or a scenario to search with.")
]
SloOption = Annotated[
    Path | None, typer.Option("--slo", help="A YAML file with the objective.", show_default=False)
]
SearchOutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="With a scenario: folder for its runs; must not exist.",
        show_default=False,
    ),
]
EngineOption = Annotated[
    str | None, typer.Option(help="Which engine of the scenario.", show_default=False)
]
BaseUrlOption = Annotated[str | None, typer.Option(help="Where it is.", show_default=False)]
StartRateOption = Annotated[
    float | None, typer.Option(help="The first rate; else the scenario's lowest.", callback=finite)
]
AgreeOption = Annotated[int, typer.Option(help="Seeds that must agree to call a rate.", min=1)]
RequestsOption = Annotated[int, typer.Option(help="Measure at least so many at every rate.", min=1)]
BudgetOption = Annotated[
    float, typer.Option(help="Minutes after which no point is begun.", min=0, callback=finite)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any key of the scenario. Repeatable.", metavar="K=V"),
]
HourPriceOption = Annotated[
    float | None,
    typer.Option(help="Of one machine under load.", show_default=False, callback=above_zero),
]
ListPriceOption = Annotated[
    float | None,
    typer.Option(
        help="Of a hosted engine, per million characters.", show_default=False, callback=above_zero
    ),
]
MaxRateOption = Annotated[float, typer.Option(help="Never above this rate.", callback=finite)]
RatioOption = Annotated[
    float, typer.Option(help="How close the ends are brought.", callback=finite)
]
UtilisationOption = Annotated[
    float, typer.Option(help="Share of the capacity in use.", max=1, callback=above_zero)
]
ReplicasOption = Annotated[int, typer.Option(help="Machines in use.", min=1)]
SpareOption = Annotated[int, typer.Option(help="Machines paid for and idle.", min=0)]


def capacity(
    target: TargetArgument,
    slo: SloOption = None,
    out: SearchOutOption = None,
    engine: EngineOption = None,
    base_url: BaseUrlOption = None,
    voice: VoiceOption = None,
    param: ParamOption = None,
    start_rate: StartRateOption = None,
    max_rate: MaxRateOption = 100.0,
    ratio: RatioOption = 1.2,
    agree: AgreeOption = 3,
    requests: RequestsOption = 40,
    budget: BudgetOption = 20.0,
    set_: SetOption = None,
    price_per_hour: HourPriceOption = None,
    list_price: ListPriceOption = None,
    utilisation: UtilisationOption = 1.0,
    replicas: ReplicasOption = 1,
    spare: SpareOption = 0,
    send_key_to: SendKeyOption = None,
    allow_contract_env: AllowEnvOption = False,
    allow_commands: AllowCommandsOption = False,
    json_: JsonOption = False,
) -> None:
    """The highest rate that meets an objective, as an interval and a curve."""
    from analysis.cost import Pricing
    from harness.cli.capacity_command import CapacityRequest, find_capacity
    from harness.cli.scenario_options import Choices
    from harness.plan import Consent

    find_capacity(
        CapacityRequest(
            Choices(
                scenario=target,
                engines=(engine,) if engine else (),
                base_url=base_url,
                voice=voice,
                params=tuple(param or ()),
                assignments=tuple(set_ or ()),
            ),
            consent=Consent(
                key_hosts=tuple(send_key_to or ()),
                allow_contract_env=allow_contract_env,
                allow_commands=allow_commands,
            ),
            slo=slo,
            out=out,
            start_rps=start_rate,
            max_rps=max_rate,
            ratio=ratio,
            num_agreeing=agree,
            min_requests=requests,
            budget_min=budget,
            pricing=Pricing(price_per_hour, list_price, utilisation, replicas, spare),
            is_json=json_,
        )
    )
