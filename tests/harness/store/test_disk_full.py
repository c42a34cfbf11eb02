"""A disk that is full or read-only ends in one clear line and a folder that can still be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.errors import RunFolderError
from harness.records import RunStatus
from harness.store import RunWriter, open_run, recover
from harness.store.frames import FrameKind, LogScan, append_frame, encode_frame, scan_log
from tests.builders.runs import record, run_record, schedule_of


class _SmallDisk:
    """Stands in for the write calls of `os`: takes so many bytes, then says that it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, room: int) -> None:
        self._room = room
        self._write, self._pwritev = os.write, os.pwritev
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "pwritev", self.pwritev)

    def write(self, fd: int, data: bytes) -> int:
        return self._write(fd, data[: self._take(len(data))])

    def pwritev(self, fd: int, buffers: list[memoryview], offset: int) -> int:
        whole = b"".join(buffers)
        return os.pwrite(fd, whole[: self._take(len(whole))], offset)

    def _take(self, wanted: int) -> int:
        if self._room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(wanted, self._room)
        self._room -= taken
        return taken


def test_a_frame_that_does_not_fit_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a frame is cut off again, so that a later one is not hidden behind it."""
    path = tmp_path / "log.bin"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    append_frame(fd, encode_frame(FrameKind.HEAD, b"first"))
    with monkeypatch.context() as patched:
        _SmallDisk(patched, room=7)
        with pytest.raises(OSError, match="No space left"):
            append_frame(fd, encode_frame(FrameKind.HEAD, b"second"))
    append_frame(fd, encode_frame(FrameKind.HEAD, b"third"))
    os.close(fd)

    scan = LogScan()
    assert [b"first", b"third"] == [frame.body for frame in scan_log(path, scan)]
    assert (0, 0) == (scan.num_damaged, scan.num_torn_bytes)


def test_a_disk_that_fills_up_is_reported_and_the_rest_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer names the fault, counts what it lost, and the folder gives back what it has."""
    folder = tmp_path / "run"
    records = [record(index=i) for i in range(6)]
    head = run_record()
    writer = RunWriter.create(folder, head, schedule_of(records, head.points))
    with monkeypatch.context() as patched:
        _SmallDisk(patched, room=4_000)
        for each in records:
            writer.append(each, [b"x" * 1_000])
        with pytest.raises(RunFolderError, match=r"No space left.*not stored") as full:
            writer.close(RunStatus.COMPLETE)

    assert 6 == full.value.exit_code
    assert "\n" not in str(full.value)
    num_stored = len(open_run(folder).requests)
    assert 0 < num_stored < 6
    assert num_stored == recover(folder).num_requests


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A file in the way of the folder's parent is named."""
    (tmp_path / "file").write_text("")

    with pytest.raises(RunFolderError, match="cannot be made"):
        RunWriter.create(tmp_path / "file" / "run", run_record(), [])


def test_a_run_that_could_not_begin_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try has the name free, once there is room."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(RunFolderError, match="No space left"):
            RunWriter.create(tmp_path / "run", run_record(), [])

    assert not (tmp_path / "run").exists()
