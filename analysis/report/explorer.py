"""The data of the request explorer: columns for the table, stamps and chunks for the waterfall.

Numbers are rounded to 0.1 ms here; the page draws, it does not analyse. When each chunk plays
comes from the stored playback replay (arrival plus slack), not from a second one in JavaScript.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.report.tables import RunTables, numbers
from analysis.report.words import rate, share
from analysis.speech import ScoredRun
from analysis.speech.wer import align
from harness.records import Phase

__all__ = ["explorer_data"]

_NS_PER_MS = 1e6
# Key, label, kind: how the table shows and sorts it. A `latency` that is missing was not reached.
_COLUMNS = (
    ("id", "request", "text"),
    ("point", "point", "label"),
    ("outcome", "outcome", "label"),
    ("at_s", "at (s)", "number"),
    ("audible_ttfa", "audible TTFA (ms)", "latency"),
    ("audible_received", "received (ms)", "latency"),
    ("stall_total", "stalls (ms)", "number"),
    ("end", "end (ms)", "number"),
)
# Stamps of the waterfall, counted from dispatch.
_PHASES = (
    ("scheduled", "scheduled", "scheduled_ns"),
    ("connected", "connected", "connected_ns"),
    ("sent", "sent", "sent_ns"),
    ("headers", "headers", "headers_ns"),
    ("first_byte", "first byte", "first_byte_ns"),
    ("end", "end", "finished_ns"),
)


def explorer_data(tables: RunTables, scored: ScoredRun | None) -> dict[str, Any]:
    """Everything the explorer reads, as plain JSON values.

    Warm-up requests are left out, as everywhere.
    """
    requests = tables.requests[tables.requests["phase"] == str(Phase.MEASURE)]
    requests = requests.reset_index(drop=True)
    base = numbers(requests["dispatched_ns"])
    # A request that was never sent has no dispatch; its plan is all there is.
    base = np.where(np.isnan(base), numbers(requests["scheduled_ns"]), base)
    point_codes, point_labels = _points(requests, tables)
    outcome_codes, outcome_labels = pd.factorize(requests["outcome"])
    prompt_codes, prompts = pd.factorize(requests["text"].fillna(""))
    values: dict[str, list[Any]] = {
        "id": requests["request_id"].tolist(),
        "point": point_codes,
        "outcome": outcome_codes.tolist(),
        "prompt": prompt_codes.tolist(),
        "at_s": _rounded(_seconds_in_phase(requests, tables), 3),
        "play_start": _since(requests["playback_start_ns"], base),
    }
    for name in ("audible_ttfa", "audible_received", "stall_total"):
        values[name] = _rounded(numbers(requests[name]), 1)
    for key, _, column in _PHASES:
        values[key] = _since(requests[column], base)
    return {
        "columns": [{"key": k, "label": label, "kind": kind} for k, label, kind in _COLUMNS],
        "phases": [{"key": key, "label": label} for key, label, _ in _PHASES],
        "labels": {"point": point_labels, "outcome": [_words(name) for name in outcome_labels]},
        "prompts": list(prompts),
        "values": values,
        "chunks": _chunks(requests, tables, base),
        "errors": _errors(requests),
        "diffs": {} if scored is None else _diffs(scored, set(values["id"])),
        "sort": "audible_ttfa",
        "sort_down": True,
    }


def _points(requests: pd.DataFrame, tables: RunTables) -> tuple[list[int], list[str]]:
    order = {point.point_id: number for number, point in enumerate(tables.points)}
    has_seeds = len({point.seed for point in tables.points}) > 1
    labels = [
        f"{point.engine} {rate(point.rate_rps)}"
        + (f" seed {point.seed}" if has_seeds else "")
        + ("" if point.is_complete else ", interrupted")
        for point in tables.points
    ]
    return [order[point_id] for point_id in requests["point_id"]], labels


def _seconds_in_phase(requests: pd.DataFrame, tables: RunTables) -> Any:
    begins = {
        point.point_id: float(point.warmup_end_ns)
        for point in tables.points
        if point.warmup_end_ns is not None
    }
    begin = requests["point_id"].map(begins).to_numpy(dtype=np.float64, na_value=np.nan)
    return (numbers(requests["scheduled_ns"]) - begin) / 1e9


def _since(column: pd.Series, base: Any) -> list[float | None]:
    return _rounded((numbers(column) - base) / _NS_PER_MS, 1)


def _rounded(values: Any, digits: int) -> list[float | None]:
    """Plain numbers; what is not finite becomes null."""
    rounded = np.round(values, digits)
    return [float(value) if np.isfinite(value) else None for value in rounded]


def _words(outcome: str) -> str:
    return str(outcome).replace("_", " ")


def _chunks(requests: pd.DataFrame, tables: RunTables, base: Any) -> list[list[list[int | None]]]:
    """Per request: [time since the chunk before, media, slack] in tenths of a millisecond."""
    rows = pd.Series(np.arange(len(requests)), index=requests["request_id"])
    row = numbers(rows.reindex(tables.chunks["request_id"]))
    order = np.lexsort((tables.chunks["seq"], row))
    order = order[: np.count_nonzero(~np.isnan(row))]  # chunks of the warm-up are the last
    chunks, row = tables.chunks.iloc[order], row[order].astype(np.int64)
    at = np.round((numbers(chunks["arrival_ns"]) - base[row]) / 1e5).astype(np.int64)
    is_first = np.diff(row, prepend=-1) != 0
    slack = np.round(numbers(chunks["slack_ns"]) / 1e5)
    told = np.empty((len(chunks), 3), dtype=object)
    told[:, 0] = np.where(is_first, at, np.diff(at, prepend=0))
    told[:, 1] = np.round(np.nan_to_num(numbers(chunks["duration_ns"])) / 1e5).astype(np.int64)
    told[:, 2] = [None if math.isnan(value) else int(value) for value in slack.tolist()]
    ends = np.searchsorted(row, np.arange(len(requests)), side="right").tolist()
    every = told.tolist()
    return [every[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _errors(requests: pd.DataFrame) -> dict[str, str]:
    """What went wrong, in the server's or the analysis's own words."""
    found = {}
    columns = ("request_id", "http_status", "error_text", "outcome_reason")
    for request_id, status, text, reason in zip(*(requests[c] for c in columns), strict=True):
        parts = [
            None if pd.isna(status) or status == 200 else f"HTTP {status}",
            None if pd.isna(text) else str(text),
            None if pd.isna(reason) else str(reason),
        ]
        said = ": ".join(part for part in parts if part)
        if said:
            found[str(request_id)] = said
    return found


def _diffs(scored: ScoredRun, known: set[str]) -> dict[str, Mapping[str, Any]]:
    clips = scored.clips[scored.clips["status"] == "scored"]
    columns = ("request_id", "reference_normalised", "transcript_normalised", "wer")
    return {
        str(request_id): {"wer": share(float(wer)), "edits": _edits(reference, transcript)}
        for request_id, reference, transcript, wer in zip(
            *(clips[name] for name in columns), strict=True
        )
        if request_id in known
    }


def _edits(reference: str, transcript: str) -> Sequence[Sequence[str]]:
    return [
        [str(edit.kind), " ".join(edit.reference), " ".join(edit.heard)]
        for edit in align(reference, transcript).edits
    ]
