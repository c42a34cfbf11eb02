"""METRICS.md is complete, and every metric has a hand-worked example among the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.metrics import registry
from analysis.outcomes import FinalOutcome

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "analysis" / "METRICS.md").read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("` "): [cell.strip() for cell in cells[1:]]
    for line in PAGE.splitlines()
    if line.startswith("| `")
    for cells in [line.strip("| ").split(" | ")]
}
TESTS = "".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "tests/analysis/metrics").glob("*.py")
)
SUFFIXES = ("_from_schedule", "_from_send")


@pytest.mark.parametrize("name", registry())
def test_every_metric_has_a_row_with_its_unit_and_direction(name):
    """The page and the code say the same."""
    metric = registry()[name]

    assert [metric.unit, metric.better.value] == ROWS[name][:2]
    assert ROWS[name][2]


@pytest.mark.parametrize("outcome", FinalOutcome)
def test_every_outcome_is_explained(outcome):
    """In a row of its own."""
    assert outcome.value in ROWS


def test_no_row_describes_what_does_not_exist():
    """A row is a metric, an outcome, or a stamp of the table of stamps."""
    known = set(registry()) | {outcome.value for outcome in FinalOutcome}
    others = {name for name in ROWS if name not in known}

    assert all(re.fullmatch(r"[a-z_]+_ns|chunks\[i\]\.[a-z_]+", name) for name in others), others


@pytest.mark.parametrize("name", registry())
def test_every_metric_has_an_example_among_the_tests(name):
    """Named in quotes; the two other origins are built from the same event."""
    base = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)

    assert f'"{base}"' in TESTS
