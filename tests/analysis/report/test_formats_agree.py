"""HTML, Markdown, terminal and metrics.json say the same figures, because one model says them."""

from __future__ import annotations

import html
import json
import re

import pytest
from rich.console import Console

from analysis.report.clips import ClipSet
from analysis.report.explorer import explorer_data
from analysis.report.html import PageData, render_html
from analysis.report.markdown import render_markdown
from analysis.report.terminal import print_model
from analysis.report.words import number, share


@pytest.fixture(scope="module")
def page(loaded) -> str:
    """The text of the page, tags removed."""
    data = PageData(loaded.tables, explorer_data(loaded.tables, None), ClipSet({}, 0, 0), 2.0)
    text = render_html(loaded.model, data)
    body = text[: text.index('<script type="application/json"')]
    return _flat(html.unescape(re.sub(r"<[^>]+>", " ", body)))


@pytest.fixture(scope="module")
def markdown(loaded) -> str:
    """The Markdown, its escapes removed."""
    text = render_markdown(loaded.model)
    return _flat(re.sub(r"\\(.)", r"\1", re.sub(r"(?<!\\)<[^>]+>", " ", text)))


@pytest.fixture(scope="module")
def terminal(loaded) -> str:
    """What a wide terminal shows."""
    console = Console(width=400)
    with console.capture() as captured:
        print_model(loaded.model, console)
    return _flat(captured.get())


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cells(loaded):
    tables = (
        loaded.model.points_table,
        loaded.model.outcomes_table,
        loaded.model.speech_table,
    )
    return {cell for table in tables for row in table.rows for cell in row}


def test_every_table_cell_is_printed_alike_in_all_three(loaded, page, markdown, terminal):
    """Value and note of each cell, letter by letter."""
    words = {text for cell in _cells(loaded) for text in (cell.text, cell.note) if text}

    assert len(words) > 30
    for name, shown in (("page", page), ("markdown", markdown), ("terminal", terminal)):
        missing = sorted(text for text in words if _flat(text) not in shown)
        assert (name, []) == (name, missing)


def test_every_decision_is_printed_alike_in_all_three(loaded, page, markdown, terminal):
    """The answers at the top, with their conditions."""
    words = {
        text
        for decision in loaded.model.decisions
        for finding in decision.findings
        for text in (finding.cell.text, finding.cell.note)
        if text
    }
    for shown in (page, markdown, terminal):
        assert [] == sorted(text for text in words if _flat(text) not in shown)


@pytest.mark.parametrize("percent", [50, 95, 99])
@pytest.mark.parametrize("name", ["audible_ttfa", "audible_received", "stall_total"])
def test_percentiles_are_those_of_metrics_json(loaded, run_dir, name, percent):
    """The file on disk and the printed words hold the same numbers."""
    stored = json.loads((run_dir / "derived" / "metrics.json").read_text())
    for raw in stored["points"]:
        point = next(p for p in loaded.model.points if p.point_id == raw["point_id"])
        cell = getattr(point.metrics[name], f"p{percent}")
        found = raw["metrics"][name][f"p{percent}"]
        if found["status"] == "not_reached":
            assert ("not reached", None) == (cell.text, cell.value)
        else:
            assert number(found["value"], "ms") == cell.text


def test_shares_are_those_of_metrics_json(loaded, run_dir):
    """Underruns and word error rates, too."""
    stored = json.loads((run_dir / "derived" / "metrics.json").read_text())
    for raw in stored["points"]:
        point = next(p for p in loaded.model.points if p.point_id == raw["point_id"])
        assert share(raw["metrics"]["underrun_rate"]["value"]["value"]) == point.underruns.text
        assert share(raw["metrics"]["wer"]["value"]["value"]) == point.wer.text


def test_received_stands_beside_audible_everywhere(loaded, page, markdown, terminal):
    """Trimming silence must stay visible as trimming: one never without the other."""
    main, more = (
        {column.title for column in table.columns}
        for table in (loaded.model.points_table, loaded.model.more_table)
    )

    assert {"audible TTFA p95", "received p95", "leading silence"} <= main
    assert {"audible TTFA p99", "received p50"} <= more
    for shown in (page, markdown, terminal):
        assert "received p95" in shown


def test_start_rule_is_printed_with_the_gaps(loaded, page, markdown, terminal):
    """A stall only means something together with when the player starts."""
    for shown in (page, markdown, terminal):
        assert "Start rule of the player: immediate" in shown


def test_failures_are_named_where_a_percentile_was_not_reached(loaded, markdown):
    """k of n failed, in words."""
    assert re.search(r"not reached \d+ of 24 failed", markdown)


def test_successes_are_labelled_as_such(page):
    """The survivors' figures never pass for the cohort's."""
    assert "successes alone (n = " in page
