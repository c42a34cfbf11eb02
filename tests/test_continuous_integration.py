"""The ready-made CI files call commands that exist, with options that exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from harness.cli import main as command

GITHUB = Path(__file__).resolve().parents[1] / ".github"
ACTION = yaml.safe_load((GITHUB / "actions/gate/action.yml").read_text(encoding="utf-8"))
WORKFLOW = yaml.safe_load((GITHUB / "workflows/gate.yml").read_text(encoding="utf-8"))
MEASURE, JUDGE = (step["run"] for step in ACTION["runs"]["steps"])

# A stand-in for the program: says how it was called, and exits as it is told to.
FAKE = '#!/bin/sh\necho "$@" >> "$CALLS"\n[ "$1" = gate ] && exit "$GATE_CODE"\nexit 0\n'


def _calls(script: str) -> list[list[str]]:
    joined = script.replace("\\\n", " ")
    found = re.findall(r"^\s*(earwitness .*?)(?: &| \|\|.*)?$", joined, re.MULTILINE)
    return [shlex.split(call)[1:] for call in found]


def _options(path: list[str]) -> set[str]:
    node: Any = typer.main.get_command(command.app)
    for word in path:
        node = node.commands[word]
    return {option for param in node.params for option in param.opts}


@pytest.mark.parametrize("call", [*_calls(MEASURE), *_calls(JUDGE)], ids=" ".join)
def test_every_call_names_a_command_and_options_that_exist(call):
    """The action cannot fall behind the command line."""
    path = call[:2] if call[0] == "serve" else call[:1]

    assert set() == {word for word in call if word.startswith("--")} - _options(path)


def test_workflow_passes_only_inputs_that_the_action_has():
    """And uses the action of this repository."""
    (step,) = [s for s in WORKFLOW["jobs"]["listen"]["steps"] if "gate" in s.get("uses", "")]

    assert "./.github/actions/gate" == step["uses"]
    assert set(step["with"]) <= set(ACTION["inputs"])


@pytest.mark.parametrize(
    ("gate_code", "inconclusive", "code", "verdict"),
    [
        (0, "fail", 0, "pass"),
        (1, "fail", 1, "fail"),
        (3, "fail", 3, "inconclusive"),
        (3, "warn", 0, "inconclusive"),
        (1, "warn", 1, "fail"),
        (6, "warn", 6, None),
    ],
)
def test_job_ends_as_the_gate_says(tmp_path, gate_code, inconclusive, code, verdict):
    """Only an inconclusive answer may be made a warning."""
    program = tmp_path / "earwitness"
    program.write_text(FAKE)
    program.chmod(0o755)
    outputs = tmp_path / "outputs"
    outputs.touch()
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "GATE_CODE": str(gate_code),
        "INCONCLUSIVE": inconclusive,
        "RULES": "voice-agent",
        "BASELINE": "base.json",
        "ANY_MACHINE": "true",
        "OUT": "run",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_OUTPUT": str(outputs),
    }
    ended = subprocess.run(["bash", "-c", JUDGE], env=environment, check=False, timeout=30)

    assert code == ended.returncode
    assert ("" if verdict is None else f"verdict={verdict}\n") == outputs.read_text()
    called = (tmp_path / "calls").read_text()
    assert "gate run --rules voice-agent --against base.json --any-machine --junit" in called
