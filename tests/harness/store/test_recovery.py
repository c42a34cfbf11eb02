"""A killed run loses at most the log entry that was being written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import RunFolderError
from harness.records import RunStatus, TelemetrySample
from harness.store import RunWriter, open_run, recover
from harness.store.frames import FrameKind, LogScan, append_frame, encode_frame, scan_log
from harness.store.layout import Layout
from tests.builders.runs import chunks_of, kill, point, record, run_folder, run_record, schedule_of

NUM_REQUESTS = 5


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _killed_run(folder: Path) -> Path:
    """A folder as a killed process leaves it: everything written, nothing closed."""
    head = run_record(points=[point(start_ns=None, is_complete=False)])
    records = [
        record(index=i, scheduled_ms=i, chunks=chunks_of([(i + 1, 4)])) for i in range(NUM_REQUESTS)
    ]
    writer = RunWriter.create(folder, head, schedule_of(records, head.points))
    writer.save_point(point(start_ns=3))
    for each in records:
        writer.append(each, [f"pcm{each.index}".encode()])
    writer.append_telemetry([TelemetrySample("fake-r2-s1", 1, "selfcheck", "cpu", 0.5)])
    kill(writer)
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One killed run, to be copied."""
    return _killed_run(tmp_path_factory.mktemp("killed") / "run")


def _copy(killed: Path, to: Path) -> Path:
    return Path(shutil.copytree(killed, to / "run"))


def test_a_killed_run_is_recovered_whole(killed: Path, tmp_path: Path) -> None:
    """Requests, payloads, telemetry and the state of points are all there, marked incomplete."""
    folder = _copy(killed, tmp_path)

    found = recover(folder)

    run = open_run(folder)
    assert (True, NUM_REQUESTS, 0) == (found.was_needed, found.num_requests, found.num_torn_bytes)
    assert RunStatus.INCOMPLETE is run.record.status
    assert [f"pcm{i}".encode() for i in range(NUM_REQUESTS)] == [p for _, p in run.iter_records()]
    assert (1, 3) == (len(run.telemetry), run.record.points[0].start_ns)


def test_recovering_again_changes_no_byte(killed: Path, tmp_path: Path) -> None:
    """A second recovery finds nothing to do."""
    folder = _copy(killed, tmp_path)
    recover(folder)
    before = _files(folder)

    assert not recover(folder).was_needed
    assert before == _files(folder)


def test_a_recovery_killed_half_way_ends_in_the_same_bytes(killed: Path, tmp_path: Path) -> None:
    """With tables in place, but run.json and the log untouched, it comes out the same."""
    straight = _copy(killed, tmp_path)
    recover(straight)
    twice = _copy(killed, tmp_path / "twice")
    for table in straight.glob("*.parquet"):
        shutil.copyfile(table, twice / table.name)

    recover(twice)

    assert _files(straight) == _files(twice)


def test_a_run_killed_after_its_last_word_only_loses_its_log(killed: Path, tmp_path: Path) -> None:
    """run.json already says complete: the tables stay as they are."""
    folder = run_folder(tmp_path, [record()])
    before = _files(folder)
    shutil.copytree(killed / "log", folder / "log")

    assert not recover(folder).was_needed
    assert before == _files(folder)


def test_what_is_left_of_a_log_that_was_being_deleted_hides_no_table(tmp_path: Path) -> None:
    """Killed there, a run is closed already: reading goes by its head, not by the rest."""
    folder = run_folder(tmp_path, [(record(), b"pcm")])
    (folder / "log").mkdir()
    (folder / "log" / "lock").touch()

    run = open_run(folder)
    assert 1 == len(run.requests)
    assert [b"pcm"] == [payload for _, payload in run.iter_records()]
    assert RunStatus.COMPLETE is recover(folder).status


def test_a_run_killed_while_closing_keeps_the_ending_it_had(tmp_path: Path) -> None:
    """The log's last word decides the status when the tables were not finished."""
    folder = _killed_run(tmp_path / "run")
    fd = os.open(folder / "log" / "0-0.bin", os.O_WRONLY | os.O_APPEND)
    append_frame(fd, encode_frame(FrameKind.CLOSE, b"interrupted"))
    os.close(fd)

    assert RunStatus.INTERRUPTED is recover(folder).status


def test_a_run_killed_while_its_tables_are_written_ends_as_it_was_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests had finished: a run that was complete is complete."""
    head = run_record()
    writer = RunWriter.create(tmp_path / "run", head, schedule_of([record()], head.points))
    writer.append(record(), [b"pcm"])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.store.writer.close_tables", killed)
    with pytest.raises(KeyboardInterrupt):
        writer.close(RunStatus.COMPLETE)

    assert RunStatus.COMPLETE is recover(tmp_path / "run").status
    assert 1 == len(open_run(tmp_path / "run").requests)


def test_a_point_that_had_begun_is_known_from_the_log_alone(tmp_path: Path) -> None:
    """run.json hears of a point at its end; a new try of it must not take the same names."""
    waiting = point(start_ns=None, is_complete=False)
    head = run_record(points=[waiting])
    writer = RunWriter.create(tmp_path / "run", head, schedule_of([record()], head.points))
    writer.note_point(replace(waiting, start_ns=3))
    kill(writer)

    assert [None] == [p.start_ns for p in open_run(tmp_path / "run").record.points]
    recover(tmp_path / "run")
    assert [3] == [p.start_ns for p in open_run(tmp_path / "run").record.points]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_kill_at_any_byte_of_the_log_loses_only_the_torn_entry(
    killed: Path, data: st.DataObject
) -> None:
    """A log cut anywhere gives back every entry that was whole, in order."""
    whole = Layout(killed).log_segments()[0].read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path = killed.parent / "cut.bin"
    path.write_bytes(whole[:cut])

    scan = LogScan()
    kept = [(frame.kind, frame.body) for frame in scan_log(path, scan)]

    path.write_bytes(whole)
    every = [(frame.kind, frame.body) for frame in scan_log(path, LogScan())]
    ends = [sum(len(encode_frame(*frame)) for frame in every[: n + 1]) for n in range(len(every))]
    assert every[: sum(end <= cut for end in ends)] == kept
    assert cut - ([0, *ends][len(kept)]) == scan.num_torn_bytes


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_damage_inside_the_log_costs_only_the_entries_it_touches(
    killed: Path, data: st.DataObject
) -> None:
    """Overwritten bytes lose their own entry and the rest is found again."""
    whole = bytearray(Layout(killed).log_segments()[0].read_bytes())
    path = killed.parent / "damaged.bin"
    path.write_bytes(whole)
    every = [frame.body for frame in scan_log(path, LogScan())]
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)

    kept = [frame.body for frame in scan_log(path, LogScan())]

    assert len(every) - 1 == len(kept)
    assert set(kept) <= set(every)


def test_recovery_of_a_cut_log_says_what_was_dropped(killed: Path, tmp_path: Path) -> None:
    """The number of bytes of the unfinished entry is in the result and in the run's notes."""
    folder = _copy(killed, tmp_path)
    log = folder / "log" / "0-0.bin"
    log.write_bytes(log.read_bytes() + b"EWL1torn")

    found = recover(folder)

    assert 8 == found.num_torn_bytes
    assert any("8 bytes" in note for note in open_run(folder).record.notes)


def test_a_payload_lost_to_a_power_cut_is_null(killed: Path, tmp_path: Path) -> None:
    """A record that points behind the end of its payload file loses the pointer, not itself."""
    folder = _copy(killed, tmp_path)
    os.truncate(folder / "audio" / "0-0.bin", 8)

    assert NUM_REQUESTS - 2 == recover(folder).num_payloads_missing
    payloads = [payload for _, payload in open_run(folder).iter_records()]
    assert [b"pcm0", b"pcm1", None, None, None] == payloads


def test_a_folder_that_is_being_written_is_not_recovered(tmp_path: Path) -> None:
    """Two writers would ruin it; the message names the process."""
    head = run_record()
    writer = RunWriter.create(tmp_path / "run", head, [])

    with pytest.raises(RunFolderError, match=f"is being written by process {os.getpid()}"):
        recover(tmp_path / "run")
    writer.close(RunStatus.COMPLETE)


_CHILD = """
import sys
from pathlib import Path
from harness.store import RunWriter
from tests.builders.runs import chunks_of, kill, record, run_record, schedule_of
head = run_record()
writer = RunWriter.create(Path(sys.argv[1]), head, schedule_of([record()], head.points))
for n in range(1_000_000):
    each = record(index=n, chunks=chunks_of([(n, 4)] * 20))
    while n % 50 == 49 and writer._segment._queue.qsize() > 5:
        pass
    writer.append(each, [b"x" * 480] * 20)
    if n == 100:
        print("running", flush=True)
"""


@pytest.mark.slow
def test_a_process_killed_while_writing_leaves_a_recoverable_run(tmp_path: Path) -> None:
    """SIGKILL in the middle of appending: the requests found are the first n, without a gap."""
    folder = tmp_path / "run"
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(folder)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert child.stdout is not None
    assert b"running\n" == child.stdout.readline()
    child.kill()
    child.wait()
    child.stdout.close()

    recover(folder)

    run = open_run(folder)
    indices = run.requests["index"].tolist()
    assert list(range(len(indices))) == indices
    assert len(indices) >= 40
    assert all(payload == b"x" * 9600 for _, payload in run.iter_records())
