"""A run derived by several processes."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from analysis import derive, derive_parts
from analysis.derive import derive_run
from analysis.derive_parts import derive_in_parts
from analysis.derived_rows import context_of, derive_records
from analysis.errors import RunDataError
from analysis.view import AnalysisSettings
from harness.records import RunStatus
from harness.store import open_run
from tests.builders.audio import silence, tone
from tests.builders.runs import record, run_folder
from tests.builders.views import delivered

NUM_REQUESTS = 9


def long_run(tmp_path: Path, **fields: object) -> Path:
    """Replies of different lengths, each with another lead of silence."""
    replies = []
    for index in range(NUM_REQUESTS):
        chunks, payload = delivered([(20, silence(10 * index)), (60 + index, tone(300))])
        replies.append((record(index=index, chunks=chunks), payload))
    return run_folder(tmp_path, replies, **fields)


def ids_of(folder: Path) -> list[str]:
    return open_run(folder).requests["request_id"].tolist()


@pytest.mark.slow
def test_parts_together_are_the_whole(tmp_path):
    """Five parts by two processes, equal to one pass in every value and in their order."""
    folder, settings, told = long_run(tmp_path), AnalysisSettings(), []
    run = open_run(folder)
    whole = derive_records(run.iter_records(), context_of(run.record, settings))
    parts = derive_in_parts(
        folder, settings, ids_of(folder), num_processes=2, min_part=2, on_progress=told.append
    )

    assert whole.requests.equals(parts.requests)
    assert whole.chunks.equals(parts.chunks)
    assert [2, 4, 6, 8, 9] == told


def test_a_process_that_was_ended_is_one_line(tmp_path, monkeypatch):
    """The system takes memory back from whoever holds most: no fault of the run's."""

    class Ended(derive_parts.ProcessPoolExecutor):
        def map(self, *_):
            raise BrokenProcessPool

    monkeypatch.setattr(derive_parts, "ProcessPoolExecutor", Ended)
    folder = long_run(tmp_path)

    with pytest.raises(RunDataError, match="was ended from outside"):
        derive_in_parts(folder, AnalysisSettings(), ids_of(folder), num_processes=2)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests were given to several processes, each time that some were."""
    given: list[int] = []

    def in_parts(folder, settings, request_ids, *, num_processes, on_progress):
        given.append(len(request_ids))
        run = open_run(folder)
        return derive_records(run.iter_records(), context_of(run.record, settings))

    monkeypatch.setattr(derive, "derive_in_parts", in_parts)
    monkeypatch.setattr(derive, "MIN_PART", 2)
    return given


def test_a_long_run_is_shared_where_processes_may(tmp_path, shared):
    """Asked for by whoever can be imported again, so never by default."""
    folder = long_run(tmp_path)
    derive_run(folder, is_stored=False)
    derive_run(folder, is_stored=False, num_processes=2)

    assert [NUM_REQUESTS] == shared


def test_a_short_run_is_derived_by_one_process(tmp_path, shared, monkeypatch):
    """To start another takes longer."""
    monkeypatch.setattr(derive, "MIN_PART", NUM_REQUESTS)
    derive_run(long_run(tmp_path), num_processes=2)

    assert [] == shared


def test_a_run_that_is_still_being_written_is_read_by_one_process(tmp_path, shared):
    """Several would find another number of requests each."""
    folder = long_run(tmp_path, status=RunStatus.RUNNING)
    derive_run(folder, num_processes=2)

    assert [] == shared


def test_whoever_waits_is_told_how_many_there_are(tmp_path):
    """Every hundred: done, and in all."""
    told: list[tuple[int, int]] = []
    folder = run_folder(tmp_path, [record(index=index) for index in range(120)])
    derive_run(folder, on_progress=lambda *count: told.append(count))

    assert [(100, 120)] == told
