"""The command line of the server: what it makes of it, and one line for every mistake."""

from __future__ import annotations

import socket

import pytest

from harness.cli import serve
from reference_engine.errors import ReferenceEngineError
from reference_engine.server.__main__ import main, parse_arguments
from reference_engine.server.settings import ServerSettings, StartRule
from tests.builders.imports import without_torch

TINY = ["--random=tiny"]


def test_defaults_are_those_of_a_careful_server():
    """Loopback, no key, the profile for early sound, speech from the first stable token."""
    launch = parse_arguments(TINY)

    assert ServerSettings("random-tiny") == launch.settings
    assert ("ttfa", "cpu", "float32") == (launch.profile.name, launch.device, launch.dtype)
    assert StartRule.FIRST_TOKEN is launch.settings.start.rule


def test_a_gpu_runs_in_bfloat16_unless_told_otherwise():
    """As the checkpoints are stored."""
    assert "bfloat16" == parse_arguments([*TINY, "--device=cuda"]).dtype


def test_keys_of_the_profile_can_be_changed_one_by_one():
    """Nested keys by dots, values as YAML; the hash tells such a profile apart."""
    plain = parse_arguments(TINY).profile
    changed = parse_arguments(
        [*TINY, "--set=codec=redecode", "--set=pacing.max_lead_s=1.5",
         "--set=chunks={mode: fixed, ramp: [4]}"]
    ).profile  # fmt: skip

    assert ("redecode", 1.5, (4,)) == (
        changed.codec.value,
        changed.pacing.max_lead_s,
        changed.chunks.ramp,
    )
    assert plain.pacing.margin_ms == changed.pacing.margin_ms
    assert plain.hash != changed.hash


def test_the_key_comes_from_the_environment_alone(monkeypatch):
    """It is named on the command line, never written there."""
    monkeypatch.setenv("MY_ENGINE_KEY", "sk-1")

    assert "sk-1" == parse_arguments([*TINY, "--api-key-env=MY_ENGINE_KEY"]).settings.api_key


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give one of --checkpoint DIR and --random"),
        ([*TINY, "--checkpoint=x"], "give one of"),
        ([*TINY, "--profile=cpuu"], "did you mean 'cpu'"),
        ([*TINY, "--set=codec"], "expected KEY=VALUE"),
        ([*TINY, "--set=codecs=cached"], "did you mean 'codec'"),
        ([*TINY, "--set=codec={"], "not YAML"),
        ([*TINY, "--set=pacing=1", "--set=pacing.margin_ms=1"], "another --set"),
        ([*TINY, "--api-key-env=NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE is not set"),
        ([*TINY, "--port=70000"], "0..65535"),
        ([*TINY, "--drain-s=-1"], "--drain-s"),
        ([*TINY, "--start-max-wait-s=nan"], "--start-max-wait-s"),
        ([*TINY, "--threads=0"], "not in 1..1024"),
        ([*TINY, "--threads=99999"], "not in 1..1024"),
        ([*TINY, "--start-max-tokens=0"], "--start-max-tokens: 0"),
        ([*TINY, "--device=gpu"], "'gpu' is not cpu, cuda or cuda:N"),
        ([*TINY, "--port=here"], "--port: invalid int value: 'here'"),
        (["--random=huge"], "choose from 'tiny'"),
        ([*TINY, "--start=now"], "choose from 'first-token', 'clause', 'sentence'"),
        ([*TINY, "--cuda"], "unrecognized arguments: --cuda"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, said, capsys, monkeypatch):
    """Before anything heavy is loaded or a port taken."""
    without_torch(monkeypatch)
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    with pytest.raises(ReferenceEngineError, match=r".") as raised:
        parse_arguments(arguments)

    assert said in str(raised.value)
    assert 2 == main(arguments)
    assert 1 == capsys.readouterr().err.count("\n")


def test_a_folder_without_a_checkpoint_is_told_before_anything_is_loaded(
    tmp_path, capsys, monkeypatch
):
    """One line that names the missing file, and the exit code of a missing checkpoint."""
    without_torch(monkeypatch)

    assert 7 == main([f"--checkpoint={tmp_path / 'nowhere'}"])
    said = capsys.readouterr().err
    assert 1 == said.count("\n")
    assert "nowhere/config.json: not found" in said


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("no.such.host.invalid", "'no.such.host.invalid' is unknown"),
        ("", "--host: empty"),
        ("a..b", "not a name of a machine"),
        ("192.0.2.1", "cannot listen there"),
    ],
)
def test_a_host_that_cannot_be_listened_on_is_told_before_anything_is_loaded(
    host, said, capsys, monkeypatch
):
    """One line, exit code 2."""
    without_torch(monkeypatch)

    assert 2 == main([*TINY, f"--host={host}", "--port=0"])
    line = capsys.readouterr().err
    assert (1, True) == (line.count("\n"), said in line)


def test_a_taken_port_is_told_before_anything_is_loaded(capsys, monkeypatch):
    """With the port and the address in the line."""
    without_torch(monkeypatch)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        assert 2 == main([*TINY, f"--port={port}"])

    line = capsys.readouterr().err
    assert (1, True) == (line.count("\n"), f"port {port} on 127.0.0.1 is taken" in line)


def test_the_toolkits_command_hands_everything_on(monkeypatch):
    """`earwitness serve reference` becomes this server with the same arguments."""
    from typer.testing import CliRunner

    became: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(serve, "become_module", lambda *call: became.append(call))
    line = ["reference", "--random", "tiny", "--profile", "cpu", "--set", "codec=redecode"]
    done = CliRunner().invoke(serve.serve_app, [*line, "--start", "clause", "--threads", "1"])

    assert 0 == done.exit_code, done.output
    ((module, arguments),) = became
    launch = parse_arguments(arguments)
    assert "reference_engine.server" == module
    assert ("cpu", "redecode", 1) == (
        launch.profile.name,
        launch.profile.codec.value,
        launch.num_threads,
    )
    assert StartRule.CLAUSE is launch.settings.start.rule
