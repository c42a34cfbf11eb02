"""What a report says beside its figures, so that nobody is led astray by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.aggregate import summarise_run
from analysis.report import DEFAULT_FORMATS, render
from analysis.report.facts import commands
from harness.records import INTERRUPTED_KIND, RequestRecord, RunStatus, TransportOutcome
from tests.builders.cohorts import latency_run
from tests.builders.runs import chunks_of, ms, record, run_record

PIECE = 4_800  # 100 ms of 24 kHz s16le


def _deliver(arrivals_ms: list[float]) -> list[RequestRecord]:
    """Twelve replies of 2 s whose first sample is heard, delivered at these moments."""
    return [
        record(
            index=n,
            scheduled_ms=1_500.0 + 20 * n,
            chunks=chunks_of([(1_500.0 + 20 * n + at_ms, PIECE) for at_ms in arrivals_ms]),
            known_onset_sample=0,
        )
        for n in range(12)
    ]


# The origin makes 100 ms of audio every 80 ms; a relay in between collects it into two bursts.
DIRECT = _deliver([100.0 + 80 * n for n in range(20)])
RELAYED = _deliver([820.0] * 10 + [1_620.0] * 10)


def _reports(tmp_path: Path, name: str, records: list[RequestRecord]) -> tuple[dict, str, str]:
    folder = latency_run(tmp_path, [], extra=records, name=name)
    render(folder, DEFAULT_FORMATS)
    return (
        summarise_run(folder)["points"][0]["metrics"],
        (folder / "report.md").read_text(),
        (folder / "report.html").read_text(),
    )


def test_delivery_in_bursts_is_reported_as_worse_and_named(tmp_path: Path):
    """First sound 820 ms against 100, although its gaps are shorter; both pages say coalesced."""
    direct, direct_md, direct_html = _reports(tmp_path, "direct", DIRECT)
    relayed, relayed_md, relayed_html = _reports(tmp_path, "relayed", RELAYED)

    assert (100.0, 820.0) == (
        direct["audible_ttfa"]["p50"]["value"],
        relayed["audible_ttfa"]["p50"]["value"],
    )
    assert relayed["gap_median"]["p50"]["value"] < direct["gap_median"]["p50"]["value"]
    assert {0.0} == {m["underrun_rate"]["value"]["value"] for m in (direct, relayed)}
    assert "coalesced: in the median reply up to 94.7 % of the gaps" in relayed_md
    assert "coalesced: in the median reply" in relayed_html
    assert not any("coalesced:" in page for page in (direct_md, direct_html))


def _interrupted(index: int, **fields) -> RequestRecord:
    return record(
        index=index,
        scheduled_ms=1_900.0,
        transport_outcome=TransportOutcome.CANCELLED,
        error_kind=INTERRUPTED_KIND,
        finished_ns=ms(2_000),
        **fields,
    )


@pytest.fixture(scope="module")
def interrupted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight replies at 100 ms, and two that were in flight when the run was interrupted."""
    heard = _interrupted(9, chunks=chunks_of([(1_950.0, 2_400)]), known_onset_sample=0)
    return latency_run(
        tmp_path_factory.mktemp("interrupted"),
        [100.0] * 8,
        extra=[_interrupted(8), heard],
        status=RunStatus.INTERRUPTED,
    )


def test_what_the_runs_interrupt_ended_stays_in_the_cohort(interrupted_run: Path):
    """Not the scenario's own cancel: no sound yet is not reached, and no end is an end."""
    [point] = summarise_run(interrupted_run)["points"]
    ttfa, e2e = point["metrics"]["audible_ttfa"], point["metrics"]["e2e"]

    assert (2, 10) == (point["num_interrupted"], point["n"])
    assert (10, 1, 0) == (ttfa["n"], ttfa["not_reached"], ttfa["excluded"])
    assert (10, 2, 0) == (e2e["n"], e2e["not_reached"], e2e["excluded"])
    assert 0.2 == point["metrics"]["failure_rate"]["value"]["value"]


def test_report_tells_an_interrupt_from_cancels_by_the_scenario(interrupted_run: Path):
    """The page names the interrupt and claims no cancel."""
    render(interrupted_run, DEFAULT_FORMATS)
    page = (interrupted_run / "report.md").read_text()

    assert "2 requests in flight at the interrupt" in page
    assert "by the scenario" not in page


def test_every_sitting_of_a_run_is_told_with_its_command():
    """The first command, then those that went on with the folder, each as a shell takes it."""
    run = run_record(command=["earwitness", "run", "a b.yaml"])
    run.resumes.append({"command": ["earwitness", "run", "--resume", "DIR"]})

    assert ("earwitness run 'a b.yaml'", "earwitness run --resume DIR") == commands(run)
