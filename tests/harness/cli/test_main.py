"""How the program ends when its user, or the reader of its output, has had enough."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.cli import main as command

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("README.md", "harness", "engines", "analysis", "reference_engine", "scenarios", ".github")


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

    assert "Exit codes: 0 done or passed, 1 a gate or check failed" in " ".join(out.split())


def _named_commands(text: str) -> Iterator[list[str]]:
    """`earwitness word word` in any text, and the lines of a page's blocks that begin so."""
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S))
    words = r"earwitness ((?:[a-z][a-z-]*[ `\n])+)"
    for found in (*re.finditer(f"`{words}", text), *re.finditer(f"^{words}", blocks, re.M)):
        yield found.group(1).partition("\n")[0].rstrip("` ").split()


def _is_a_command(words: list[str]) -> bool:
    node: Any = typer.main.get_command(command.app)
    for word in words:
        if not hasattr(node, "commands"):
            return True  # the rest are arguments
        if word not in node.commands:
            return False
        node = node.commands[word]
    return True


def test_every_command_that_is_named_anywhere_exists():
    """In pages, messages, data files: nobody is told to type what is not there."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *ROOMS],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [p for p in listed.stdout.split() if p.endswith((".md", ".py", ".yaml", ".yml"))]
    named = {
        (path, " ".join(words))
        for path in paths
        for words in _named_commands((ROOT / path).read_text(encoding="utf-8"))
    }

    assert len(named) > 20
    assert [] == [each for each in sorted(named) if not _is_a_command(each[1].split())]
