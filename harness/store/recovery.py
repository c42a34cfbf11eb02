"""Finish a run folder whose writer was killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.records import PointRecord, RunRecord, RunStatus
from harness.store.layout import FolderLock, Layout, read_run_record, write_run_record
from harness.store.tables import LogContents, close_tables, read_log

__all__ = ["Recovery", "recover"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What `recover` found. `num_torn_bytes` is the frame that was being written at the kill."""

    folder: Path
    status: RunStatus
    was_needed: bool
    num_requests: int = 0
    num_torn_bytes: int = 0
    num_damaged: int = 0
    num_payloads_missing: int = 0


def recover(folder: Path) -> Recovery:
    """Close a killed run from its log; on a closed folder it changes nothing.

    The run becomes `incomplete`, unless the log says how it had ended. Doing it again, or again
    after a kill in the middle, gives the same bytes.

    Raises:
        RunFolderError: no run folder, one that is still being written, or the disk refuses.
    """
    layout = Layout(Path(folder))
    run = read_run_record(layout)
    if not layout.log_dir.exists():
        return Recovery(layout.folder, run.status, was_needed=False)
    lock = FolderLock(layout)
    lock.acquire()
    try:
        run = read_run_record(layout)
        if run.status is not RunStatus.RUNNING:
            # Killed between the last word in run.json and the end of the log: nothing is missing.
            layout.remove_log()
            return Recovery(layout.folder, run.status, was_needed=False)
        contents = read_log(layout)
        _restore_points(run, contents)
        close_tables(layout, contents, run.points)
        run.status = contents.status or RunStatus.INCOMPLETE
        run.notes += _notes(contents)
        write_run_record(layout, run)
        layout.remove_log()
    finally:
        lock.release()
    return Recovery(
        layout.folder,
        run.status,
        was_needed=True,
        num_requests=len(contents.places),
        num_torn_bytes=contents.num_torn_bytes,
        num_damaged=contents.num_damaged,
        num_payloads_missing=contents.num_payloads_missing,
    )


def _restore_points(run: RunRecord, contents: LogContents) -> None:
    """The log knows a point's latest state; run.json may be one step behind."""
    restored: list[PointRecord] = [contents.points.pop(p.point_id, p) for p in run.points]
    run.points = restored + list(contents.points.values())


def _notes(contents: LogContents) -> list[str]:
    notes = [f"recovered after a kill: {len(contents.places)} finished requests from the log"]
    if contents.num_torn_bytes:
        notes.append(f"{contents.num_torn_bytes} bytes of an unfinished log entry were dropped")
    if contents.num_damaged:
        notes.append(f"{contents.num_damaged} damaged log entries were skipped")
    if contents.num_payloads_missing:
        notes.append(f"{contents.num_payloads_missing} payloads were lost with the machine's cache")
    return notes
