"""The names inside a run folder, its lock, and run.json, which is always whole.

```
run.json  schedule.parquet  requests.parquet  chunks.parquet  text_events.parquet
telemetry.parquet  audio/<shard>-<n>.bin  derived/ (owned by analysis)
log/<shard>-<n>.bin  log/base/ (tables from before a resume)  log/lock    while running only
```
"""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import orjson

from harness.errors import RunFolderError
from harness.records import SCHEMA_VERSION, RunRecord
from harness.store.head import parse_head

__all__ = [
    "TABLE_NAMES",
    "FolderLock",
    "Layout",
    "create_folder",
    "disk_error",
    "put_in_place",
    "read_run_record",
    "write_run_record",
]

TABLE_NAMES = ("requests", "chunks", "text_events", "telemetry")
_OLDEST_READABLE = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one run folder."""

    folder: Path

    @property
    def run_json(self) -> Path:
        """The head of the run."""
        return self.folder / "run.json"

    @property
    def schedule(self) -> Path:
        """The plan, written before the first send."""
        return self.folder / "schedule.parquet"

    @property
    def log_dir(self) -> Path:
        """The log; gone once the tables are closed."""
        return self.folder / "log"

    @property
    def base_dir(self) -> Path:
        """Tables as they were before a resume."""
        return self.log_dir / "base"

    @property
    def lock(self) -> Path:
        """Held by whoever writes."""
        return self.log_dir / "lock"

    def table(self, name: str) -> Path:
        """The closed table of that name."""
        return self.folder / f"{name}.parquet"

    def log_segment(self, shard: int, segment: int) -> Path:
        """One shard's log of one sitting."""
        return self.log_dir / f"{shard}-{segment}.bin"

    def audio_name(self, shard: int, segment: int) -> str:
        """One shard's payload file, relative to the folder, as records name it."""
        return f"audio/{shard}-{segment}.bin"

    def log_segments(self) -> list[Path]:
        """All log files, by shard and segment."""
        return sorted(self.log_dir.glob("*-*.bin"), key=_segment_key)

    def has_tables(self) -> bool:
        """Whether every table is closed and nothing is left in a log."""
        return not self.log_dir.exists() and all(self.table(n).is_file() for n in TABLE_NAMES)

    def remove_log(self) -> None:
        """Delete the log; only once the tables and run.json are in place."""
        shutil.rmtree(self.log_dir, ignore_errors=True)


def _segment_key(path: Path) -> tuple[int, int]:
    shard, _, segment = path.stem.partition("-")
    return int(shard), int(segment)


def create_folder(folder: Path) -> Layout:
    """Make a new run folder; one that exists is never written to.

    Raises:
        RunFolderError: it exists, or cannot be made.
    """
    if folder.exists():
        raise RunFolderError(
            f"{folder}: exists already and a run folder is never re-used; name another with -o"
        )
    layout = Layout(folder)
    try:
        layout.log_dir.mkdir(parents=True)
        (folder / "audio").mkdir()
    except OSError as fault:
        raise disk_error(folder, fault, "cannot be made") from None
    return layout


def disk_error(path: Path, fault: OSError, what: str) -> RunFolderError:
    """One line about a disk that did not do what was asked."""
    return RunFolderError(f"{path}: {what}: {fault.strerror or fault}")


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a finished file its name once the disk has it: no power cut leaves half of it there.

    Raises:
        OSError: from the disk.
    """
    fd = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)


class FolderLock:
    """Exclusive right to write into a folder; the kernel frees it when its owner dies."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            RunFolderError: another process writes here, or the disk refuses.
        """
        try:
            self._layout.log_dir.mkdir(exist_ok=True)
            self._fd = os.open(self._layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as fault:
            raise disk_error(self._layout.folder, fault, "cannot be written") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            raise RunFolderError(
                f"{self._layout.folder}: is being written by process {owner}; wait for it to end"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# -- run.json --------------------------------------------------------------------------------------


def write_run_record(layout: Layout, run: RunRecord) -> None:
    """Replace run.json as a whole: a reader sees the old one or the new one.

    Raises:
        RunFolderError: the disk is full or read-only; the old file is still there.
    """
    run_json = layout.run_json
    temporary = run_json.with_name("run.json.tmp")
    content = orjson.dumps(run, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        temporary.write_bytes(content)
        put_in_place(temporary, run_json)
    except OSError as fault:
        temporary.unlink(missing_ok=True)
        raise disk_error(run_json, fault, "cannot be written") from None


def read_run_record(layout: Layout) -> RunRecord:
    """Read run.json.

    Raises:
        RunFolderError: no run folder, damaged, or of a version this program does not know.
    """
    run_json = layout.run_json
    try:
        content = run_json.read_bytes()
        data = orjson.loads(content)
    except FileNotFoundError:
        if not layout.folder.exists():
            raise RunFolderError(f"{layout.folder}: does not exist") from None
        raise RunFolderError(f"{layout.folder}: is not a run folder: it has no run.json") from None
    except OSError as fault:
        raise disk_error(run_json, fault, "cannot be read") from None
    except orjson.JSONDecodeError as fault:
        raise RunFolderError(f"{run_json}: is not valid JSON: {fault}") from None
    if not isinstance(data, dict):
        raise RunFolderError(f"{run_json}: holds no mapping, expected the head of a run")
    _refuse_other_schema(data.get("schema_version"), run_json)
    try:
        return parse_head(content, data)
    except ValueError as fault:
        raise RunFolderError(f"{run_json}: is damaged: {fault}") from None


def _refuse_other_schema(version: object, run_json: Path) -> None:
    if not isinstance(version, int) or isinstance(version, bool):
        raise RunFolderError(f"{run_json}: schema_version: found {version!r}, expected a number")
    if version > SCHEMA_VERSION:
        raise RunFolderError(
            f"{run_json}: schema_version: {version} is newer than {SCHEMA_VERSION}, the newest "
            "this earwitness can read; install the version that wrote it"
        )
    if version < _OLDEST_READABLE:
        raise RunFolderError(
            f"{run_json}: schema_version: {version} is older than {_OLDEST_READABLE}, the oldest "
            "this earwitness can read; read it with the version that wrote it"
        )
