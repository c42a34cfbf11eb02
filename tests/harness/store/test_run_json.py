"""run.json: whole, and refused by name when it is not what this program can read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import RunFolderError
from harness.records import RunStatus
from harness.store import RunWriter, open_run
from tests.builders.runs import chunks_of, point, record, run_folder, run_record


def _with(folder: Path, **changes: Any) -> Path:
    data = json.loads((folder / "run.json").read_text())
    data.update(changes)
    (folder / "run.json").write_text(json.dumps(data))
    return folder


def test_the_head_of_a_run_comes_back(tmp_path: Path) -> None:
    """Status, points and notes are those that were stored."""
    stored = [point(selfcheck={"loop_lag_ms": {"p99": 0.5}})]
    run = open_run(run_folder(tmp_path, [record()], points=stored, notes=["one note"]))

    assert (RunStatus.COMPLETE, stored) == (run.record.status, run.record.points)
    assert ["one note"] == run.record.notes


def test_run_json_is_replaced_and_never_written_over(tmp_path: Path) -> None:
    """Who has the old one open reads it whole; a kill in between leaves the old one."""
    writer = RunWriter.create(tmp_path / "run", run_record(), [])
    with (tmp_path / "run" / "run.json").open("rb") as old:
        writer.run.notes.append("new")
        writer.save()
        assert b"new" not in old.read()
    writer.close(RunStatus.COMPLETE)

    assert ["new"] == open_run(tmp_path / "run").record.notes


def test_a_newer_folder_is_refused_by_its_version(tmp_path: Path) -> None:
    """The message names both versions and the file."""
    folder = _with(run_folder(tmp_path, [record()]), schema_version=99)

    with pytest.raises(RunFolderError, match=r"run\.json: schema_version: 99 is newer than 1"):
        open_run(folder)


def test_an_older_folder_is_refused_by_its_version(tmp_path: Path) -> None:
    """No version before the first can be read, and the message says what would read it."""
    folder = _with(run_folder(tmp_path, [record()]), schema_version=0)

    with pytest.raises(RunFolderError, match="0 is older than 1"):
        open_run(folder)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "not valid JSON"),
        ("[]", "holds no mapping"),
        ("{}", "schema_version: found None"),
        ('{"schema_version": 1}', "is damaged"),
        ('{"schema_version": true}', "schema_version: found True"),
    ],
)
def test_a_damaged_head_is_one_line(content: str, complaint: str, tmp_path: Path) -> None:
    """Whatever is wrong with run.json, the message names the file."""
    folder = run_folder(tmp_path, [record()])
    (folder / "run.json").write_text(content)

    with pytest.raises(RunFolderError, match=complaint) as refused:
        open_run(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("points", 0, "rate_rps"), "fast"),
        (("points", 0, "start_ns"), 1.5),
        (("points", 0, "selfcheck", "cpu"), []),
        (("points", 0, "selfcheck", "dispatch_lag_ms", "p99"), "0"),
        (("points", 0, "selfcheck", "wall_clock_steps"), 1),
        (("points",), {}),
        (("status",), "over"),
        (("clock", "stamp_source"), -5.5),
        (("clock", "offsets"), [[1, 2]]),
        (("engines", 0), "fake"),
        (("scenario", "arrivals"), "poisson"),
        (("versions",), -1),
        (("command",), 10**18),
    ],
)
def test_a_value_of_another_type_is_named_by_its_path(
    path: tuple[str | int, ...], value: object, tmp_path: Path
) -> None:
    """Far from the file, nobody could tell any more where it came from."""
    checked = {"cpu": {}, "dispatch_lag_ms": {"n": 1, "p99": 0.5}, "wall_clock_steps": []}
    folder = run_folder(tmp_path, [record()], points=[point(selfcheck=checked)])
    data = json.loads((folder / "run.json").read_text())
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (folder / "run.json").write_text(json.dumps(data))
    dotted = r"\.".join(map(str, path))

    with pytest.raises(RunFolderError, match=rf"run\.json: is damaged: {dotted}") as refused:
        open_run(folder)
    assert "\n" not in str(refused.value)


def test_a_folder_without_run_json_is_no_run(tmp_path: Path) -> None:
    """An arbitrary folder is named as what it is not."""
    with pytest.raises(RunFolderError, match="nowhere: does not exist"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match="is not a run folder"):
        open_run(tmp_path)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """A folder that lost a table says which."""
    folder = run_folder(tmp_path, [record()])
    (folder / "chunks.parquet").unlink()

    with pytest.raises(RunFolderError, match=r"chunks\.parquet is missing"):
        _ = open_run(folder).chunks


def test_a_table_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    """Garbage in a table is one line, not a traceback of a library."""
    folder = run_folder(tmp_path, [record()])
    (folder / "requests.parquet").write_bytes(b"garbage")

    with pytest.raises(RunFolderError, match=r"requests\.parquet: cannot be read"):
        _ = open_run(folder).requests


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("requests", lambda t: t.drop_columns("attempts"), "attempts is missing"),
        ("schedule", lambda t: t.drop_columns("point_id"), "point_id is missing"),
        ("chunks", lambda t: t.set_column(1, "seq", pa.array(["x"])), "seq holds string, expec"),
        (
            "chunks",
            lambda t: t.set_column(2, "arrival_ns", pa.array([None], pa.int64())),
            "arrival_ns has values that are missing",
        ),
    ],
)
def test_a_table_of_another_shape_is_named(
    name: str, change: Callable[[Any], Any], complaint: str, tmp_path: Path
) -> None:
    """With the column; nobody computes with what is not there."""
    folder = run_folder(tmp_path, [record(chunks=chunks_of([(1, 4)]))])
    path = folder / f"{name}.parquet"
    pq.write_table(change(pq.read_table(path)), path)

    with pytest.raises(RunFolderError, match=rf"{name}\.parquet: is damaged: column {complaint}"):
        getattr(open_run(folder), name)


def test_not_a_number_is_stored_as_null(tmp_path: Path) -> None:
    """JSON has no NaN; an unmeasured value is null."""
    odd = point(selfcheck={"cpu_share": float("nan")})
    folder = run_folder(tmp_path, [record()], points=[odd])

    assert {"cpu_share": None} == open_run(folder).record.points[0].selfcheck
