"""The replay server and the engine `replay`, over a real socket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines import registry
from engines.base import SpeechRequest
from engines.outcomes import TransportOutcome
from harness import loop
from harness.child import start_child
from harness.clock import RunClock
from harness.probe import identify
from harness.replay.__main__ import main
from harness.settings import TimeoutSettings, WireSettings
from harness.single import SingleResult, single
from tests.builders.runs import chunks_of, ms, record, run_folder

pytestmark = pytest.mark.slow

SAID = b"\1\0" * 2400


def spoken(index: int, text: str, **fields):
    """Half of the audio 40 ms after it was asked for, the rest 60 ms later."""
    half = len(SAID) // 2
    chunks = chunks_of([(40, half), (100, half)])
    return record(index=index, text=text, chunks=chunks, finished_ns=ms(110), **fields), SAID


@pytest.fixture(scope="module")
def base_url(tmp_path_factory) -> Iterator[str]:
    """A server of a run with one reply of each kind."""
    refused = record(
        index=3,
        text="full",
        transport_outcome=TransportOutcome.REFUSED,
        http_status=429,
        error_text="the queue is full",
        format=None,
    )
    folder = run_folder(
        tmp_path_factory.mktemp("replay"),
        [
            spoken(0, "well"),
            spoken(1, "broken", transport_outcome=TransportOutcome.TRUNCATED),
            spoken(2, "stuck", transport_outcome=TransportOutcome.TIMEOUT),
            (refused, None),
        ],
    )
    argv = [sys.executable, "-m", "harness.replay", str(folder), "--port=0", "--stop-on-stdin-eof"]
    with start_child(argv, name="replay", ready_s=20.0, clock=RunClock()) as child:
        yield child.base_url


def ask(base_url: str, text: str) -> SingleResult:
    adapter = registry.create("replay", base_url=base_url)
    settings = WireSettings(timeouts=TimeoutSettings(total_s=0.5))
    request = SpeechRequest("r", text)
    return loop.run(single(adapter, request, settings=settings, clock=RunClock()))


def test_reply_comes_again_with_its_bytes_and_never_before_its_time(base_url):
    """The same samples; the pieces 40 and 100 ms after the request, the end after 110."""
    result = ask(base_url, "well")
    found = result.record
    arrivals = [chunk.arrival_ns - found.sent_ns for chunk in found.chunks]

    assert (TransportOutcome.OK, SAID) == (found.transport_outcome, result.payload)
    assert arrivals[0] >= ms(40)
    assert arrivals[-1] >= ms(100)
    assert found.finished_ns - found.sent_ns >= ms(110)
    assert (24_000, 1) == (found.format.sample_rate_hz, found.format.channels)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("broken", TransportOutcome.TRUNCATED),
        ("stuck", TransportOutcome.TIMEOUT),
        ("full", TransportOutcome.REFUSED),
        ("never said", TransportOutcome.HTTP_ERROR),
    ],
)
def test_reply_that_failed_fails_in_the_same_way(base_url, text, outcome):
    """Broken off, still open at the limit, refused; a text that was not in the run is a 404."""
    assert outcome is ask(base_url, text).record.transport_outcome


def test_contract_knows_whom_it_talks_to(base_url):
    """The server names itself and its run."""
    adapter = registry.create("replay", base_url=base_url)
    info = loop.run(identify(adapter, settings=WireSettings(), clock=RunClock()))

    assert (True, True, ("test",)) == (info.is_ready, info.is_match, info.models)


def test_folder_without_a_run_is_one_line(tmp_path: Path, capsys):
    """Exit code 6, no traceback."""
    assert 6 == main([str(tmp_path)])
    assert "replay server: " in capsys.readouterr().err
