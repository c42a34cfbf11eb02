"""`earwitness check` states facts about this machine, one a line."""

from __future__ import annotations

import importlib.util
import json

import typer
from typer.testing import CliRunner

from harness.cli import check


def app() -> typer.Typer:
    """The command alone."""
    built = typer.Typer()
    check.register(built)
    return built


def test_missing_extra_is_named_with_the_command_that_installs_it(monkeypatch):
    """An absent module makes its extra absent, with what to type."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "av" else real(name)
    )

    found = {finding.name: finding for finding in check.findings()}

    assert found["codecs"].is_present is False
    assert (
        found["codecs"].remedy
        == "missing av: pip install -e '.[codecs]' in the folder of earwitness"
    )


def test_every_finding_is_printed_as_json():
    """Scripts read the same facts that people do."""
    printed = CliRunner().invoke(app(), ["--json"])

    assert [finding.name for finding in check.findings()] == [
        row["name"] for row in json.loads(printed.stdout)
    ]


def test_kernel_stamps_are_reported_as_they_were_found(monkeypatch):
    """Without kernel stamps the report says who stamps instead."""
    monkeypatch.setattr("harness.wire.stamping.kernel_stamps_work", lambda: False)

    printed = CliRunner().invoke(app(), [])

    assert (
        "no   kernel receive stamps  chunk arrivals are stamped by this program" in printed.stdout
    )
