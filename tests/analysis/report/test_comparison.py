"""Runs held against each other: what the page claims, and what it refuses to."""

from __future__ import annotations

import dataclasses

import pytest

from analysis.compare import Finding, compare, contenders_of
from analysis.compare_words import pairs_of, sentence, summary
from analysis.errors import NotComparableError
from analysis.report import load_report, render
from analysis.report.compared import difference_chart, difference_table, merge_or_revert
from analysis.report.comparison import load_comparison, write_comparison
from analysis.report.model import Tone
from analysis.report.side_by_side import caveats, common_head
from analysis.report.svg import Line
from harness.records import RunStatus
from tests.builders.reports import STREAM, Shape, report_run

SLOW = dataclasses.replace(STREAM, first_ms=400.0)
ONE = {"rates": (1.0, 2.0), "num_requests": 20}


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """The same plan, a fast server and a slow one."""
    root = tmp_path_factory.mktemp("compared")
    fast = report_run(root, name="fast", engines={"tts": STREAM}, **ONE)
    slow = report_run(root, name="slow", engines={"tts": SLOW}, **ONE)
    return fast, slow


@pytest.fixture(scope="module")
def found(two_runs):
    """Slow against fast."""
    return compare(contenders_of(two_runs))


def written(paths, out, **options):
    """The page about runs."""
    return write_comparison(load_comparison(paths, **options), out).read_text()


def with_findings(found, *findings):
    """The comparison with other claims: the given ones in turn, the rest not shown."""
    rate = found.rates[0]
    claims = [*findings, *[Finding.NOT_SHOWN] * len(rate.differences)]
    differences = tuple(
        dataclasses.replace(each, finding=claim)
        for each, claim in zip(rate.differences, claims, strict=False)
    )
    return dataclasses.replace(found, rates=(dataclasses.replace(rate, differences=differences),))


def test_slower_server_is_a_revert(found):
    """Later sound, nothing better."""
    decision = merge_or_revert(found)

    assert ("revert", Tone.BAD) == (decision.findings[0].cell.text, decision.tone)
    assert "p50 audible TTFA" in decision.findings[0].cell.note


@pytest.mark.parametrize(
    ("claims", "answer"),
    [
        ((Finding.BETTER,), "merge"),
        ((Finding.WORSE,), "revert"),
        ((Finding.BETTER, Finding.WORSE), "a trade"),
        ((Finding.NOT_MEASURED,), "undecided"),
        ((), "undecided"),
    ],
)
def test_answer_follows_from_the_claims(found, claims, answer):
    """Nothing shown is not equality, and never a merge."""
    assert answer == merge_or_revert(with_findings(found, *claims)).findings[0].cell.text


def test_difference_chart_has_a_point_for_every_rate(found):
    """With its interval around it."""
    chart = difference_chart(found.rates, "audible_ttfa", "p50")
    [line] = [mark for mark in chart.marks if isinstance(mark, Line)]

    assert [1.0, 2.0] == [point.x for point in line.points]
    assert all(point.lo <= point.y <= point.hi for point in line.points)


def test_difference_table_holds_every_compared_metric(found):
    """Two rates, each with all metrics."""
    [pair] = pairs_of(found)
    table = difference_table(pair)

    assert sum(len(at.differences) for at in found.rates) == len(table.rows)
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_page_says_the_computed_sentences(two_runs, found, tmp_path):
    """Word by word what the comparison computed."""
    text = written(two_runs, tmp_path / "x" / "page.html")

    for at in found.rates:
        claim, _, rest = sentence(at).partition(": ")
        assert claim in text
        assert rest[:60] in text


def test_page_leads_with_one_sentence_for_the_whole(two_runs, found, tmp_path):
    """And keeps the rest closed."""
    text = written(two_runs, tmp_path / "page.html")
    [pair] = pairs_of(found)

    assert text.index(summary(pair)) < text.index("differences at every rate")
    assert "<details open" not in text


def test_machines_are_told_apart_by_what_they_are_not_by_how_busy_they_were(tmp_path):
    """Another load average is no other machine; less memory is."""
    machines = (
        {"cpu": "A", "memory_bytes": 8, "load_average": [0.1]},
        {"cpu": "A", "memory_bytes": 8, "load_average": [2.5]},
        {"cpu": "A", "memory_bytes": 4, "load_average": [0.1]},
    )
    models = [
        load_report(
            report_run(tmp_path, name=f"run{i}", engines={"a": Shape()}, rates=(1.0,),
                       num_requests=4, machine=machine)
        ).model
        for i, machine in enumerate(machines)
    ]  # fmt: skip

    assert () == caveats(models[:2])
    assert ("The machines differ in memory bytes (8 / 4).",) == caveats(models[1:])


def test_head_of_a_common_page_says_what_holds_for_every_run(tmp_path):
    """One of two was cut short under other seeds: its word, no common plan, and its note."""
    whole, cut = (
        load_report(
            report_run(
                tmp_path, name=name, engines={"a": Shape()}, rates=(1.0,), num_requests=4, **fields
            )
        ).model
        for name, fields in (
            ("whole", {}),
            ("cut", {"seeds": (2,), "status": RunStatus.INTERRUPTED}),
        )
    )
    whole, cut = (dataclasses.replace(m, title=t) for m, t in ((whole, "whole"), (cut, "cut")))
    head = common_head([whole, cut], "both")

    assert ("both", "interrupted", "") == (head.title, head.status, head.created_utc)
    assert "Arrivals" in {fact.name for fact in whole.conditions}
    assert "Arrivals" not in {fact.name for fact in head.conditions}
    assert "Start rule" in {fact.name for fact in head.conditions}
    assert any(text.startswith("cut: The run is interrupted") for text in caveats([whole, cut]))


def test_runs_under_other_loads_are_refused(two_runs, tmp_path):
    """Unless insisted on, and then the page says in what they differ."""
    other = report_run(
        tmp_path, name="other", engines={"tts": STREAM}, rates=(1.0,), num_requests=20,
        scenario={"arrivals": {"process": "constant"}},
    )  # fmt: skip
    out = tmp_path / "page.html"

    with pytest.raises(NotComparableError):
        written([two_runs[0], other], out)
    assert "differ" in written([two_runs[0], other], out, is_forced=True)


def test_one_run_with_two_engines_compares_them_on_its_page(tmp_path):
    """A sweep over engines needs no second folder."""
    folder = report_run(tmp_path, engines={"a": STREAM, "b": SLOW}, **ONE)
    [path] = render(folder, ["html"])

    assert "One engine against the other" in path.read_text()


def test_one_engine_alone_is_compared_with_nothing(tmp_path):
    """And its page has no such part."""
    folder = report_run(tmp_path, engines={"a": Shape()}, rates=(1.0,), num_requests=6)
    [path] = render(folder, ["html"])

    assert "One engine against the other" not in path.read_text()
