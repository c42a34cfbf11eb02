"""`earwitness report` and `view`: put a run into words and pictures, and browse many of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.option_checks import above_zero, finite

__all__ = ["register"]

FoldersArgument = Annotated[
    list[Path], typer.Argument(help="The folder of a run; several are held against the first.")
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format", "-f", help="What to write into the folder: html, md, csv, png, svg; or none."
    ),
]
StartOption = Annotated[
    str,
    typer.Option("--start", help="When the player starts: immediate, delay_ms=N, or buffer_ms=N."),
]
OutOption = Annotated[
    Path, typer.Option("--out", "-o", help="With several folders: the page to write.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="With several folders: compare in spite of differences.")
]
TargetOption = Annotated[
    float | None,
    typer.Option(
        help="The rate that the answers at the top are for.", show_default=False, callback=finite
    ),
]
SloOption = Annotated[
    Path | None, typer.Option(help="A YAML file with the objective.", show_default=False)
]
PriceOption = Annotated[
    float | None,
    typer.Option(
        help="Of the machine under load; gives a cost.", show_default=False, callback=above_zero
    ),
]
NoAudioOption = Annotated[bool, typer.Option("--no-audio", help="Put no clips into the page.")]
AudioOption = Annotated[
    float, typer.Option(help="Size budget of the clips in the page.", min=0, callback=finite)
]
WerOption = Annotated[
    bool, typer.Option("--wer", help="Hear clips with Whisper first, for a word error rate.")
]
ClipsOption = Annotated[int, typer.Option(help="With --wer: clips of each engine.", min=1)]
WerSeedOption = Annotated[int, typer.Option(help="With --wer: seed of the draw.")]
TagsOption = Annotated[
    str, typer.Option(help="With --wer: only prompts that carry all of these tags.")
]
WerRateOption = Annotated[
    float | None,
    typer.Option(
        help="With --wer: only points up to this rate.", show_default=False, callback=finite
    ),
]
WeightsOption = Annotated[
    Path | None, typer.Option(help="With --wer: a file of Whisper weights.", show_default=False)
]
DownloadOption = Annotated[
    bool, typer.Option("--allow-download", help="With --wer: weights may be downloaded.")
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print metrics.json on stdout; of several folders, all of them."),
]


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    app.command("report")(report)
    app.command("view")(view)


def report(
    folders: FoldersArgument,
    formats: FormatOption = "html,md,png",
    start: StartOption = "immediate",
    out: OutOption = Path("comparison.html"),
    force: ForceOption = False,
    target_rate: TargetOption = None,
    slo: SloOption = None,
    price_per_hour: PriceOption = None,
    no_audio: NoAudioOption = False,
    audio_mb: AudioOption = 8.0,
    wer: WerOption = False,
    max_clips: ClipsOption = 48,
    wer_seed: WerSeedOption = 0,
    wer_tags: TagsOption = "",
    wer_max_rate: WerRateOption = None,
    whisper_weights: WeightsOption = None,
    allow_download: DownloadOption = False,
    json_: JsonOption = False,
) -> None:
    """Analyse a run, print its summary and write its report; or hold several against each other."""
    from analysis.cost import Pricing
    from analysis.report import ReportSettings
    from analysis.slo import Slo, load_slo
    from harness.cli.analysis_steps import WordScoring
    from harness.cli.report_command import ReportRequest, compare_reports, make_report

    words = WordScoring(
        max_clips_per_engine=max_clips,
        seed=wer_seed,
        tags=tuple(tag for tag in wer_tags.split(",") if tag),
        max_rate_rps=wer_max_rate,
        weights=whisper_weights,
        allow_download=allow_download,
    )
    settings = ReportSettings(
        slo=load_slo(slo) if slo else Slo(),
        target_rate_rps=target_rate,
        pricing=None if price_per_hour is None else Pricing(per_hour=price_per_hour),
        has_audio=not no_audio,
        audio_budget_bytes=round(audio_mb * 1_000_000),
    )
    if len(folders) > 1:
        compare_reports(
            folders, out, settings=settings, start=start, is_forced=force, is_json=json_
        )
        return
    make_report(
        ReportRequest(
            folder=folders[0],
            formats=formats,
            start=start,
            settings=settings,
            words=words if wer else None,
            is_json=json_,
        )
    )


def view(
    folder: Annotated[Path, typer.Argument(help="Where the run folders are.")] = Path("results"),
    port: Annotated[int, typer.Option(help="0: any free port.", min=0, max=65535)] = 0,
) -> None:
    """Browse runs on a local page; reads only, listens on 127.0.0.1 alone."""
    from analysis.report.view import serve_view

    serve_view(folder, port=port, on_ready=lambda url: typer.echo(url))
