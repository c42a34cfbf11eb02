"""`earwitness accuracy`: what it refuses, what it prints, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis.accuracy import Accuracy, Bar
from analysis.accuracy.figures import (
    ClientTiming,
    Identity,
    PlaybackAccuracy,
    ReportAccuracy,
    Spread,
    StampAccuracy,
)
from harness.cli import accuracy_command
from harness.cli.accuracy_command import AccuracyPoint
from harness.cli.main import app
from harness.errors import MissingExtraError, RunFolderError, ScenarioError
from harness.records import StampSource
from harness.truth.noise import HostNoise
from harness.truth.trial import Transport
from tests.builders.truth import short_scripts

SOME = Spread(3, 0.1, 0.2, 0.3)
ACCURACY = Accuracy(
    stamp_source=StampSource.KERNEL,
    conversion_us=0.1,
    stamps=StampAccuracy(3, 3, 3, 0, 0, 0, 0, SOME, SOME, SOME, Spread(0, None, None, None)),
    timing=ClientTiming(SOME, SOME, 4, 4, SOME, 0),
    report=ReportAccuracy({"ttfb": SOME}, {"tone": 0.0}, 0.0),
    playback=PlaybackAccuracy(2, 1, 1, 0, 0, 0, 0, 1, 0, SOME),
    identity=Identity(3, 0, 3, 0, ()),
)
MET, MISSED = Bar("lag", "ms", 0.5, 1.0), Bar("lag", "ms", 7.0, 1.0)


def point(*bars: Bar, trouble: str | None = None, **fields: object) -> AccuracyPoint:
    return replace(
        AccuracyPoint(Transport.HTTP, 10, 1, trouble, ACCURACY, bars or (MET,)), **fields
    )


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Let every try give the next of these points; returns the list of tries made."""

    def give(*points: AccuracyPoint) -> list[int]:
        turns: list[int] = []

        def attempt(_bench: object, _transport: object, _streams: int, turn: int) -> AccuracyPoint:
            turns.append(turn)
            return replace(points[min(len(turns), len(points)) - 1], num_tries=turn)

        monkeypatch.setattr(accuracy_command, "_try", attempt)
        monkeypatch.setattr(
            accuracy_command, "probe_noise", lambda s, cpu: HostNoise(cpu, s, 1, 0, 0.3, 0.001)
        )
        return turns

    return give


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["accuracy", "--transports", "http", *arguments])


def test_lines_that_hold_end_with_0(tried):
    """And the figures stand beside their limits."""
    tried(point(MET))
    ran = invoke("--streams", "10")

    assert 0 == ran.exit_code
    assert "0.5 ms" in ran.stdout
    assert "(<= 1 ms)" in ran.stdout
    assert "http, 10 in flight: 3 replies" in ran.stdout


def test_line_that_does_not_hold_ends_with_1(tried):
    """On a quiet host there is no excuse, and no second try."""
    turns = tried(point(MISSED))
    ran = invoke("--streams", "10")

    assert 1 == ran.exit_code
    assert "Not met, at 1 of 1 point:" in ran.stdout
    assert "lag 7 ms, more than 1 ms" in ran.stdout
    assert [1] == turns


def test_point_that_the_host_spoiled_is_tried_again_and_said_to_be(tried):
    """Twice spoiled, then good."""
    spoiled = point(MISSED, trouble="the client waited for a CPU 30% of the time")
    turns = tried(spoiled, spoiled, point(MET))
    ran = invoke("--streams", "10", "--tries", "5")

    assert 0 == ran.exit_code
    assert [1, 2, 3] == turns
    assert "try 3; the ones before were spoiled by the host" in ran.stdout
    assert "spoiled by the host: the client waited" in ran.stderr


def test_host_that_stays_noisy_ends_inconclusive(tried):
    """3: neither right nor wrong can be shown here."""
    tried(point(MISSED, trouble="the hypervisor took 9% of the CPU"))
    ran = invoke("--streams", "10", "--tries", "2")

    assert 3 == ran.exit_code
    assert "host: the hypervisor took 9%" in ran.stdout


def test_json_holds_every_figure_and_line(tried):
    """For scripts: one document on stdout."""
    tried(point(MET))
    said = json.loads(invoke("--streams", "10,20", "--json").stdout)

    assert [10, 10] == [each["streams"] for each in said["points"]]
    assert said["points"][0]["bars"] == [
        {"name": "lag", "unit": "ms", "value": 0.5, "limit": 1.0, "is_upper": True, "is_met": True}
    ]
    assert 0.2 == said["points"][0]["accuracy"]["report"]["error_ms"]["ttfb"]["p99"]
    assert 0.001 == said["host_noise"][0]["lost_share"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--streams", "ten"), "--streams: 'ten' is not a list of numbers"),
        (("--streams", "0"), "--streams: '0' is not"),
        (("--transports", "htp"), "'htp' is not one of all, http.*did you mean 'http'"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(tried, arguments, said):
    """And nothing is run."""
    turns = tried(point(MET))
    ran = CliRunner().invoke(app, ["accuracy", *arguments])

    assert isinstance(ran.exception, ScenarioError)
    with pytest.raises(ScenarioError, match=said):
        raise ran.exception
    assert [] == turns


def test_folder_that_exists_is_not_touched(tried, tmp_path: Path):
    """As with any run."""
    tried(point(MET))

    assert isinstance(invoke("-o", str(tmp_path)).exception, RunFolderError)


def test_all_transports_without_certificates_leave_tls_out_by_name(tried, monkeypatch):
    """What is missing is said, the rest is measured."""

    def none(_folder: Path) -> None:
        raise MissingExtraError("pip install -e '.[accuracy]'")

    monkeypatch.setattr(accuracy_command, "write_certificate", none)
    turns = tried(point(MET))
    ran = CliRunner().invoke(app, ["accuracy", "--streams", "10"])

    assert 3 == len(turns)
    assert "https is left out: pip install" in ran.stderr
    assert "wss is left out" in ran.stderr


@pytest.mark.slow
def test_real_point_is_measured_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A server process, a run, the truth: one second, with short replies."""
    monkeypatch.setattr(accuracy_command, "accuracy_scripts", short_scripts)
    monkeypatch.setattr(accuracy_command, "accuracy_shares", dict)
    out = tmp_path / "kept"
    ran = invoke("--streams", "20", "--seconds", "1", "--tries", "1", "--json", "-o", str(out))
    said = json.loads(ran.stdout)["points"][0]
    lines = {bar["name"]: bar["value"] for bar in said["bars"]}

    assert 1.0 == said["coverage"]
    assert (0, 0, 0) == (
        lines["not accounted for"], lines["underruns wrong"], lines["bytes, endings wrong"]
    )  # fmt: skip
    assert (out / "http-20-try1" / "run" / "run.json").exists()
    assert (out / "http-20-try1" / "truth.json").exists()
