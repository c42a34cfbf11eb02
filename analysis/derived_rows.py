"""What each request comes to, as rows of two tables.

Only numbers are kept, request by request, so a run need not fit into memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from analysis.metrics import request_metrics
from analysis.stamps import stamp_rule
from analysis.view import AnalysisContext, AnalysisSettings, RequestView, view_request
from harness.records import RequestRecord, RunRecord

__all__ = ["DerivedTables", "context_of", "derive_records"]

_REQUEST_FIELDS = (
    ("request_id", pa.string()),
    ("point_id", pa.string()),
    ("phase", pa.string()),
    ("index", pa.int64()),
    ("outcome", pa.string()),
    ("outcome_reason", pa.string()),
    ("note", pa.string()),
    ("sample_rate_hz", pa.int32()),
    ("channels", pa.int32()),
    ("num_samples", pa.int64()),
    ("duration_basis", pa.string()),
    ("onset_sample", pa.int64()),
    ("comparison_onset_sample", pa.int64()),
    ("playback_start_ns", pa.int64()),
    ("playback_end_ns", pa.int64()),
    ("is_incremental", pa.bool_()),
)
_CHUNK_FIELDS = (
    ("request_id", pa.string()),
    ("seq", pa.int32()),
    ("num_samples", pa.int64()),
    ("duration_ns", pa.int64()),
    ("duration_basis", pa.string()),
    ("uncertainty_ns", pa.int64()),
    ("due_ns", pa.int64()),
    ("slack_ns", pa.int64()),
    ("play_ns", pa.int64()),
    ("stall_ns", pa.int64()),
    ("is_undecided", pa.bool_()),
)


@dataclass(slots=True)
class _Columns:
    """Column lists that grow by rows."""

    fields: tuple[tuple[str, pa.DataType], ...]
    values: dict[str, list[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.values = {name: [] for name, _ in self.fields}

    def add(self, row: Mapping[str, Any]) -> None:
        for name, column in self.values.items():
            column.append(row[name])

    def extend(self, columns: Mapping[str, Sequence[Any]]) -> None:
        for name, column in self.values.items():
            column.extend(columns[name])

    def table(self) -> pa.Table:
        return pa.table(
            {name: pa.array(self.values[name], type=kind) for name, kind in self.fields}
        )


@dataclass(frozen=True, slots=True)
class DerivedTables:
    """Arrow tables, not yet written."""

    requests: pa.Table
    chunks: pa.Table


def derive_records(
    records: Iterable[tuple[RequestRecord, bytes | None]],
    context: AnalysisContext,
    on_progress: Callable[[int], None] | None = None,
) -> DerivedTables:
    """Derive requests one by one; only numbers are kept, so a run need not fit into memory."""
    metrics = request_metrics()
    metric_fields = tuple((metric.name, pa.float64()) for metric in metrics)
    requests = _Columns(_REQUEST_FIELDS + metric_fields)
    chunks = _Columns(_CHUNK_FIELDS)
    for num_done, (record, payload) in enumerate(records, start=1):
        view = view_request(record, payload, context)
        row = _request_row(view)
        for metric in metrics:
            row[metric.name] = metric.compute(view)
        requests.add(row)
        chunks.extend(_chunk_columns(view))
        if on_progress is not None and num_done % 100 == 0:
            on_progress(num_done)
    return DerivedTables(requests.table(), chunks.table())


def _request_row(view: RequestView) -> dict[str, Any]:
    record, reply, timeline = view.record, view.reply, view.timeline
    return {
        "request_id": record.request_id,
        "point_id": record.point_id,
        "phase": record.phase.value,
        "index": record.index,
        "outcome": view.outcome.value,
        "outcome_reason": view.reason,
        "note": "; ".join(_notes(view)) or None,
        "sample_rate_hz": reply.sample_rate_hz,
        "channels": reply.channels,
        "num_samples": reply.num_samples,
        "duration_basis": None if reply.basis is None else reply.basis.value,
        "onset_sample": None if view.onset is None else view.onset.sample,
        "comparison_onset_sample": (
            None if view.comparison_onset is None else view.comparison_onset.sample
        ),
        "playback_start_ns": None if timeline is None else timeline.start_ns,
        "playback_end_ns": None if timeline is None else timeline.end_ns,
        "is_incremental": view.context.is_incremental,
    }


def _notes(view: RequestView) -> Iterator[str]:
    if view.reply.note is not None:
        yield view.reply.note
    if view.reply.audio is not None:
        yield from view.reply.audio.notes


def _chunk_columns(view: RequestView) -> dict[str, Sequence[Any]]:
    """The chunks of a request, column by column: a long run has millions of them."""
    reply, timeline, chunks = view.reply, view.timeline, view.record.chunks
    nothing: tuple[None, ...] = (None,) * len(chunks)
    counts = nothing if reply.samples_per_chunk is None else reply.samples_per_chunk
    rate = reply.sample_rate_hz
    columns: dict[str, Sequence[Any]] = {
        "request_id": (view.record.request_id,) * len(chunks),
        "seq": [chunk.seq for chunk in chunks],
        "num_samples": counts,
        "duration_ns": [
            None if num is None or not rate else round(num * 1_000_000_000 / rate) for num in counts
        ],
        "duration_basis": (None if reply.basis is None else reply.basis.value,) * len(chunks),
        "uncertainty_ns": view.uncertainty_ns,
        **dict.fromkeys(("due_ns", "slack_ns", "play_ns", "stall_ns", "is_undecided"), nothing),
    }
    if timeline is not None:
        min_ms = view.context.settings.underrun_min_ms
        stalls = {stall.index: stall.length_ns for stall in timeline.stalls}
        doubts = {stall.index for stall in timeline.undecided(min_ms=min_ms)}
        begins, ends = timeline.media_before, (*timeline.media_before[1:], timeline.num_samples)
        is_played = map(operator.lt, begins, ends)  # not what came when the listener was gone
        places = [place if is_in else None for place, is_in in enumerate(is_played)]
        columns |= {
            "due_ns": timeline.due_ns,
            "slack_ns": timeline.slack_ns,
            "play_ns": [None if i is None else timeline.play_ns[i] for i in places],
            "stall_ns": [None if i is None else stalls.get(i, 0) for i in places],
            "is_undecided": [None if i is None else i in doubts for i in places],
        }
    return columns


def context_of(run: RunRecord, settings: AnalysisSettings) -> AnalysisContext:
    """Settings together with what the run says about its stamps and its text."""
    pacing = run.scenario.get("text_pacing") or {}
    return AnalysisContext(
        settings=settings,
        stamps=stamp_rule(run.clock),
        is_incremental=pacing.get("mode", "whole") != "whole",
    )
