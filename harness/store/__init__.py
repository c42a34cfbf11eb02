"""Run folders: append-only while a run lasts, columnar once it is closed, never re-used.

Reading order: `head` (what run.json must hold), `layout` (names and run.json), `frames` (the log),
`codec` (records as bytes), `segment` (the writing thread), `tables` (log to Parquet), `writer`,
`reader`, `recovery`.
"""

from __future__ import annotations

from harness.store.reader import StoredRun, open_run
from harness.store.recovery import Recovery, recover
from harness.store.segment import AudioPolicy, SegmentWriter
from harness.store.writer import RunWriter, write_run

__all__ = [
    "AudioPolicy",
    "Recovery",
    "RunWriter",
    "SegmentWriter",
    "StoredRun",
    "open_run",
    "recover",
    "write_run",
]
