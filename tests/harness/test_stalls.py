"""Why the loop stood still."""

from __future__ import annotations

import pytest

from harness.stalls import StallEvidence, explain_stall


def _evidence(**values: object) -> StallEvidence:
    usual = {
        "length_ns": 50_000_000,
        "was_continued": False,
        "gc_ns": 0,
        "thread_cpu_ns": 1_000_000,
        "process_cpu_ns": 1_000_000,
        "run_delay_ns": 0,
        "num_disk_waits": 0,
    }
    return StallEvidence(**(usual | values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"was_continued": True}, "stopped"),
        ({"gc_ns": 30_000_000, "thread_cpu_ns": 45_000_000}, "gc"),
        ({"thread_cpu_ns": 45_000_000, "process_cpu_ns": 45_000_000}, "callback"),
        ({"run_delay_ns": 40_000_000}, "cpu"),
        ({"num_disk_waits": 3}, "disk"),
        ({"process_cpu_ns": 45_000_000}, "interpreter"),
        ({}, "blocked"),
        ({"run_delay_ns": None}, "blocked"),
    ],
)
def test_cause_is_what_accounts_for_half_of_the_stall(values: dict[str, object], cause: str):
    """The surest sign first: a stop, the collector, busy code, no CPU, the disk, other threads."""
    assert cause == explain_stall(_evidence(**values)).value
