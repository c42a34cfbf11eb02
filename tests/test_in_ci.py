"""Runs of the real voice are recorded and judged by the commands that the README gives.

The chapter "In CI" is run line by line as it stands, with less load so that it takes seconds; then
the other mode under the same load, and a run that is interrupted. Six requests on a machine that
may be busy say nothing about speed, so only what holds whatever they took is asserted here: that a
slower run fails and is told as slower is tested on runs of known latencies
(tests/harness/cli/test_judge.py).
"""

from __future__ import annotations

import io
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.cli import main as command
from tests.builders.embedded import CACHE_FOLDER, embedded_server, stop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

README = Path(__file__).resolve().parents[1] / "README.md"
# The last of two equal options counts, so these shorten what the README says. Whole sentences of
# 100 characters, so that it shows whether a mode waits for their end.
LITTLE_LOAD = (
    "--rates", "2", "--seeds", "2", "--duration", "3", "--set", "phases.warmup_s=0",
    "--set", "prompts.tags=[wer,medium]", "--no-report",
)  # fmt: skip
# Any load is right: the machine may be busy.
ANY_LOAD = "schema: 1\nname: test\nrequire: {load: any}\nrules:\n"
READY_S = 60.0
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Answer:
    """How one command line ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Ci:
    """A working folder with a run of each mode, and what the README's commands answered."""

    folder: Path
    answers: dict[str, Answer] = field(default_factory=dict)

    def ask(self, *arguments: str) -> Answer:
        """Run a judging command in this process, which has everything heavy imported already."""
        out, err, code = io.StringIO(), io.StringIO(), 0
        with (
            chdir(self.folder),
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            patch.setattr(sys, "argv", ["earwitness", *arguments])
            try:
                command.main()
            except SystemExit as ended:
                code = int(ended.code or 0)
        return Answer(code, out.getvalue(), err.getvalue())

    def load(self, *arguments: str) -> Answer:
        """Run a loading command as a process of its own, undisturbed by this one."""
        ran = subprocess.run(
            [sys.executable, "-m", "harness.cli", *arguments, *LITTLE_LOAD],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return Answer(ran.returncode, ran.stdout, ran.stderr)

    def gate(self, run: str, rule: str, *options: str) -> Answer:
        """Judge a run by one rule."""
        rules = self.folder / "rules.yaml"
        rules.write_text(f"{ANY_LOAD}  - {{{rule}}}\n")
        return self.ask("gate", run, "--rules", str(rules), *options)

    def is_invalid(self, run: str) -> bool:
        """Whether the client was too disturbed: the one excuse for an inconclusive answer."""
        found = json.loads((self.folder / run / "derived" / "metrics.json").read_text())
        return any(point["validity"]["verdict"] == "invalid" for point in found["points"])


def chapter() -> list[list[str]]:
    """The command lines of "In CI", without their comments."""
    text = README.read_text(encoding="utf-8").split("\n## In CI\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert {"earwitness"} == {line[0] for line in lines}
    return [line[1:] for line in lines]


SERVE, RUN, *JUDGE = chapter()
NOW = RUN[RUN.index("-o") + 1]


@pytest.fixture(scope="module")
def ci(tmp_path_factory: pytest.TempPathFactory) -> Ci:
    """Every command of the chapter, in its order; the same load on the other mode; an interrupt."""
    made = Ci(tmp_path_factory.mktemp("ci"))
    with embedded_server(mode="sentence") as sentence, _served_as_written() as stream:
        made.answers["run"] = made.load(*RUN, "--base-url", stream)
        for line in JUDGE:
            made.answers[_title(line)] = made.ask(*line)
        worse = made.load("run", "quick", "--base-url", sentence, "-o", "worse")
        assert worse.code in (0, 3), worse.err
        _interrupt_a_run(made.folder, stream)
    return made


@contextmanager
def _served_as_written() -> Iterator[str]:
    """The server as the README starts it, on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *SERVE, "--port", "0", "--stop-on-stdin-eof"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "EARWITNESS_CACHE": str(CACHE_FOLDER)},
    )  # fmt: skip
    try:
        has_line, _, _ = select.select([process.stdout], [], [], READY_S)
        assert has_line, f"{SERVE} was not ready within {READY_S} s"
        yield json.loads(process.stdout.readline())["url"]
    finally:
        stop(process)


def _interrupt_a_run(folder: Path, base_url: str) -> None:
    """Ctrl-C as soon as the first point has begun."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", "run", "quick", "--base-url", base_url,
         *LITTLE_LOAD, "-o", "cut"],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("point 1 of 1"):
            process.send_signal(signal.SIGINT)
    assert INTERRUPTED == process.wait(timeout=60), said
    process.stderr.close()


def _title(line: list[str]) -> str:
    """A command and its rules: `gate voice-agent`."""
    return " ".join(
        [line[0], *line[line.index("--rules") + 1 :][:1]] if "--rules" in line else line[:1]
    )


# -- the chapter ----------------------------------------------------------------------------------


def test_the_run_of_the_chapter_is_recorded(ci: Ci):
    """Exit code 0, or 3 where the client itself was too disturbed; the folder is complete."""
    assert (3 if ci.is_invalid(NOW) else 0) == ci.answers["run"].code, ci.answers["run"].err
    assert "complete" == json.loads((ci.folder / NOW / "run.json").read_text())["status"]


def test_too_few_requests_cannot_pass_the_absolute_gate(ci: Ci):
    """A p95 needs 72 of them, the shortened run has 6: never exit code 0."""
    answer = ci.answers["gate voice-agent"]

    assert answer.code in (1, 3), answer.err
    assert " of 6) of requests above 500 ms" in answer.out


def test_the_absolute_gate_leaves_junit_and_a_summary(ci: Ci):
    """What the chapter's command names, for a CI to show."""
    suite = ElementTree.parse(ci.folder / "gate.xml").getroot()

    assert int(suite.get("tests")) > 0
    assert "## Gate voice-agent: " in (ci.folder / "gate.md").read_text()


def test_the_baseline_of_the_chapter_is_written(ci: Ci):
    """One file."""
    assert 0 == ci.answers["baseline"].code, ci.answers["baseline"].err
    assert (ci.folder / "baseline.json").is_file()


def test_a_run_is_no_regression_against_itself(ci: Ci):
    """Inconclusive for want of requests, but nothing is worse than the base."""
    answer = ci.answers["gate no-regression"]
    held_against = [line for line in answer.out.splitlines() if "above the base" in line]

    assert 4 == len(held_against), answer.out
    assert not any("FAIL" in line for line in held_against), answer.out
    assert 0 != answer.code


# -- the two modes --------------------------------------------------------------------------------


def test_compare_finds_the_same_difference_from_either_side(ci: Ci):
    """Whoever comes first in the command; only the sign is another."""
    answers = [ci.ask("compare", *runs, "--json") for runs in (("worse", NOW), (NOW, "worse"))]
    assert [0, 0] == [answer.code for answer in answers], answers[0].err
    there, back = (
        json.loads(answer.out)["rates"][0]["differences"][0]["difference"]["value"]
        for answer in answers
    )

    assert 0 != there
    assert -there == pytest.approx(back)


@pytest.mark.parametrize(
    ("rule", "code", "word"),
    [
        ("metric: audible_ttfa, statistic: p50, max: 60000, evidence: value", 0, "pass"),
        ("metric: audible_ttfa, statistic: p50, max: 1, evidence: value", 1, "FAIL"),
        ("metric: audible_ttfa, statistic: p95, max: 60000", 3, "inconclusive"),
        ("metric: wer, max: 0.1", 3, "inconclusive"),
    ],
)
def test_gate_exits_by_its_verdict(ci: Ci, rule: str, code: int, word: str):
    """A minute is met, a millisecond is not, 6 requests show no p95, nobody heard any words."""
    answer = ci.gate("worse", rule)
    expected = (3, "inconclusive") if ci.is_invalid("worse") else (code, word)

    assert expected[0] == answer.code, answer.err
    assert answer.out.startswith(f"gate test: {expected[1]}")


@pytest.mark.parametrize("run", ["now", "worse"])
def test_every_form_of_an_answer_says_the_same(ci: Ci, run: str):
    """Exit code, JUnit and summary of a regression gate; a run against itself is no regression."""
    rule = "metric: audible_ttfa, statistic: p50, max_increase_percent: 10"
    folder = {"now": NOW, "worse": "worse"}[run]
    junit, summary = f"{run}.xml", f"{run}.md"
    answer = ci.gate(
        folder, rule, "--against", "baseline.json", "--junit", junit, "--summary", summary
    )
    failures = int(ElementTree.parse(ci.folder / junit).getroot().get("failures"))
    word = {0: "PASS", 1: "FAIL", 3: "INCONCLUSIVE"}[answer.code]

    assert (answer.code == 1) == (failures > 0), answer.err
    assert f"## gate test: {word}".casefold() == (
        (ci.folder / summary).read_text().splitlines()[0].casefold()
    )
    if run == "now":
        assert (3 if ci.is_invalid(NOW) else 0) == answer.code


def test_capacity_is_read_off_the_finished_run_without_new_load(ci: Ci):
    """Nothing is heard within a millisecond, so the one rate of the run is too high."""
    (ci.folder / "slo.yaml").write_text("schema: 1\naudible_ttfa_p95_ms: 1\n")
    before = sorted(path.name for path in ci.folder.iterdir())
    answer = ci.ask("capacity", NOW, "--slo", "slo.yaml")

    assert "p95 audible TTFA ≤ 1 ms" in answer.out, answer.err
    assert "capacity below 2 requests/s" in answer.out or ci.is_invalid(NOW)
    assert before == sorted(path.name for path in ci.folder.iterdir())


def test_an_interrupted_run_cannot_pass(ci: Ci):
    """Its point was cut short and is invalid, whatever its figures are."""
    answer = ci.gate("cut", "metric: failure_rate, max: 1, evidence: value")

    assert 3 == answer.code, answer.err
    assert "invalid" in answer.out


def test_an_interrupted_run_makes_no_baseline(ci: Ci):
    """Nothing is to be held against it."""
    answer = ci.ask("baseline", "cut", "-o", "cut.json")

    assert (6, False) == (answer.code, (ci.folder / "cut.json").exists()), answer.err
    assert "only a complete run can be a baseline" in answer.err
