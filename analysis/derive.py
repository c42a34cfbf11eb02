"""From what was recorded to what it means: one pass over a run, written to `derived/`.

Recorded files are only read. `derived/chunks.parquet` and `derived/requests.parquet` carry the
settings they were made with; asked again with the same settings and the same recording, they are
read instead of made.

Schema history
    1: first version.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.codecs import decoder_version
from analysis.errors import RunDataError
from analysis.metrics import request_metrics
from analysis.stamps import stamp_rule
from analysis.view import AnalysisContext, AnalysisSettings, RequestView, view_request
from harness.records import RequestRecord, RunRecord
from harness.store import StoredRun, open_run

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DERIVED_DIR",
    "DerivedRun",
    "context_of",
    "derive_records",
    "derive_run",
    "load_derived",
]

DERIVED_DIR = "derived"
_METADATA_KEY = b"earwitness.derived"
_SCHEMA_VERSION = 1

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


@dataclass(frozen=True, slots=True)
class DerivedRun:
    """The derived tables of one run, as pandas frames, and the settings behind them.

    requests: one row a request, in the order of the plan: outcome, onset, every request metric.
    chunks: one row a delivery: samples, due time, slack, stall.
    """

    requests: pd.DataFrame
    chunks: pd.DataFrame
    settings: AnalysisSettings


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


def derive_run(
    folder: Path,
    *,
    settings: AnalysisSettings | None = None,
    is_stored: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> DerivedRun:
    """Derive every request and chunk of a run.

    Args:
        folder: a run folder; one that is still being written is read as far as it goes.
        settings: how to read it; the default ones if None.
        is_stored: write `derived/`. False answers "what if" questions and leaves it alone.
        on_progress: told the number of requests done, now and then.

    Raises:
        RunFolderError: no readable run folder.
        RunDataError: `derived/` cannot be written, or has to be made but the audio is elsewhere.
    """
    settings = settings or AnalysisSettings()
    run = open_run(folder)
    stamp = _stamp(run, settings)
    if is_stored:
        cached = _read_cached(folder, stamp, settings)
        if cached is not None:
            return cached
    _check_audio(run)
    tables = derive_records(run.iter_records(), context_of(run.record, settings), on_progress)
    if is_stored:
        _write(folder, tables, stamp)
    return DerivedRun(_frame(tables.requests), _frame(tables.chunks), settings)


def _check_audio(run: StoredRun) -> None:
    """A run may travel without its audio, as long as nothing in it has to be measured anew."""
    recorded = run.requests["audio_file"].dropna()
    if len(recorded) and not (run.folder / recorded.iloc[0]).parent.is_dir():
        raise RunDataError(
            f"{run.folder}: has to be measured anew, for other settings or by newer rules than its"
            f" {DERIVED_DIR}/, but its recorded audio is not here; copy the run's whole folder"
        )


def load_derived(folder: Path, *, settings: AnalysisSettings | None = None) -> DerivedRun | None:
    """The stored derived tables, or None where there are none for these settings.

    Raises:
        RunFolderError: no readable run folder.
    """
    settings = settings or AnalysisSettings()
    return _read_cached(folder, _stamp(open_run(folder), settings), settings)


def context_of(run: RunRecord, settings: AnalysisSettings) -> AnalysisContext:
    """Settings together with what the run says about its stamps and its text."""
    pacing = run.scenario.get("text_pacing") or {}
    return AnalysisContext(
        settings=settings,
        stamps=stamp_rule(run.clock),
        is_incremental=pacing.get("mode", "whole") != "whole",
    )


# -- rows -----------------------------------------------------------------------------------------


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


# -- files ----------------------------------------------------------------------------------------


def _stamp(run: StoredRun, settings: AnalysisSettings) -> bytes:
    """What the derived tables depend on, to be stored with them and compared."""
    names = [metric.name for metric in request_metrics()]
    return json.dumps(
        {
            "schema_version": _SCHEMA_VERSION,
            "settings": settings.digest(),
            "recorded": _recording_digest(run.folder),
            "metrics": names,
            # With another decoder, or one where there was none, replies are measured anew.
            "decoder": decoder_version(),
        },
        sort_keys=True,
    ).encode()


def _recording_digest(folder: Path) -> str:
    """Of what was recorded, not of when its files were written: a copy is the same run."""
    digest = hashlib.sha256()
    for name in ("requests.parquet", "chunks.parquet"):
        path = folder / name
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()


def _read_cached(folder: Path, stamp: bytes, settings: AnalysisSettings) -> DerivedRun | None:
    tables = []
    for name in ("requests", "chunks"):
        path = folder / DERIVED_DIR / f"{name}.parquet"
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowInvalid):
            return None  # absent or half written: made anew
        if (table.schema.metadata or {}).get(_METADATA_KEY) != stamp:
            return None
        tables.append(table)
    return DerivedRun(_frame(tables[0]), _frame(tables[1]), settings)


def _write(folder: Path, tables: DerivedTables, stamp: bytes) -> None:
    target = folder / DERIVED_DIR
    try:
        target.mkdir(exist_ok=True)
        for name, table in (("requests", tables.requests), ("chunks", tables.chunks)):
            partial = target / f"{name}.partial"
            pq.write_table(table.replace_schema_metadata({_METADATA_KEY: stamp}), partial)
            # Whole or not at all, so that a reader never meets half a table.
            partial.replace(target / f"{name}.parquet")
    except OSError as fault:
        raise RunDataError(f"{target}: cannot be written: {fault.strerror or fault}") from None


def _frame(table: pa.Table) -> pd.DataFrame:
    """A pandas frame in which whole numbers stay whole and null stays null."""
    import pandas as pd

    kinds = {
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame: pd.DataFrame = table.to_pandas(types_mapper=kinds.get)
    return frame
