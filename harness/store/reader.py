"""Read a run folder: closed ones from their tables, others from the log as far as it goes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engines.base import (
    AudioFormat,
    OddByte,
    PayloadEncoding,
    RateSource,
    SampleFormat,
    WavSize,
)
from harness.errors import RunFolderError
from harness.records import (
    SCHEDULE_COLUMNS,
    ChunkEvent,
    Column,
    Phase,
    RequestRecord,
    RunRecord,
    RunStatus,
    TextEvent,
    TransportOutcome,
)
from harness.store.layout import Layout, disk_error, read_run_record
from harness.store.tables import TABLE_COLUMNS, build_tables, read_log, what_is_wrong

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StoredRun", "open_run"]


def open_run(folder: Path) -> StoredRun:
    """Open a run folder for reading.

    A folder that is still `running` (or was killed) is read from its log: what had finished is
    there, and nothing is written.

    Raises:
        RunFolderError: no run folder, damaged, or of a version this program does not know.
    """
    layout = Layout(Path(folder))
    return StoredRun(layout, read_run_record(layout))


class StoredRun:
    """One run folder, its tables read when first asked for.

    Nullable integer columns are pandas `Int64`: null stays null and nanoseconds stay exact.
    """

    def __init__(self, layout: Layout, record: RunRecord) -> None:
        self._layout = layout
        self.folder = layout.folder
        self.record = record

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request, in the order of the plan."""
        return _frame(self._table("requests"))

    @cached_property
    def chunks(self) -> pd.DataFrame:
        """One row a delivery."""
        return _frame(self._table("chunks"))

    @cached_property
    def text_events(self) -> pd.DataFrame:
        """One row a piece of incremental text."""
        return _frame(self._table("text_events"))

    @cached_property
    def telemetry(self) -> pd.DataFrame:
        """One row a sample."""
        return _frame(self._table("telemetry"))

    @cached_property
    def schedule(self) -> pd.DataFrame:
        """The plan, one row an arrival; `scheduled_ns` counts from the start of the point."""
        return _frame(self._read(self._layout.schedule, SCHEDULE_COLUMNS))

    def iter_records(
        self, only: Collection[str] | None = None
    ) -> Iterator[tuple[RequestRecord, bytes | None]]:
        """Every request as it was recorded, with its stored payload (None: not recorded).

        Args:
            only: ids of the requests that are wanted; None: all of them.
        """
        requests = self._table("requests")
        if only is not None:
            wanted = pa.array(sorted(only), type=pa.string())
            requests = requests.filter(pc.is_in(requests.column("request_id"), value_set=wanted))
        chunks = _RowsOfRequests(self._table("chunks"))
        text_events = _RowsOfRequests(self._table("text_events"))
        for batch in requests.to_batches(max_chunksize=1_000):
            for row in batch.to_pylist():
                request_id = row["request_id"]
                record = _record(
                    row,
                    [ChunkEvent(*values) for values in chunks.of(request_id)],
                    [TextEvent(*values) for values in text_events.of(request_id)],
                )
                yield record, self._payload_of(record)

    def payload(self, request_id: str) -> bytes | None:
        """The stored payload of one request; None where none was recorded.

        Raises:
            KeyError: no such request.
            RunFolderError: the payload file cannot be read.
        """
        file, offset, size = self._payload_places[request_id]
        return None if file is None else self._read_payload(file, offset, size)

    # -- tables ------------------------------------------------------------------------------------

    def _table(self, name: str) -> Any:
        if self._is_closed:
            return self._read(self._layout.table(name), TABLE_COLUMNS[name])
        return self._log_tables[name]

    @cached_property
    def _is_closed(self) -> bool:
        # A head that says how the run ended is written after the tables; what is then left of the
        # log is the rest of one that was being deleted, and holds less.
        is_over = self.record.status is not RunStatus.RUNNING
        return is_over or not self._layout.log_dir.exists()

    @cached_property
    def _log_tables(self) -> dict[str, Any]:
        return build_tables(self._layout, read_log(self._layout), self.record.points)

    def _read(self, path: Path, columns: Sequence[Column]) -> Any:
        try:
            table = pq.read_table(path)
        except FileNotFoundError:
            raise RunFolderError(
                f"{self.folder}: {path.name} is missing; the folder is damaged"
            ) from None
        except (OSError, pa.ArrowInvalid) as fault:
            first = str(fault).splitlines()[0]
            raise RunFolderError(f"{path}: cannot be read: {first}") from None
        wrong = what_is_wrong(table, columns)
        if wrong is not None:
            raise RunFolderError(f"{path}: is damaged: {wrong}")
        return table

    # -- payloads ----------------------------------------------------------------------------------

    @cached_property
    def _payload_places(self) -> dict[str, tuple[str | None, int, int]]:
        columns = ["request_id", "audio_file", "audio_offset", "audio_bytes"]
        table = self._table("requests").select(columns)
        ids, files, offsets, sizes = (table.column(name).to_pylist() for name in columns)
        rows = zip(ids, files, offsets, sizes, strict=True)
        return {request_id: (file, offset or 0, size) for request_id, file, offset, size in rows}

    def _payload_of(self, record: RequestRecord) -> bytes | None:
        if record.audio_file is None or record.audio_offset is None:
            return None
        return self._read_payload(record.audio_file, record.audio_offset, record.audio_bytes)

    def _read_payload(self, file: str, offset: int, size: int) -> bytes:
        path = self.folder / file
        try:
            with path.open("rb") as stream:
                stream.seek(offset)
                payload = stream.read(size)
        except OSError as fault:
            raise disk_error(path, fault, "cannot be read") from None
        if len(payload) != size:
            raise RunFolderError(
                f"{path}: holds {len(payload)} of {size} bytes at {offset}; the folder is damaged"
            )
        return payload


def _frame(table: Any) -> pd.DataFrame:
    import pandas as pd

    frames: dict[str, Any] = {}
    for schema_field in table.schema:
        column = table.column(schema_field.name)
        frames[schema_field.name] = _series(column, schema_field, pd)
    return pd.DataFrame(frames)


def _series(column: Any, schema_field: Any, pd: Any) -> Any:
    if schema_field.nullable and pa.types.is_integer(schema_field.type):
        return column.to_pandas(
            types_mapper={pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}.get
        )
    if schema_field.nullable and pa.types.is_boolean(schema_field.type):
        return column.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get)
    return column.to_pandas()


class _RowsOfRequests:
    """Rows of a table by request; those of one request lie together, as they were written."""

    def __init__(self, table: Any) -> None:
        # Numbers without nulls are cut a dozen times faster as an array.
        self._columns = [
            column.to_numpy()
            if pa.types.is_integer(column.type) and not column.null_count
            else column
            for column in table.drop_columns("request_id").combine_chunks().columns
        ]
        self._places: dict[str, tuple[int, int]] = {}
        if table.num_rows:
            runs = pc.run_end_encode(table.column("request_id").combine_chunks())
            start = 0
            for request_id, end in zip(
                runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True
            ):
                self._places[request_id] = (start, end)
                start = end

    def of(self, request_id: str) -> Iterator[tuple[Any, ...]]:
        """Values of each row, in the order of the columns."""
        start, end = self._places.get(request_id, (0, 0))
        return zip(*(_values(column[start:end]) for column in self._columns), strict=True)


def _values(part: Any) -> Any:
    return part.to_pylist() if isinstance(part, pa.ChunkedArray) else part.tolist()


def _record(
    row: dict[str, Any], chunks: list[ChunkEvent], text_events: list[TextEvent]
) -> RequestRecord:
    values = dict(row)
    audio, expected = _formats(values)
    values["text"] = values["text"] or ""
    values["phase"] = Phase(values["phase"])
    values["transport_outcome"] = TransportOutcome(values["transport_outcome"])
    return RequestRecord(
        **values, format=audio, expected_format=expected, chunks=chunks, text_events=text_events
    )


def _formats(values: dict[str, Any]) -> tuple[AudioFormat | None, AudioFormat | None]:
    """Take the format columns out of a row."""
    rate, channels = values.pop("sample_rate_hz"), values.pop("channels")
    name, source = values.pop("sample_format"), values.pop("rate_source")
    encoding, odd_byte = values.pop("payload_encoding"), values.pop("odd_byte")
    wav_size = values.pop("wav_size")
    expected_rate = values.pop("expected_sample_rate_hz")
    expected_channels = values.pop("expected_channels")
    expected_name = values.pop("expected_sample_format")
    audio = None
    if name is not None:
        audio = AudioFormat(
            SampleFormat(name),
            rate,
            channels,
            RateSource(source),
            PayloadEncoding(encoding),
            OddByte(odd_byte),
            WavSize(wav_size),
        )
    expected = None
    if expected_name is not None:
        # How the payload is wrapped is told once; the contract promises what is inside.
        wrapping = audio.encoding if audio is not None else PayloadEncoding.RAW
        expected = AudioFormat(
            SampleFormat(expected_name),
            expected_rate,
            expected_channels,
            RateSource.CONTRACT,
            wrapping,
        )
    return audio, expected
