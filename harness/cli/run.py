"""`earwitness run`, `schedule` and `recover`: load engines, see a plan, finish a killed run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.option_checks import finite
from harness.cli.shared_options import (
    AllowCommandsOption,
    AllowEnvOption,
    JsonOption,
    ParamOption,
    SendKeyOption,
    VoiceOption,
)

__all__ = ["register"]

ScenarioArgument = Annotated[
    str | None,
    typer.Argument(help="A scenario file, or the name of a bundled one.", show_default=False),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--engine", help="An engine of the scenario, or a contract to run instead. Repeatable."
    ),
]
BaseUrlOption = Annotated[
    str | None, typer.Option("--base-url", help="Where the engine is; needs a single engine.")
]
RatesOption = Annotated[
    str | None, typer.Option("--rates", help="Arrivals a second, for example 0.5,1,2.")
]
SeedsOption = Annotated[str | None, typer.Option("--seeds", help="Seeds, for example 1,2,3.")]
DurationOption = Annotated[
    float | None,
    typer.Option("--duration", help="Seconds of measurement at each point.", callback=finite),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any key of the scenario, as in phases.warmup_s=2. Repeatable.", metavar="K=V"
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder to write; must not exist.", show_default=False),
]
ResumeOption = Annotated[
    Path | None, typer.Option("--resume", help="Go on with an interrupted run's folder.")
]
NoTextOption = Annotated[
    bool, typer.Option("--no-text", help="Store no prompt texts (personal data).")
]
NoPreflightOption = Annotated[
    bool,
    typer.Option(
        "--no-preflight",
        help="Send no request before the load, whose refusal would end the run at once.",
    ),
]
NoReportOption = Annotated[
    bool, typer.Option("--no-report", help="Only record; analyse later by `report`.")
]
WerOption = Annotated[
    bool, typer.Option("--wer", help="Also hear clips with Whisper, for a word error rate.")
]
ArrivalsOption = Annotated[bool, typer.Option("--arrivals", help="List every planned request.")]


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    app.command("run")(run)
    app.command("schedule")(schedule)
    app.command("recover")(recover)


def run(
    scenario: ScenarioArgument = None,
    out: OutOption = None,
    engine: EngineOption = None,
    base_url: BaseUrlOption = None,
    voice: VoiceOption = None,
    param: ParamOption = None,
    rates: RatesOption = None,
    seeds: SeedsOption = None,
    duration: DurationOption = None,
    set_: SetOption = None,
    resume: ResumeOption = None,
    no_text: NoTextOption = False,
    no_preflight: NoPreflightOption = False,
    no_report: NoReportOption = False,
    wer: WerOption = False,
    send_key_to: SendKeyOption = None,
    allow_contract_env: AllowEnvOption = False,
    allow_commands: AllowCommandsOption = False,
    json_: JsonOption = False,
) -> None:
    """Load engines by a scenario; record everything, then report what a listener hears."""
    from harness.cli.run_command import RunRequest, run_and_report
    from harness.cli.scenario_options import Choices
    from harness.plan import Consent

    choices = Choices(
        scenario=scenario,
        engines=tuple(engine or ()),
        base_url=base_url,
        voice=voice,
        params=tuple(param or ()),
        rates=rates,
        seeds=seeds,
        duration_s=duration,
        assignments=(
            *(set_ or ()),
            *(("recording.text=false",) if no_text else ()),
            *(("preflight=false",) if no_preflight else ()),
        ),
    )
    request = RunRequest(
        choices=choices,
        out=out,
        resume=resume,
        consent=Consent(
            key_hosts=tuple(send_key_to or ()),
            allow_contract_env=allow_contract_env,
            allow_commands=allow_commands,
        ),
        has_report=not no_report,
        has_wer=wer,
        is_json=json_,
    )
    run_and_report(request)


def schedule(
    scenario: ScenarioArgument = None,
    engine: EngineOption = None,
    base_url: BaseUrlOption = None,
    voice: VoiceOption = None,
    param: ParamOption = None,
    rates: RatesOption = None,
    seeds: SeedsOption = None,
    duration: DurationOption = None,
    set_: SetOption = None,
    arrivals: ArrivalsOption = False,
    json_: JsonOption = False,
) -> None:
    """Show what a run would send, without sending anything."""
    from harness.cli.scenario_options import Choices
    from harness.cli.schedule_command import show_schedule

    choices = Choices(
        scenario=scenario,
        engines=tuple(engine or ()),
        base_url=base_url,
        voice=voice,
        params=tuple(param or ()),
        rates=rates,
        seeds=seeds,
        duration_s=duration,
        assignments=tuple(set_ or ()),
    )
    show_schedule(choices, has_arrivals=arrivals, is_json=json_)


def recover(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was killed.")],
    json_: JsonOption = False,
) -> None:
    """Close the folder of a killed run; what had finished is kept."""
    import json

    from harness.store import recover as recover_folder

    found = recover_folder(folder)
    if json_:
        typer.echo(
            json.dumps(
                {
                    "folder": str(found.folder),
                    "status": found.status.value,
                    "was_needed": found.was_needed,
                    "num_requests": found.num_requests,
                    "num_torn_bytes": found.num_torn_bytes,
                    "num_damaged": found.num_damaged,
                    "num_payloads_missing": found.num_payloads_missing,
                }
            )
        )
    elif not found.was_needed:
        typer.echo(f"{folder}: nothing to do, the run is closed ({found.status})")
    else:
        typer.echo(
            f"{folder}: {found.num_requests} finished requests recovered; now {found.status} "
            f"({found.num_torn_bytes} bytes of an unfinished entry dropped, "
            f"{found.num_damaged} damaged entries skipped)"
        )
