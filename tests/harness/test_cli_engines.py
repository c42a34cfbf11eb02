"""`earwitness engines` says what can be measured and how far it was checked."""

from __future__ import annotations

import json

import typer
from typer.testing import CliRunner, Result

from engines import registry
from engines.errors import UnknownEngineError
from harness.cli import engines


def _run(*arguments: str) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    engines.register(app)
    return CliRunner().invoke(app, ["engines", *arguments])


def test_the_table_has_a_row_for_every_engine():
    """Name and state of checking are in each row."""
    rows = _run().stdout.splitlines()

    for name in registry.names():
        (row,) = [row for row in rows if row.split()[:1] == [name]]
        assert "spec only" in row or "seen live" in row


def test_json_holds_every_engine_with_its_capabilities():
    """For scripts: the same facts, by name."""
    cards = json.loads(_run("--json").stdout)

    assert list(registry.names()) == [card["name"] for card in cards]
    assert all(card["capabilities"]["formats"] for card in cards)


def test_one_engine_is_shown_with_its_parameters():
    """What a scenario may set, and where the facts come from."""
    shown = _run("nari").stdout

    assert "temperature" in shown
    assert "http://127.0.0.1:8000" in shown


def test_a_wrong_name_is_one_line_with_the_closest():
    """The error carries the exit code of bad arguments."""
    result = _run("narri")

    assert isinstance(result.exception, UnknownEngineError)
    assert 2 == result.exception.exit_code
    assert "did you mean 'nari'?" in str(result.exception)
