"""The ready-made CI files call commands that exist, with options that exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from harness.cli import main as command
from tests.builders.queues import poisson_queue
from tests.builders.sweeps import Reply, sweep

GITHUB = Path(__file__).resolve().parents[1] / ".github"
ACTION = yaml.safe_load((GITHUB / "actions/gate/action.yml").read_text(encoding="utf-8"))
WORKFLOW = yaml.safe_load((GITHUB / "workflows/gate.yml").read_text(encoding="utf-8"))
MEASURE, JUDGE = (step["run"] for step in ACTION["runs"]["steps"])

STEPS = WORKFLOW["jobs"]["listen"]["steps"]
(BASE,) = [step["run"] for step in STEPS if step.get("name") == "Measure the base"]

# A stand-in for the program: says how it was called, and exits as it is told to for these rules.
FAKE = """#!/bin/sh
echo "$@" >> "$CALLS"
[ "$1" = gate ] || exit 0
case "$4" in
  *no-regression*) exit "$REGRESSION_CODE" ;;
  *) exit "$GATE_CODE" ;;
esac
"""


def _calls(script: str) -> list[list[str]]:
    joined = script.replace("\\\n", " ")
    found = re.findall(r"^\s*(?:\S*/)?(earwitness .*?)(?: &| \|\|.*)?$", joined, re.MULTILINE)
    return [shlex.split(call)[1:] for call in found]


def _options(path: list[str]) -> set[str]:
    node: Any = typer.main.get_command(command.app)
    for word in path:
        node = node.commands[word]
    return {option for param in node.params for option in param.opts}


@pytest.mark.parametrize("call", [*_calls(MEASURE), *_calls(JUDGE), *_calls(BASE)], ids=" ".join)
def test_every_call_names_a_command_and_options_that_exist(call):
    """The action cannot fall behind the command line."""
    path = call[:2] if call[0] == "serve" else call[:1]

    assert set() == {word for word in call if word.startswith("--")} - _options(path)


def test_workflow_passes_only_inputs_that_the_action_has():
    """And uses the action of this repository."""
    (step,) = [s for s in STEPS if "gate" in s.get("uses", "")]

    assert "./.github/actions/gate" == step["uses"]
    assert set(step["with"]) <= set(ACTION["inputs"])


def test_base_and_request_are_put_under_the_same_load():
    """Otherwise the two runs are not comparable; the mode and the noise of the voice as well."""
    inputs = {name: entry["default"] for name, entry in ACTION["inputs"].items()}
    (run,) = [call for call in _calls(BASE) if call[0] == "run"]
    (serve,) = [call for call in _calls(BASE) if call[0] == "serve"]

    assert inputs["scenario"] == run[1]
    for name in ("rates", "seeds", "duration"):
        assert inputs[name] == run[run.index(f"--{name}") + 1]
    assert inputs["mode"] == serve[serve.index("--mode") + 1]
    assert "0" == serve[serve.index("--noise") + 1]


@pytest.mark.parametrize(
    ("gate_code", "regression_code", "inconclusive", "code", "verdict"),
    [
        (0, 0, "fail", 0, "pass"),
        (1, 0, "fail", 1, "fail"),
        (0, 1, "fail", 1, "fail"),
        (3, 0, "fail", 3, "inconclusive"),
        (0, 3, "fail", 3, "inconclusive"),
        (0, 3, "warn", 0, "inconclusive"),
        (1, 3, "warn", 1, "fail"),
        (3, 1, "warn", 1, "fail"),
        (6, 0, "warn", 6, None),
    ],
)
def test_job_ends_as_its_worst_gate_says(
    tmp_path, gate_code, regression_code, inconclusive, code, verdict
):
    """Only an inconclusive answer may be made a warning, and it never hides a failure."""
    program = tmp_path / "earwitness"
    program.write_text(FAKE)
    program.chmod(0o755)
    outputs = tmp_path / "outputs"
    outputs.touch()
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "GATE_CODE": str(gate_code),
        "REGRESSION_CODE": str(regression_code),
        "INCONCLUSIVE": inconclusive,
        "RULES": "gates/voice.yaml no-regression",
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
    options = "--against base.json --any-machine --junit"
    assert f"gate run --rules gates/voice.yaml {options} run/gate-voice.xml" in called
    assert (verdict is not None) == (f"gate run --rules no-regression {options}" in called)


def test_slow_engine_fails_the_job_where_inconclusive_only_warns(tmp_path):
    """The real gate on 88 requests of a busy queue, p95 far above 500 ms: fail, not a warning."""
    waits = 300 * poisson_queue(0.8, 1, 88, seed=3)[0]
    folder = sweep(tmp_path, {"tts": lambda rate, seed: [Reply(float(wait)) for wait in waits]})
    program = tmp_path / "earwitness"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m harness.cli "$@"\n')
    program.chmod(0o755)
    outputs = tmp_path / "outputs"
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(GITHUB.parent),
        "RULES": "voice-agent", "BASELINE": "", "ANY_MACHINE": "false", "INCONCLUSIVE": "warn",
        "OUT": str(folder), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_OUTPUT": str(outputs),
    }  # fmt: skip
    ended = subprocess.run(["bash", "-c", JUDGE], env=environment, check=False, timeout=60)

    assert (1, "verdict=fail\n") == (ended.returncode, outputs.read_text())
    assert "| FAIL | tts | 2/s | p95 audible_ttfa at most 500 ms |" in (
        (tmp_path / "summary").read_text()
    )
