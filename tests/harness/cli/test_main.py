"""How the program ends when its user, or the reader of its output, has had enough."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "arguments", [["schedule", "quick"], ["engines"], ["schedule", "quick", "--json"]]
)
def test_a_reader_that_goes_away_is_no_verdict(arguments: list[str]):
    """`| head`: the exit code of a closed pipe, which is none of a gate's, and not a word."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        ended = subprocess.run(
            [sys.executable, "-m", "harness.cli", *arguments],
            stdout=gone, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip

    assert (141, b"") == (ended.returncode, ended.stderr)


def test_ctrl_c_in_any_command_is_exit_130(earwitness, monkeypatch: pytest.MonkeyPatch):
    """One line, whatever the command was about."""

    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.cli.schedule_command.show_schedule", interrupted)

    assert (130, "", "earwitness: interrupted\n") == earwitness("schedule", "quick")


def test_help_says_what_exit_codes_mean(earwitness):
    """For whoever writes a script."""
    _, out, _ = earwitness("--help")

    assert "Exit codes: 0 done or passed, 1 failed a gate" in " ".join(out.split())
