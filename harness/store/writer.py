"""Write one run folder, from its first byte to its closed tables.

Order of a life: `create` writes run.json and the plan before the first send; `append` while the
run lasts; `close` turns the log into tables, marks the run, and only then deletes the log. A kill
at any moment leaves a folder that `recover` can finish.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from engines.base import Buffer
from harness.errors import RunFolderError
from harness.records import (
    PointRecord,
    RequestRecord,
    RunRecord,
    RunStatus,
    TelemetrySample,
)
from harness.schedule import Schedule
from harness.store.layout import (
    TABLE_NAMES,
    FolderLock,
    Layout,
    create_folder,
    disk_error,
    read_run_record,
    write_run_record,
)
from harness.store.segment import AudioPolicy, SegmentWriter
from harness.store.tables import close_tables, read_log, schedule_table, write_table

__all__ = ["RunWriter", "write_run"]

_SHARD = 0


class RunWriter:
    """The one writer of a run folder. Make it with `create` or `resume`.

    `run` belongs to the caller, who changes it and calls `save`.
    """

    def __init__(
        self,
        layout: Layout,
        run: RunRecord,
        *,
        segment: int,
        redact: Callable[[str], str] = str,
        lock: FolderLock,
    ) -> None:
        self.run = run
        self._layout = layout
        self._lock = lock
        recording = run.scenario.get("recording", {})
        self._segment = SegmentWriter(
            layout,
            shard=_SHARD,
            segment=segment,
            audio=AudioPolicy.parse(recording.get("audio", "all")),
            keep_text=recording.get("text", True),
            redact=redact,
        )

    @classmethod
    def create(
        cls,
        folder: Path,
        run: RunRecord,
        schedules: Sequence[Schedule],
        *,
        redact: Callable[[str], str] = str,
    ) -> RunWriter:
        """Begin a new run folder; run.json and the whole plan are on disk when this returns.

        Args:
            folder: must not exist.
            run: its status becomes `running`.
            schedules: one a point.
            redact: applied to every text that came from a server.

        Raises:
            RunFolderError: the folder exists, or the disk refuses.
        """
        layout = create_folder(folder)
        lock = FolderLock(layout)
        lock.acquire()
        try:
            run.status = RunStatus.RUNNING
            write_run_record(layout, run)
            write_table(schedule_table(schedules), layout.schedule)
            return cls(layout, run, segment=0, redact=redact, lock=lock)
        except BaseException:
            # Nothing was sent: what is left would only be in the way of the next try.
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
            raise

    @classmethod
    def resume(
        cls,
        folder: Path,
        plans_to_add: Callable[[RunRecord], Sequence[Schedule]],
        *,
        redact: Callable[[str], str] = str,
    ) -> RunWriter:
        """Go on with a closed folder; what it holds stays, the plan of new points is added.

        Args:
            folder: closed (recover it first if it was killed).
            plans_to_add: from the run as it is now, which nobody else can change meanwhile, to the
                plans of the points that are to be run, under point ids not used before.
            redact: as for `create`.

        Raises:
            RunFolderError: no run folder, one that is not closed, or the disk refuses.
        """
        layout = Layout(folder)
        _refuse_unclosed(layout)  # before the lock, which is kept in a log that closed ones lack
        lock = FolderLock(layout)
        lock.acquire()
        try:
            run = read_run_record(layout)
            schedules = plans_to_add(run)
        except BaseException:
            layout.remove_log()  # nothing in it but the lock
            lock.release()
            raise
        try:
            _keep_tables_as_base(layout)
            run.status = RunStatus.RUNNING
            write_run_record(layout, run)
            plan = pa.concat_tables([pq.read_table(layout.schedule), schedule_table(schedules)])
            write_table(plan, layout.schedule)
            return cls(layout, run, segment=_next_segment(layout), redact=redact, lock=lock)
        except BaseException:
            lock.release()
            raise

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._layout.folder

    @property
    def failure(self) -> Exception | None:
        """Why nothing more can be stored, or None. A run that sees one should end at once."""
        return self._segment.failure

    def append(
        self, record: RequestRecord, payload: Buffer | Sequence[Buffer] | None = None
    ) -> None:
        """Hand over a finished request; returns at once. Neither may be changed afterwards.

        `payload` is the reply as received, in one piece or in several; how much of it is kept
        is the scenario's `recording.audio`.
        """
        if payload is None:
            payload = ()
        elif isinstance(payload, bytes | bytearray | memoryview):
            payload = (payload,)
        self._segment.append(record, payload)

    def append_telemetry(self, rows: Sequence[TelemetrySample]) -> None:
        """Hand over samples; returns at once."""
        self._segment.append_telemetry(rows)

    def note_point(self, point: PointRecord) -> None:
        """Put the state of one point into the log alone; returns at once."""
        self._segment.append_point(replace(point))

    def save_point(self, point: PointRecord) -> None:
        """Put the state of one point into the log and into run.json.

        Raises:
            RunFolderError: run.json cannot be written.
        """
        known = [p.point_id for p in self.run.points]
        if point.point_id in known:
            self.run.points[known.index(point.point_id)] = point
        else:
            self.run.points.append(point)
        self._segment.append_point(replace(point))
        self.save()

    def save(self) -> None:
        """Write `run` to run.json as it is now.

        Raises:
            RunFolderError: it cannot be written.
        """
        write_run_record(self._layout, self.run)

    def close(self, status: RunStatus) -> None:
        """Store what is still queued, close the tables, mark the run, delete the log.

        Raises:
            RunFolderError: the disk refuses; the log is kept and the folder can be recovered.
            Exception: a request could not be written down, by a fault of ours; as above.
        """
        try:
            self._segment.append_close(status.value)
            self._segment.close()
            close_tables(self._layout, read_log(self._layout), self.run.points)
            self.run.status = status
            self.save()
            self._layout.remove_log()
        finally:
            self._lock.release()


def write_run(
    folder: Path,
    run: RunRecord,
    schedules: Sequence[Schedule],
    records: Iterable[tuple[RequestRecord, Buffer | Sequence[Buffer] | None]],
    *,
    telemetry: Sequence[TelemetrySample] = (),
) -> None:
    """Write a whole run at once: for simulated runs, and for tests. Keeps `run.status`.

    Raises:
        RunFolderError: the folder exists, or the disk refuses.
    """
    status = run.status
    writer = RunWriter.create(folder, run, schedules)
    for record, payload in records:
        writer.append(record, payload)
    writer.append_telemetry(telemetry)
    writer.close(status)


def _refuse_unclosed(layout: Layout) -> None:
    run = read_run_record(layout)
    if run.status is RunStatus.RUNNING or not layout.has_tables():
        raise RunFolderError(
            f"{layout.folder}: was not closed; run `earwitness recover {layout.folder}` first"
        )


def _keep_tables_as_base(layout: Layout) -> None:
    """Copy the closed tables aside; renaming the copy makes them count, all or none."""
    temporary = layout.log_dir / "base.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name in TABLE_NAMES:
            shutil.copyfile(layout.table(name), temporary / f"{name}.parquet")
        temporary.rename(layout.base_dir)
    except OSError as fault:
        raise disk_error(layout.folder, fault, "cannot be written") from None


def _next_segment(layout: Layout) -> int:
    taken = [int(p.stem.partition("-")[2]) for p in (layout.folder / "audio").glob("*-*.bin")]
    return max(taken, default=-1) + 1
