"""A whole run against a server that ends every request in one way: outcome, exit code, words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.cli import main as command
from harness.records import RunStatus
from harness.store import open_run
from tests.builders.servers import (
    Close,
    Reply,
    Reset,
    ScriptedServer,
    Wait,
    WaitForClose,
    Write,
    chunk,
    chunked,
    head,
    ok,
    refusal,
)
from tests.builders.voices import SPOKEN, short_run_file, voice

_HEAD = head(200, content_type="audio/pcm", transfer_encoding="chunked", x_sample_rate=22_050)
_SHORT = head(200, content_type="audio/pcm", content_length=96_000, x_sample_rate=22_050)
_FAILED = "all 2 measured requests failed"

# What the server does to every request -> outcome, error_kind, exit code, last line on stderr.
ENDINGS: dict[str, tuple[Reply, str, str | None, int, str]] = {
    "whole": (chunked([SPOKEN], x_sample_rate=22_050), "ok", None, 0, "(complete)"),
    "refused": (refusal(), "refused", "headers", 5, _FAILED),
    "not ready": (ok(b"", status=503), "refused", "headers", 5, _FAILED),
    "error": (ok(b"no", status=500), "http_error", "headers", 5, _FAILED),
    "unknown route": (ok(b"", status=404), "http_error", "headers", 5, _FAILED),
    "moved": (ok(b"", status=302, location="/"), "http_error", "headers", 5, _FAILED),
    "short body": ((Write(_SHORT + SPOKEN), Close()), "truncated", "body", 5, _FAILED),
    "no zero chunk": ((Write(_HEAD + chunk(SPOKEN)), Close()), "truncated", "body", 5, _FAILED),
    "reset": (
        (Write(_HEAD + chunk(SPOKEN)), Wait(20), Reset()), "truncated", "body", 5, _FAILED
    ),
    "no http": (
        (Write(b"220 smtp ready\r\n\r\n"), Close()), "protocol_error", "http_framing", 5, _FAILED
    ),
    "wrong type": (
        ok(b"<html>", content_type="text/html"), "protocol_error", "headers", 5, _FAILED
    ),
    "endless head": (
        (Write(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000), WaitForClose()),
        "protocol_error", "headers_too_large", 5, _FAILED,
    ),
    "silence": ((WaitForClose(),), "timeout", "first_audio", 5, _FAILED),
    "stalled": (
        (Write(_HEAD + chunk(SPOKEN)), WaitForClose()), "timeout", "total", 5, _FAILED
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
def test_ending_of_a_run(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """The outcome is in the folder, the exit code says how it went, the last line says it in
    words; there is never a traceback."""
    reply, outcome, kind, code, words = ENDINGS[name]
    with ScriptedServer(voice(lambda _request: reply)) as server:
        path = short_run_file(
            tmp_path,
            server.base_url,
            phases={"warmup_s": 0.0, "measure_s": 0.1, "drain_s": 1.0},
            timeouts={"ready_s": 10.0, "first_audio_s": 0.15, "total_s": 0.3},
        )
        arguments = ["earwitness", "run", str(path), "-o", str(tmp_path / "run"), "--no-report"]
        monkeypatch.setattr(sys, "argv", arguments)
        found = 0
        try:
            command.main()
        except SystemExit as ended:
            found = int(ended.code or 0)
    err = capsys.readouterr().err
    run = open_run(tmp_path / "run")

    assert (code, RunStatus.COMPLETE) == (found, run.record.status)
    assert {outcome} == set(run.requests["transport_outcome"])
    assert {kind} == {
        text if isinstance(text, str) else None for text in run.requests["error_kind"]
    }
    assert words in err.splitlines()[-1]
    assert "Traceback" not in err
