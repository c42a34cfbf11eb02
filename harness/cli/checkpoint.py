"""`earwitness checkpoint`: make a random Qwen3-TTS checkpoint, or look into one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from reference_engine.checkpoint.inspect import CheckpointReport, PartReport

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the `checkpoint` group."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Qwen3-TTS checkpoints of the reference engine: make a random one, inspect any.",
    )
    group.command("make")(make)
    group.command("inspect")(inspect)
    app.add_typer(group, name="checkpoint")


def make(
    folder: Path = typer.Argument(..., help="New folder to write."),
    shape: str = typer.Option("tiny", "--shape", help="tiny, tiny-0.6b, 0.6b or 1.7b."),
    seed: int = typer.Option(0, "--seed", min=0, max=2**63 - 1, help="Of every random value."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Write random weights in the official layout: they speak noise, and are labelled so."""
    from harness.cli.extras import require_reference
    from reference_engine.checkpoint.shapes import check_new_folder, shape_named

    # Before torch, whose import takes seconds.
    shape_named(shape)
    check_new_folder(folder)
    require_reference("checkpoint")
    from reference_engine.checkpoint.make import make_checkpoint

    made = make_checkpoint(folder, shape=shape, seed=seed)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "folder": str(made.folder),
                    "shape": shape,
                    "seed": seed,
                    "random_weights": True,
                    "model": {"tensors": made.num_tensors, "parameters": made.num_parameters},
                    "codec": {
                        "tensors": made.num_codec_tensors,
                        "parameters": made.num_codec_parameters,
                    },
                }
            )
        )
        return
    typer.echo(f"{made.folder}: random weights, shape {shape}, seed {seed}")
    typer.echo(f"  model  {made.num_tensors:>4} tensors  {made.num_parameters:>13,} parameters")
    typer.echo(
        f"  codec  {made.num_codec_tensors:>4} tensors  {made.num_codec_parameters:>13,} parameters"
    )


def inspect(
    folder: Path = typer.Argument(..., help="Checkpoint folder."),
    values: bool = typer.Option(False, "--values", help="Read every tensor; find NaN."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Check a checkpoint against its own config, and count what is in it."""
    from harness.cli.extras import require_reference
    from reference_engine.model.config_reader import read_codec_config, read_model_config

    # Before torch, whose import takes seconds.
    read_model_config(folder)
    read_codec_config(folder)
    require_reference("checkpoint")
    from reference_engine.checkpoint.inspect import inspect_checkpoint

    report = inspect_checkpoint(folder, check_values=values)
    typer.echo(json.dumps(_as_dict(report)) if as_json else _as_text(report))


def _as_dict(report: CheckpointReport) -> dict[str, object]:
    config = report.config
    return {
        "folder": str(report.folder),
        "model_size": config.model_size,
        "random_weights": config.random_weights or None,
        "voices": sorted(config.speakers),
        "languages": list(config.public_languages),
        "codebooks": config.num_codebooks,
        "sample_rate_hz": report.codec_config.sample_rate_hz,
        "samples_per_codec_frame": report.codec_config.samples_per_frame,
        "reserved_strings": report.num_reserved_strings,
        "model": _part(report.model),
        "codec": _part(report.codec),
    }


def _part(part: PartReport) -> dict[str, object]:
    return {
        "tensors": part.num_tensors,
        "parameters": part.num_parameters,
        "ignored_tensors": part.num_ignored,
        "dtypes": dict(part.dtypes),
        "values_checked": part.checked_values,
    }


def _as_text(report: CheckpointReport) -> str:
    config, codec = report.config, report.codec_config
    lines = [f"{report.folder}: Qwen3-TTS CustomVoice, size {config.model_size}"]
    if config.random_weights:
        lines.append(f"  weights are {config.random_weights}")
    for name, part in (("model", report.model), ("codec", report.codec)):
        dtypes = ", ".join(f"{count} {dtype}" for dtype, count in part.dtypes.items())
        ignored = f", {part.num_ignored} ignored" if part.num_ignored else ""
        checked = "values finite" if part.checked_values else "headers only"
        lines.append(
            f"  {name}  {part.num_tensors:>4} tensors  {part.num_parameters:>13,} parameters"
            f"  ({dtypes}{ignored}; {checked})"
        )
    stack = config.talker.stack
    lines.append(
        f"  talker {stack.num_layers} layers of {stack.hidden_size}, predictor"
        f" {config.predictor.stack.num_layers} of {config.predictor.stack.hidden_size},"
        f" {config.num_codebooks} codebooks, {codec.samples_per_frame} samples a codec frame at"
        f" {codec.sample_rate_hz} Hz"
    )
    lines.append(f"  voices: {', '.join(sorted(config.speakers))}")
    lines.append(f"  languages: {', '.join(config.public_languages)}")
    return "\n".join(lines)
