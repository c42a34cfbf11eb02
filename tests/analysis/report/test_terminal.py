"""The summary in a terminal: which columns there are, and that no word is broken."""

from __future__ import annotations

import dataclasses

import pytest
from rich.console import Console

from analysis.report.model import Cell, Column, Table
from analysis.report.terminal import print_model, print_table
from analysis.report.words import percentile_note


def printed(model, width: int) -> str:
    """What a terminal of so many columns shows."""
    console = Console(width=width)
    with console.capture() as captured:
        print_model(model, console)
    return captured.get()


def test_load_verdict_and_failures_stand_right_after_the_rate(loaded):
    """A latency of an overloaded point says little."""
    titles = [column.title for column in loaded.model.points_table.columns]

    assert ["engine", "rate", "failed", "load", "verdict"] == titles[:5]


@pytest.mark.parametrize("width", [80, 100, 170])
def test_no_word_of_a_table_is_broken(loaded, width):
    """An overloaded point whose requests queue, at every width."""
    row = list(loaded.model.points_table.rows[0])
    row[3] = Cell("overloaded")
    row[6] = Cell("829.5 ms", 829.5, "no interval (correlated)")
    table = dataclasses.replace(loaded.model.points_table, rows=(tuple(row),))
    words = printed(dataclasses.replace(loaded.model, points_table=table), width).split()

    assert {"overloaded", "(correlated)", "stutter", "received"} <= set(words)


def test_columns_of_detail_give_way_in_a_narrow_terminal():
    """Rank 2 before rank 1; what is always shown stays."""
    columns = tuple(Column(f"{'x' * 20}{rank}", rank=rank) for rank in (0, 1, 2))
    table = Table("", columns, (tuple(Cell("1") for _ in columns),))
    console = Console(width=50)
    with console.capture() as captured:
        print_table(table, console)

    assert [True, True, False] == [f"x{rank}" in captured.get() for rank in (0, 1, 2)]


def test_why_requests_failed_is_told(loaded):
    """The server's own words, and how often."""
    text = " ".join(printed(loaded.model, 300).split())

    assert "× http error: server said" in text


def test_interval_below_zero_does_not_look_like_three_dashes():
    """Text in pieces is often heard before its end."""
    metric = {"n": 60, "unit": "ms", "p50": {"value": -9, "lo": -12.0, "hi": -5.0, "status": "ok"}}

    assert "-12 to -5" == percentile_note(metric, 50)
