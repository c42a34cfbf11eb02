"""A resumed run keeps what it had and adds to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import RunFolderError
from harness.records import RunStatus
from harness.store import RunWriter, open_run, recover
from tests.builders.runs import kill, point, record, run_folder, run_record, schedule_of


def _resumed(folder: Path) -> RunWriter:
    again = record(point_id="again", index=0)
    writer = RunWriter.resume(folder, lambda _: schedule_of([again], [point("again")]))
    writer.save_point(point("again"))
    writer.append(again, [b"new"])
    return writer


def test_old_and_new_requests_are_in_one_table(tmp_path: Path) -> None:
    """Rows, payloads, plan and points of both sittings are there."""
    folder = run_folder(tmp_path, [(record(), b"old")], status=RunStatus.INTERRUPTED)
    _resumed(folder).close(RunStatus.COMPLETE)

    run = open_run(folder)
    assert ["fake-r2-s1-0", "again-0"] == run.requests["request_id"].tolist()
    assert [b"old", b"new"] == [payload for _, payload in run.iter_records()]
    assert ["fake-r2-s1", "again"] == run.schedule["point_id"].tolist()
    assert ["fake-r2-s1", "again"] == [p.point_id for p in run.record.points]
    assert RunStatus.COMPLETE is run.record.status


def test_a_kill_during_the_second_sitting_loses_nothing_of_the_first(tmp_path: Path) -> None:
    """Recovery finds the closed tables of the first and the log of the second."""
    folder = run_folder(tmp_path, [(record(), b"old")], status=RunStatus.INTERRUPTED)
    writer = _resumed(folder)
    kill(writer)

    recover(folder)

    assert [b"old", b"new"] == [payload for _, payload in open_run(folder).iter_records()]


def test_a_folder_that_was_not_closed_cannot_be_resumed(tmp_path: Path) -> None:
    """The message names the command that closes it."""
    writer = RunWriter.create(tmp_path / "run", run_record(), [])
    kill(writer)

    with pytest.raises(RunFolderError, match="earwitness recover"):
        RunWriter.resume(tmp_path / "run", lambda _: [])
