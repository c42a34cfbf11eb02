"""From the log to columns: Parquet files when a run is closed, tables in memory while it is not.

Rows lie in the order of the plan (point, then index), chunks and text events in the order of
their requests. The whole log never has to fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.records import (
    CHUNK_COLUMNS,
    REQUEST_COLUMNS,
    SCHEDULE_COLUMNS,
    SCHEMA_VERSION,
    TELEMETRY_COLUMNS,
    TEXT_EVENT_COLUMNS,
    Column,
    PointRecord,
    RequestRecord,
    RunStatus,
    TelemetrySample,
)
from harness.schedule import Schedule
from harness.store import codec
from harness.store.codec import RequestKey, StoredRequest
from harness.store.frames import FrameKind, LogScan, scan_log
from harness.store.layout import TABLE_NAMES, Layout, disk_error, put_in_place

__all__ = [
    "TABLE_COLUMNS",
    "LogContents",
    "build_tables",
    "close_tables",
    "read_log",
    "schedule_table",
    "what_is_wrong",
    "write_table",
]

TABLE_COLUMNS: Mapping[str, Sequence[Column]] = {
    "requests": REQUEST_COLUMNS,
    "chunks": CHUNK_COLUMNS,
    "text_events": TEXT_EVENT_COLUMNS,
    "telemetry": TELEMETRY_COLUMNS,
}
_ARROW_TYPES = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
}
_BATCH_REQUESTS = 2_000
_WHAT_TO_DO = (
    "the tables cannot be written; the log is kept: make room, then run `earwitness recover`"
)
# Columns of the requests table that come out of the record's audio formats.
_FORMAT_COLUMNS = {
    "sample_rate_hz": ("format", "sample_rate_hz"),
    "channels": ("format", "channels"),
    "sample_format": ("format", "sample_format"),
    "rate_source": ("format", "rate_source"),
    "payload_encoding": ("format", "encoding"),
    "odd_byte": ("format", "odd_byte"),
    "wav_size": ("format", "wav_size"),
    "expected_sample_rate_hz": ("expected_format", "sample_rate_hz"),
    "expected_channels": ("expected_format", "channels"),
    "expected_sample_format": ("expected_format", "sample_format"),
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one request's frame lies, and what it is sorted by."""

    key: RequestKey
    path: Path
    body_start: int
    body_end: int


@dataclass(slots=True)
class LogContents:
    """What the logs of a folder hold, less the bodies of the requests."""

    places: list[_Place] = field(default_factory=list)
    telemetry: list[TelemetrySample] = field(default_factory=list)
    points: dict[str, PointRecord] = field(default_factory=dict)
    status: RunStatus | None = None
    num_torn_bytes: int = 0
    num_damaged: int = 0
    num_payloads_missing: int = 0


def read_log(layout: Layout) -> LogContents:
    """One pass over every log of the folder.

    Raises:
        RunFolderError: a log cannot be read.
    """
    contents = LogContents()
    for path in layout.log_segments():
        scan = LogScan()
        try:
            for frame in scan_log(path, scan):
                _take(contents, path, frame.kind, frame.body, frame.body_start)
        except OSError as fault:
            raise disk_error(path, fault, "cannot be read") from None
        contents.num_torn_bytes += scan.num_torn_bytes
        contents.num_damaged += scan.num_damaged
    return contents


def _take(contents: LogContents, path: Path, kind: FrameKind, body: bytes, body_start: int) -> None:
    if kind is FrameKind.REQUEST:
        key = codec.request_key(body)
        contents.places.append(_Place(key, path, body_start, body_start + len(body)))
    elif kind is FrameKind.TELEMETRY:
        contents.telemetry += codec.decode_telemetry(body)
    elif kind is FrameKind.POINT:
        point = codec.decode_point(body)
        contents.points[point.point_id] = point
    elif kind is FrameKind.CLOSE:
        contents.status = RunStatus(body.decode())


def close_tables(layout: Layout, contents: LogContents, points: Sequence[PointRecord]) -> None:
    """Write every table beside its final name, then put them all in place.

    Doing it again gives the same bytes, so a kill in between costs nothing.

    Raises:
        RunFolderError: the disk is full or read-only; the log is still there.
    """
    temporary = {name: layout.folder / f"{name}.parquet.tmp" for name in TABLE_NAMES}
    try:
        writers = {
            name: pq.ParquetWriter(path, _schema(name), compression="zstd")
            for name, path in temporary.items()
        }
        try:
            for name, table in _all_parts(layout, contents, points):
                writers[name].write_table(table)
        finally:
            for writer in writers.values():
                writer.close()
        for name, path in temporary.items():
            put_in_place(path, layout.table(name))
    except OSError as fault:
        for path in temporary.values():
            path.unlink(missing_ok=True)
        raise disk_error(layout.folder, fault, _WHAT_TO_DO) from None


def build_tables(
    layout: Layout, contents: LogContents, points: Sequence[PointRecord]
) -> dict[str, Any]:
    """The same tables in memory, for a folder that is not closed.

    Returns:
        Table name -> pyarrow Table.
    """
    parts: dict[str, list[Any]] = {name: [_empty(name)] for name in TABLE_NAMES}
    for name, table in _all_parts(layout, contents, points):
        parts[name].append(table)
    return {name: pa.concat_tables(tables) for name, tables in parts.items()}


def schedule_table(schedules: Sequence[Schedule]) -> Any:
    """The plans of all points as one pyarrow table."""
    arrivals = [(plan.point_id, arrival) for plan in schedules for arrival in plan]
    values = {
        "point_id": [point_id for point_id, _ in arrivals],
        "shard": [a.shard for _, a in arrivals],
        "index": [a.index for _, a in arrivals],
        "phase": [a.phase.value for _, a in arrivals],
        "scheduled_ns": [a.scheduled_ns for _, a in arrivals],
        "prompt_id": [a.prompt_id for _, a in arrivals],
    }
    return pa.table(values, schema=_schema_of(SCHEDULE_COLUMNS))


def what_is_wrong(table: Any, columns: Sequence[Column]) -> str | None:
    """Why a table cannot be one with these columns, or None; columns beyond them are let pass."""
    found = table.schema
    for expected in _schema_of(columns):
        if expected.name not in found.names:
            return f"column {expected.name} is missing"
        column = found.field(expected.name)
        if column.type != expected.type:
            return f"column {expected.name} holds {column.type}, expected {expected.type}"
        if not expected.nullable and table.column(expected.name).null_count:
            return f"column {expected.name} has values that are missing"
    return None


def write_table(table: Any, path: Path) -> None:
    """Write one table so that a reader never sees half of it.

    Raises:
        RunFolderError: the disk is full or read-only.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        pq.write_table(table, temporary, compression="zstd")
        put_in_place(temporary, path)
    except OSError as fault:
        temporary.unlink(missing_ok=True)
        raise disk_error(path, fault, "cannot be written") from None


def _all_parts(
    layout: Layout, contents: LogContents, points: Sequence[PointRecord]
) -> Iterator[tuple[str, Any]]:
    """Tables from before a resume, then the log in batches."""
    known: set[str] = set()
    if layout.base_dir.is_dir():
        for name in TABLE_NAMES:
            table = pq.read_table(layout.base_dir / f"{name}.parquet")
            if name == "requests":
                known.update(table.column("request_id").to_pylist())
            yield name, table
    places = _in_plan_order(contents.places, points, known)
    for start in range(0, len(places), _BATCH_REQUESTS):
        batch = places[start : start + _BATCH_REQUESTS]
        found = list(_requests(batch))
        yield "requests", _request_table([_checked(layout, contents, f.record) for f in found])
        ids = [f.record.request_id for f in found]
        yield "chunks", _rows_table("chunks", ids, [f.chunks for f in found])
        yield "text_events", _rows_table("text_events", ids, [f.text_events for f in found])
    if contents.telemetry:
        yield "telemetry", _telemetry_table(contents.telemetry)


def _in_plan_order(
    places: Sequence[_Place], points: Sequence[PointRecord], known: set[str]
) -> list[_Place]:
    """Sorted by point and index, each request once."""
    order = {point.point_id: n for n, point in enumerate(points)}
    once = {place.key.request_id: place for place in places if place.key.request_id not in known}
    return sorted(once.values(), key=lambda p: (order.get(p.key.point_id, len(order)), p.key.index))


def _requests(places: Sequence[_Place]) -> Iterator[StoredRequest]:
    files = {path: path.open("rb") for path in dict.fromkeys(place.path for place in places)}
    try:
        for place in places:
            file = files[place.path]
            file.seek(place.body_start)
            yield codec.decode_request(file.read(place.body_end - place.body_start))
    finally:
        for file in files.values():
            file.close()


def _checked(layout: Layout, contents: LogContents, record: RequestRecord) -> RequestRecord:
    """A payload that a power cut took is null, not a pointer behind the end of its file."""
    if record.audio_file is None or record.audio_offset is None:
        return record
    path = layout.folder / record.audio_file
    size = path.stat().st_size if path.is_file() else 0
    if record.audio_offset + record.audio_bytes > size:
        contents.num_payloads_missing += 1
        record.audio_file, record.audio_offset, record.audio_bytes = None, None, 0
    return record


# -- columns ---------------------------------------------------------------------------------------


def _schema_of(columns: Sequence[Column]) -> Any:
    return pa.schema(
        [pa.field(c.name, _ARROW_TYPES[c.type], nullable=c.is_nullable) for c in columns],
        metadata={"schema_version": str(SCHEMA_VERSION)},
    )


def _schema(name: str) -> Any:
    return _schema_of(TABLE_COLUMNS[name])


def _empty(name: str) -> Any:
    return _schema(name).empty_table()


def _request_table(records: Sequence[RequestRecord]) -> Any:
    values: dict[str, list[Any]] = {}
    for column in REQUEST_COLUMNS:
        if column.name in _FORMAT_COLUMNS:
            source, attribute = _FORMAT_COLUMNS[column.name]
            formats = [getattr(record, source) for record in records]
            found = [None if f is None else getattr(f, attribute) for f in formats]
        else:
            found = [getattr(record, column.name) for record in records]
        values[column.name] = [_plain(value) for value in found]
    # An empty text means that the scenario did not want texts kept.
    values["text"] = [text or None for text in values["text"]]
    return pa.table(values, schema=_schema("requests"))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value


def _rows_table(name: str, ids: Sequence[str], rows: Sequence[Sequence[list[Any]]]) -> Any:
    """Rows of several requests under one another; each request's are columns already."""
    columns = [column.name for column in TABLE_COLUMNS[name][1:]]
    values: dict[str, list[Any]] = {
        "request_id": [
            request_id
            for request_id, own in zip(ids, rows, strict=True)
            for _ in range(len(own[0]))
        ]
    }
    for n, column in enumerate(columns):
        values[column] = list(chain.from_iterable(own[n] for own in rows))
    return pa.table(values, schema=_schema(name))


def _telemetry_table(rows: Sequence[TelemetrySample]) -> Any:
    names = [column.name for column in TELEMETRY_COLUMNS]
    values = {name: [getattr(row, name) for row in rows] for name in names}
    return pa.table(values, schema=_schema("telemetry"))
