"""`earwitness report` and `view`: what is printed where, and every exit code."""

from __future__ import annotations

import dataclasses
import json

import pytest

from analysis.playback import IMMEDIATE, buffer_ms, delay_ms
from harness.cli.report_command import parse_formats, parse_start
from tests.builders.reports import STREAM, report_run


@pytest.fixture
def folder(tmp_path):
    """A small run."""
    return report_run(tmp_path, engines={"one": STREAM}, rates=(1.0,), num_requests=6)


def test_report_prints_the_summary_and_names_its_files(earwitness, folder):
    """Results on stdout, notices on stderr."""
    code, out, err = earwitness("report", folder, "--format", "md,csv")

    assert 0 == code
    assert "Can the numbers be trusted?" in out
    assert f"wrote {folder / 'report.md'}" in err


def test_json_on_stdout_is_metrics_json(earwitness, folder):
    """And nothing beside it."""
    code, out, _ = earwitness("report", folder, "-f", "none", "--json")

    assert (0, json.loads((folder / "derived" / "metrics.json").read_text())) == (
        code,
        json.loads(out),
    )


def test_json_of_two_runs_holds_both_and_what_they_come_to(earwitness, tmp_path):
    """One document for a script."""
    slow = dataclasses.replace(STREAM, first_ms=400.0)
    folders = [
        report_run(tmp_path, name=name, engines={"tts": shape}, rates=(1.0,), num_requests=8)
        for name, shape in (("fast", STREAM), ("slow", slow))
    ]
    code, out, _ = earwitness("report", *folders, "-o", tmp_path / "c.html", "--json")
    found = json.loads(out)

    assert (0, 2, 1) == (code, len(found["runs"]), len(found["comparison"]["summary"]))


def test_start_rule_reaches_the_figures(earwitness, folder):
    """Another player, other figures, and the rule beside them."""
    _, out, _ = earwitness("report", folder, "-f", "none", "--start", "buffer_ms=200", "--json")

    assert "buffer_ms 200" == json.loads(out)["start_rule"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--format", "pdf"), 2, "'pdf' is not one of"),
        (("--start", "later"), 2, "'later' is no start rule"),
        (("--slo", "nowhere.yaml"), 2, "nowhere.yaml"),
    ],
)
def test_wrong_option_is_one_line(earwitness, folder, arguments, code, words):
    """What was found, what was expected."""
    found, _, err = earwitness("report", folder, *arguments)

    assert (code, 1, True) == (found, err.count("\n"), words in err)


def test_folder_that_is_no_run_is_exit_code_6(earwitness, tmp_path):
    """One line."""
    code, out, err = earwitness("report", tmp_path)

    assert (6, "", 1) == (code, out, err.count("\n"))


def test_missing_weights_end_with_7_only_when_words_were_asked_for(
    earwitness, folder, tmp_path, monkeypatch
):
    """Without --wer the word error rate is null and the report is written."""
    nowhere = tmp_path / "nowhere.pt"

    assert 0 == earwitness("report", folder, "-f", "none", "--whisper-weights", nowhere)[0]
    code, _, err = earwitness("report", folder, "-f", "none", "--wer", "--whisper-weights", nowhere)
    assert (7, True) == (code, "no such file of Whisper weights" in err)


def test_view_of_no_folder_is_one_line(earwitness, tmp_path):
    """Before any socket is opened."""
    code, _, err = earwitness("view", tmp_path / "none")

    assert (2, 1) == (code, err.count("\n"))


@pytest.mark.parametrize(
    ("text", "rule"),
    [("immediate", IMMEDIATE), ("delay_ms=50", delay_ms(50)), ("buffer_ms=200", buffer_ms(200))],
)
def test_start_rules_are_read_as_they_are_printed(text, rule):
    """With `=` for the blank."""
    assert rule == parse_start(text)


def test_formats_are_a_list_or_none():
    """Blanks do not matter."""
    assert (("html", "md"), ()) == (parse_formats("html, md"), parse_formats("none"))
