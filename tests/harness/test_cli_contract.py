"""`earwitness contract check` prints every mismatch between a live server and its contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from engines.errors import ContractError
from engines.fake import tone
from harness.cli import engines
from harness.errors import EngineNotReadyError, ScenarioError
from tests.builders.exchanges import wav
from tests.builders.servers import Reply, Request, ScriptedServer, chunked, ok, refusal

SPEECH = tone(400, sample_rate_hz=16_000)
HALVES = (SPEECH[:6400], SPEECH[6400:])


@pytest.fixture
def acme(tmp_path: Path) -> str:
    """A contract: 16 kHz mono samples or WAV, named by the server itself."""
    file = tmp_path / "acme.yaml"
    document = {
        "schema": 1,
        "name": "acme",
        "title": "Acme",
        "source": "here",
        "request": {
            "path": "/say",
            "body": {"text": {"from": "text"}, "seed": {"type": "integer"}},
        },
        "response": {
            "accept": {
                "audio/pcm": {"sample_format": "s16le"},
                "audio/wav": {"sample_format": "wav"},
            },
            "rate_header": "x-rate",
            "odd_byte": "error",
            "expect": {"sample_format": "s16le", "sample_rate_hz": 16_000, "channels": 1},
        },
        "probe": {
            "calls": {"who": "/who"},
            "ready": {"call": "who"},
            "identity": [{"call": "who", "pointer": "/name", "equals": "acme"}],
            "server_name": {"call": "who", "pointer": "/name"},
        },
    }
    file.write_text(yaml.safe_dump(document))
    return str(file)


def _run(*arguments: str) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    engines.register(app)
    return CliRunner().invoke(app, ["contract", "check", *arguments])


def _check(acme: str, speech: Reply, *arguments: str, who: str = "acme") -> Result:
    def script(request: Request) -> Reply:
        if request.path == "/who":
            return ok(json.dumps({"name": who}).encode(), content_type="application/json")
        return speech

    with ScriptedServer(script) as server:
        return _run(acme, "--base-url", server.base_url, *arguments)


def test_a_server_that_keeps_its_contract_is_told_so(acme: str):
    """Exit code 0, the server's name, and one line that says so."""
    result = _check(acme, chunked(HALVES))

    assert 0 == result.exit_code
    assert "acme" in result.stdout
    assert "nothing contradicts the contract" in result.stdout


@pytest.mark.parametrize(
    ("speech", "line"),
    [
        (chunked(HALVES, x_rate=24_000), "sample rate (Hz) is 24000, the contract says 16000"),
        (ok(SPEECH + b"\0"), "the audio ends inside a sample (1 bytes over)"),
        (ok(bytes(12_800)), "the audio is silent"),
        (ok(b""), "the reply is complete but holds no audio"),
        (ok(SPEECH, content_type="audio/mpeg"), "content type 'audio/mpeg', expected audio/pcm"),
        (
            ok(wav(SPEECH), content_type="audio/wav"),
            "audio format is wav, the contract says s16le",
        ),
        (
            ok(wav(SPEECH, sample_rate_hz=8000), content_type="audio/wav"),
            "sample rate (Hz) is 8000, the contract says 16000",
        ),
        (chunked(HALVES, is_complete=False), "the request ended as truncated"),
        (refusal(message="all lines are busy"), "refused: HTTP 429: all lines are busy"),
    ],
)
def test_each_mismatch_is_a_line_and_exit_code_1(acme: str, speech: Reply, line: str):
    """Format, rate, sound, completeness, refusal."""
    result = _check(acme, speech)

    assert line in " ".join(result.stdout.split())
    assert "MISMATCH" in result.stdout
    assert 1 == result.exit_code


def test_a_reply_in_one_piece_is_a_note_and_no_mismatch(acme: str):
    """It may be a short text."""
    result = _check(acme, ok(SPEECH))

    assert 0 == result.exit_code
    assert "the audio came in one piece" in result.stdout


def test_json_holds_what_the_table_shows(acme: str):
    """For scripts."""
    report = json.loads(_check(acme, chunked(HALVES, x_rate=24_000), "--json").stdout)

    assert ["sample rate (Hz) is 24000, the contract says 16000"] == report["mismatches"]
    assert ("ok", "acme", 2) == (report["outcome"], report["server"]["name"], report["num_chunks"])


def test_parameters_are_read_as_a_scenario_would_read_them(acme: str):
    """`seed=7` is a number; a wrong name is told with the closest."""
    assert 0 == _check(acme, chunked(HALVES), "--param", "seed=7").exit_code
    wrong = _check(acme, chunked(HALVES), "--param", "sed=7").exception
    assert isinstance(wrong, ContractError)
    assert "did you mean 'seed'?" in str(wrong)
    assert isinstance(_check(acme, ok(), "--param", "seed").exception, ScenarioError)


def test_an_address_that_repeats_the_route_is_told_in_the_mismatch():
    """Where a contract has something to ask it is found out earlier; this one answers anywhere."""
    with ScriptedServer(
        lambda request: ok(b"{}", status=200 if request.method == "GET" else 404)
    ) as server:
        result = _run("openai", "--base-url", f"{server.base_url}/v1", "--json")

    [mismatch] = json.loads(result.stdout)["mismatches"]
    assert 1 == result.exit_code
    assert "HTTP 404" in mismatch
    assert "drop /v1 from the base URL" in mismatch


def test_another_server_is_refused_before_it_is_asked_to_speak(acme: str):
    """With the exit code of a server that is not the right one."""
    result = _check(acme, chunked(HALVES), who="dummy")

    assert isinstance(result.exception, EngineNotReadyError)
    assert 4 == result.exception.exit_code
    assert "another server is there" in str(result.exception)
