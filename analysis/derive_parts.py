"""A long run derived by several processes, each a few hundred requests at a time."""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import pyarrow as pa

from analysis.derived_rows import DerivedTables, context_of, derive_records
from analysis.errors import RunDataError
from analysis.view import AnalysisSettings
from harness.child import end_with_parent
from harness.store import open_run

__all__ = ["MIN_PART", "derive_in_parts"]

MIN_PART = 500
"""Requests a process takes at least: it reads the run's tables for each part."""
_PARTS_PER_PROCESS = 4  # so that all end at about the same time, and progress can be told


def derive_in_parts(
    folder: Path,
    settings: AnalysisSettings,
    request_ids: Sequence[str],
    *,
    num_processes: int,
    min_part: int = MIN_PART,
    on_progress: Callable[[int], None] | None = None,
) -> DerivedTables:
    """The same tables as those of `derive_records`, of a run that is not being written any more.

    Args:
        folder: of the run.
        settings: how to read it.
        request_ids: of all its requests, in its own order.
        num_processes: that share the work. They are spawned, so the program that calls this must
            be importable without doing its work again.
        min_part: requests of a part at least.
        on_progress: told the number of requests done, part by part.

    Raises:
        RunFolderError: the folder cannot be read.
        RunDataError: a process was ended from outside, as for want of memory.
    """
    share = math.ceil(len(request_ids) / (num_processes * _PARTS_PER_PROCESS))
    size = max(min_part, share)
    parts = [request_ids[begin : begin + size] for begin in range(0, len(request_ids), size)]
    pool = ProcessPoolExecutor(
        min(num_processes, len(parts)),
        # A fork would inherit locks of threads that do not exist in the child.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
    )
    found: list[DerivedTables] = []
    try:
        for tables in pool.map(partial(_part, folder, settings), parts):
            found.append(tables)
            if on_progress is not None:
                on_progress(sum(each.requests.num_rows for each in found))
    except BrokenProcessPool:
        raise RunDataError(
            f"{folder}: a process that measured a part of it was ended from outside; is there"
            " memory enough? Try again with one core: taskset -c 0 earwitness report ..."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
    return DerivedTables(
        pa.concat_tables([tables.requests for tables in found]).combine_chunks(),
        pa.concat_tables([tables.chunks for tables in found]).combine_chunks(),
    )


def _begin() -> None:
    end_with_parent()
    # Ctrl-C is for whoever waits for the parts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _part(folder: Path, settings: AnalysisSettings, request_ids: Sequence[str]) -> DerivedTables:
    run = open_run(folder)
    return derive_records(run.iter_records(only=request_ids), context_of(run.record, settings))
