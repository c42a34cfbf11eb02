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


def test_one_engine_is_shown_with_choices_defaults_and_its_key():
    """All that is needed to call it, without opening the contract."""
    lines = [" ".join(line.split()) for line in _run("openai").stdout.splitlines()]

    assert 'response_format: string, default "pcm", one of pcm wav mp3 opus aac flac' in lines
    assert "speed: number, at least 0.25, at most 4" in lines
    assert "key OPENAI_API_KEY (sent as Authorization); needed at api.openai.com, elsewhere" in (
        " ".join(lines)
    )


def test_json_holds_parameters_and_key_of_one_engine():
    """The same for scripts; an adapter in code tells as much as a contract."""
    [openai] = json.loads(_run("openai", "--json").stdout)
    [deepgram] = json.loads(_run("deepgram-ws", "--json").stdout)
    parameters = {parameter["name"]: parameter for parameter in openai["parameters"]}

    assert ("pcm", "flac") == (
        parameters["response_format"]["default"],
        parameters["response_format"]["one_of"][-1],
    )
    assert (0.25, 4.0) == (parameters["speed"]["min"], parameters["speed"]["max"])
    assert {"Authorization": "OPENAI_API_KEY"} == openai["key"]["variables"]
    assert {"Authorization": "DEEPGRAM_API_KEY"} == deepgram["key"]["variables"]


def test_a_wrong_name_is_one_line_with_the_closest():
    """The error carries the exit code of bad arguments."""
    result = _run("narri")

    assert isinstance(result.exception, UnknownEngineError)
    assert 2 == result.exception.exit_code
    assert "did you mean 'nari'?" in str(result.exception)
