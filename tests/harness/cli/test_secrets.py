"""A secret is shown to the server it is meant for, and to nobody else: not even to the reader."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from harness.cli import main as command
from tests.builders.servers import Request, ScriptedServer, chunked, ok
from tests.builders.voices import SPOKEN, short_run_file, voice

KEY = "zq7Wv-not-shaped-like-a-key"
TOKEN = "t0k-of-the-query-string"

# A contract of the user's own, whose key is in the environment.
CONTRACT = {
    "schema": 1,
    "name": "mine",
    "title": "A server of our own",
    "source": "written for this test",
    "base_url": "http://127.0.0.1:9",
    "auth": {
        "hosts": ["127.0.0.1"],
        "headers": {"X-Mine": {"env": "EARWITNESS_TEST_KEY"}},
    },
    "request": {
        "path": "/v1/audio/speech",
        "query": {"access_token": {"type": "string"}},
        "body": {"input": {"from": "text"}},
    },
    "response": {
        "accept": {"audio/pcm": {"sample_format": "s16le"}},
        "assume": {"sample_format": "s16le", "sample_rate_hz": 22050, "channels": 1},
        "errors": ["/error/message"],
        "facts": {"request_id": "x-request-id"},
    },
    "probe": {
        "calls": {"models": "/v1/models"},
        "models": {"call": "models", "pointer": "/data/*/id"},
    },
}


def _speak(request: Request):
    """One reply after the other: an error, or audio; both repeat all that the request held."""
    echo = f"{request.header('x-mine')} {request.path} {TOKEN} {KEY}"
    if len(request.body) % 2:
        body = f'{{"error": {{"message": "not for you: {echo}"}}}}'.encode()
        return ok(body, status=500, content_type="application/json", x_echo=echo)
    return chunked(
        [SPOKEN], x_request_id=echo, server_timing=f'k;desc="{KEY} {TOKEN}"', x_echo=echo
    )


def _texts_in(folder: Path) -> dict[str, str]:
    """What every file of a run folder says, tables as their cells."""
    texts = {}
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            texts[str(path.relative_to(folder))] = pd.read_parquet(path).to_json()
        elif path.is_file():
            texts[str(path.relative_to(folder))] = path.read_bytes().decode("utf-8", "replace")
    return texts


def _run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base_url: str, *, ready_s: float = 10.0
) -> Path:
    """A run of that contract against this address, with its report; the folder."""
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(CONTRACT))
    engine = {
        "contract": str(tmp_path / "mine.yaml"),
        "base_url": base_url,
        "params": {"access_token": TOKEN},
    }
    timeouts = {"ready_s": ready_s, "total_s": 5.0}
    scenario = short_run_file(tmp_path, "", engines=[engine], timeouts=timeouts)
    folder = tmp_path / "run"
    words = ["run", str(scenario), "-o", str(folder), "--allow-contract-env"]
    monkeypatch.setattr(sys, "argv", ["earwitness", *words])
    monkeypatch.setenv("EARWITNESS_TEST_KEY", KEY)
    with contextlib.suppress(SystemExit):
        command.main()
    return folder


@pytest.mark.slow
def test_a_key_is_shown_to_its_server_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """From the environment or a parameter, echoed in bodies, headers and lists of models: it is in
    no file of the folder, its report included, and on neither stream."""
    models = {"data": [{"id": f"m {KEY} {TOKEN}", "owned_by": KEY}]}
    with ScriptedServer(voice(_speak, models=models)) as server:
        folder = _run(tmp_path, monkeypatch, server.base_url)
    printed = capfd.readouterr()

    places = {**_texts_in(folder), "stdout": printed.out, "stderr": printed.err}
    sent = [r for r in server.requests if r.method == "POST"]
    assert {KEY} == {r.header("x-mine") for r in sent}
    assert all(TOKEN in r.path for r in sent)
    assert {"report.html", "report.md", "run.json", "requests.parquet"} <= set(places)
    assert [] == [
        (name, secret) for name, text in places.items() for secret in (KEY, TOKEN) if secret in text
    ]
    assert "not for you: ***" in places["requests.parquet"]


@pytest.mark.parametrize("url", ["http://me:{}@127.0.0.1:9", "http://127.0.0.1:9/?token={}"])
def test_a_url_with_a_secret_is_refused_without_repeating_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """Keys belong into the environment; the message says so and shows none."""
    folder = _run(tmp_path, monkeypatch, url.format(TOKEN))
    printed = capfd.readouterr()

    assert "base_url: must hold no user, query or fragment" in printed.err
    assert TOKEN not in printed.out + printed.err
    assert not folder.exists()


def test_a_server_that_is_not_ready_cannot_make_us_print_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """Its reason is printed while waiting and at the end, without what it was told."""

    def busy(request: Request):
        return ok(f"loading for {KEY} {TOKEN}".encode(), status=503, content_type="text/plain")

    with ScriptedServer(busy) as server:
        folder = _run(tmp_path, monkeypatch, server.base_url, ready_s=0.2)
    printed = capfd.readouterr()

    assert "is not ready after 0.2 s" in printed.err
    assert KEY not in printed.err
    assert TOKEN not in printed.err
    assert not folder.exists()
