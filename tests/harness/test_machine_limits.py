"""What the machine would run out of is found before the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import RunFolderError, ScenarioError
from harness.machine_limits import (
    FileLimit,
    check_descriptors,
    check_ports,
    check_writable,
    disk_warning,
)
from harness.scenario_sections import Recording
from harness.schedule import Schedule, build_schedule
from tests.builders.runs import scenario


class _Limits:
    """Limits that remember what they were raised to."""

    def __init__(self, soft: int, hard: int) -> None:
        self._limit = FileLimit(soft, hard)
        self.raised: list[int] = []

    def get(self) -> FileLimit:
        return self._limit

    def raise_to(self, soft: int) -> None:
        self.raised.append(soft)


def _plan(num: int, **overrides: Any) -> tuple[Any, list[Schedule]]:
    given = scenario(
        {"arrivals.process": "constant", "phases.warmup_s": 0.0, **overrides},
    )
    return given, [build_schedule(given, rate_rps=num / 5, seed=1)]


def test_a_small_run_leaves_the_limit_alone():
    """100 requests fit into 256 files."""
    limits = _Limits(256, 256)
    check_descriptors(*_plan(100), limits=limits)

    assert [] == limits.raised


def test_the_limit_is_raised_where_the_system_allows_it():
    """500 requests and a pool of 100 need room for as many connections and 64 other files."""
    limits = _Limits(256, 4_096)
    check_descriptors(*_plan(500, **{"connections.pool": 100}), limits=limits)

    assert [500 + 100 + 64] == limits.raised


def test_no_more_than_the_safety_cap_can_be_open():
    """A cap of 50 in flight needs no room for 500."""
    check_descriptors(*_plan(500, **{"limits.max_in_flight": 50}), limits=_Limits(256, 256))


def test_a_run_that_the_system_cannot_hold_is_refused():
    """The message has the need, what is allowed, and both ways out."""
    with pytest.raises(ScenarioError, match=r"may need 564 open files, this system allows 256"):
        check_descriptors(*_plan(500), limits=_Limits(256, 256))


def _ports(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "range"
    path.write_text(text)
    return path


def test_cold_connections_that_use_up_the_ports_are_refused(tmp_path: Path):
    """1000 connections, each port busy for a minute, do not fit into 500."""
    with pytest.raises(ScenarioError, match=r"keeps 1000 local ports busy.*has 500.*8 a second"):
        check_ports(
            *_plan(1_000, **{"connections.mode": "cold"}),
            port_range=_ports(tmp_path, "1001\t1500\n"),
        )


def test_every_try_of_a_request_needs_a_port_of_its_own(tmp_path: Path):
    """400 connections fit into 500 ports; tried up to three times they do not."""
    given, [plan] = _plan(400, **{"connections.mode": "cold"})
    ports = _ports(tmp_path, "1001\t1500\n")
    check_ports(given, [plan], port_range=ports)
    retried = given.model_copy(update={"retries": given.retries.model_copy(update={"max": 2})})

    with pytest.raises(
        ScenarioError, match=r"tried up to 3 times, keeps 1200 local ports.*retry less.*3 a second"
    ):
        check_ports(retried, [plan], port_range=ports)


def test_warm_connections_need_few_ports(tmp_path: Path):
    """They are kept and used again."""
    check_ports(*_plan(1_000), port_range=_ports(tmp_path, "1001\t1500\n"))


def test_a_system_that_does_not_say_its_ports_is_believed(tmp_path: Path):
    """No range to read is no reason to refuse."""
    check_ports(*_plan(1_000, **{"connections.mode": "cold"}), port_range=tmp_path / "none")


def test_points_that_follow_each_other_share_the_ports(tmp_path: Path):
    """Three points of 200 connections within a minute keep 600 ports busy; one alone would fit."""
    given, [plan] = _plan(200, **{"connections.mode": "cold"})
    ports = _ports(tmp_path, "1001\t1500\n")
    check_ports(given, [plan], port_range=ports)

    with pytest.raises(ScenarioError, match=r"keeps 600 local ports busy"):
        check_ports(given, [plan, plan, plan], port_range=ports)


def test_points_of_an_hour_ago_have_given_their_ports_back(tmp_path: Path):
    """Only what falls into one minute counts: 5 s of arrivals at the end of each 100 s."""
    given, [plan] = _plan(200, **{"connections.mode": "cold"})
    slow = given.model_copy(update={"phases": given.phases.model_copy(update={"measure_s": 100.0})})

    check_ports(slow, [plan, plan, plan], port_range=_ports(tmp_path, "1001\t1500\n"))


def test_a_folder_below_a_file_is_refused(tmp_path: Path):
    """Named with what is in the way, before any load."""
    (tmp_path / "file").write_text("")

    with pytest.raises(RunFolderError, match=r"run: cannot be made: .*file is not a directory"):
        check_writable(tmp_path / "file" / "deep" / "run")


def test_a_folder_whose_parents_are_missing_can_be_made(tmp_path: Path):
    """They are made with it."""
    check_writable(tmp_path / "new" / "deep" / "run")


def _warning(audio: str, free_bytes: int) -> str | None:
    """Of 10,000 requests of 120 characters, that is of 10 s each: 4.8 GB of audio in all."""
    return disk_warning(
        Path("results/x"),
        Recording(audio=audio),
        num_requests=10_000,
        num_characters=1_200_000,
        free=lambda _folder: free_bytes,
    )


@pytest.mark.parametrize(
    ("audio", "needed"), [("all", "4.9"), ("head:1", "0.61"), ("sample:0.1", "0.61")]
)
def test_a_disk_that_may_fill_up_is_named(audio: str, needed: str):
    """With what may be needed, what is left, and how to keep less."""
    said = _warning(audio, 100_000_000)

    assert said is not None
    assert f"may need {needed} GB and the disk of results/x has 0.1 GB left" in said
    assert "recording.audio" in said


@pytest.mark.parametrize(("audio", "free_gb"), [("all", 5), ("head:1", 1), ("none", 0.2)])
def test_a_disk_with_room_is_not_mentioned(audio: str, free_gb: float):
    """What is not kept needs no room."""
    assert _warning(audio, round(free_gb * 1e9)) is None
