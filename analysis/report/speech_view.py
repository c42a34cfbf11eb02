"""Word error rates put into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.report.model import Cell, Column, EngineView, Table, Tone
from analysis.report.words import NOT_MEASURED, count, interval_share, share

__all__ = ["speech_table", "wer_cell"]

_COLUMNS = (
    Column("engine", is_number=False),
    Column("corpus WER", "wer"),
    Column("raw WER", "wer_raw"),
    Column("mean of clips", "wer_mean_of_clips", rank=1),
    Column("clips over 50 %", "bad_clip_share"),
    Column("lost endings", "tail_deletion_share"),
    Column("loops", "loop_share", rank=1),
    Column("sub / del / ins", rank=1),
    Column("clips heard"),
)

_NOBODY = "nobody listened; add --wer"


def wer_cell(speech: Mapping[str, Any] | None) -> Cell:
    """Corpus WER with its interval and number of clips; or why there is none."""
    if speech is None:
        return Cell(NOT_MEASURED, note=_NOBODY)
    if speech["value"] is None:
        reason = str(speech["reason"])
        return Cell(NOT_MEASURED, note=_NOBODY if reason == "nobody listened" else reason)
    interval = interval_share(speech["lo"], speech["hi"])
    return Cell(
        share(speech["value"]), speech["value"], f"{interval}, {count(speech['n'], 'clip')}"
    )


def speech_table(engines: Sequence[EngineView]) -> Table:
    """One row an engine that was heard."""
    heard = [(e.name, e.speech) for e in engines if e.speech and e.speech["value"] is not None]
    if not heard:
        return Table(f"This run has no transcripts: {_NOBODY}.", _COLUMNS, ())
    first = heard[0][1]
    caption = (
        "Word error rate over all clips that were heard; an empty transcript is all deletions."
        f" Recogniser: {first['recogniser']}. Normaliser: {first['normaliser']}."
    )
    if any(speech["max_of_clips"] > 1 for _, speech in heard):
        caption += " A rate above 100 % is real: more words were heard than the text has."
    return Table(caption, _COLUMNS, tuple(_row(name, speech) for name, speech in heard))


def _row(name: str, speech: Mapping[str, Any]) -> tuple[Cell, ...]:
    edits = f"{speech['substitutions']} / {speech['deletions']} / {speech['insertions']}"
    left_out = ", ".join(
        f"{num} {status.replace('_', ' ')}" for status, num in speech["not_scored"].items()
    )
    guards = ", ".join(
        f"{num} {guard.replace('_', ' ')}" for guard, num in speech["guards"].items()
    )
    of_all = f" of {speech['candidates']}" if speech["candidates"] is not None else ""
    return (
        Cell(name),
        wer_cell(speech),
        Cell(share(speech["raw"]["value"]), speech["raw"]["value"]),
        Cell(share(speech["mean_of_clips"]), speech["mean_of_clips"]),
        _fault(speech["bad_clip_share"]),
        _fault(speech["tail_deletion_share"]),
        _fault(speech["loop_share"]),
        Cell(edits, note=f"of {speech['words']} words"),
        Cell(
            f"{speech['n']}{of_all}",
            speech["n"],
            "; ".join(part for part in (left_out, guards) if part),
        ),
    )


def _fault(value: float) -> Cell:
    return Cell(share(value), value, tone=Tone.WARN if value else Tone.NONE)
