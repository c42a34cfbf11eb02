"""`earwitness checkpoint make | inspect`, as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli.main import app
from harness.errors import MissingExtraError
from reference_engine.errors import ArgumentError, CheckpointError
from tests.builders import checkpoints
from tests.builders.imports import without_torch

runner = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.make_micro(tmp_path_factory.mktemp("cli") / "micro")


def test_make_says_what_it_wrote_and_that_it_is_random(tmp_path: Path):
    """One object for scripts."""
    done = runner.invoke(
        app, ["checkpoint", "make", str(tmp_path / "made"), "--shape", "tiny", "--json"]
    )

    made = json.loads(done.stdout)
    assert made["random_weights"] is True
    assert {"tensors": 85, "parameters": 13_200_256} == made["model"]
    assert (tmp_path / "made" / "speech_tokenizer" / "model.safetensors").exists()


def test_inspect_prints_sizes_voices_and_the_label(folder: Path):
    """For people."""
    done = runner.invoke(app, ["checkpoint", "inspect", str(folder), "--values"])

    assert 0 == done.exit_code
    assert "weights are random numbers for tests" in done.stdout
    assert "85 tensors" in done.stdout
    assert "values finite" in done.stdout
    assert "voices: aiden, dylan" in done.stdout


def test_inspect_gives_scripts_the_same(folder: Path):
    """As one JSON object."""
    done = runner.invoke(app, ["checkpoint", "inspect", str(folder), "--json"])

    report = json.loads(done.stdout)
    assert 9 == len(report["voices"])
    assert 1920 == report["samples_per_codec_frame"]
    assert report["model"]["values_checked"] is False


@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["make", "{new}", "--shape", "huge"], ArgumentError, 2),
        (["make", "{here}"], ArgumentError, 2),
        (["inspect", "{new}"], CheckpointError, 7),
    ],
    ids=["unknown shape", "folder taken", "no checkpoint"],
)
def test_a_mistake_is_one_line_with_its_exit_code(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    kind: type[Exception],
    code: int,
):
    """Raised to the root command, which prints the line; nobody waits for torch to hear it."""
    filled = [a.format(new=tmp_path / "new", here=folder) for a in arguments]
    without_torch(monkeypatch)

    done = runner.invoke(app, ["checkpoint", *filled])

    assert isinstance(done.exception, kind)
    assert code == done.exception.exit_code
    assert "\n" not in str(done.exception)


def test_absent_libraries_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, folder: Path
):
    """Exit 7, not a traceback."""
    monkeypatch.setattr("harness.cli.extras.find_spec", lambda name: None)

    done = runner.invoke(app, ["checkpoint", "inspect", str(folder)])

    assert isinstance(done.exception, MissingExtraError)
    assert "pip install -e '.[reference]'" in str(done.exception)
