"""The scripted engine behaves like a real one."""

from __future__ import annotations

import array

import pytest

from engines.base import Adapter, Closed, Done, EndOfBody, SpeechRequest, StreamBytes, TextDue
from engines.fake import FakeAdapter, FakeScript, FakeStep, tone
from engines.outcomes import TransportOutcome
from tests.builders.exchanges import drive

REQUEST = SpeechRequest("r1", "Hello.")


def _events(script: FakeScript) -> list[object]:
    return [step.event for step in script.steps]


def test_a_paced_script_has_its_chunks_on_time():
    """Three chunks of 20 ms, the first at 50 ms, then every 10 ms."""
    pcm = tone(60)
    script = FakeScript.paced(pcm, chunk_ms=20, first_ms=50, gap_ms=10)
    chunks = [step for step in script.steps if isinstance(step.event, StreamBytes)]

    assert [50, 60, 70] == [step.at_ms for step in chunks]
    assert pcm == b"".join(bytes(step.event.data) for step in chunks)  # type: ignore[union-attr]


def test_its_exchange_plays_a_script_to_the_end():
    """Audio in, `Done` at the end; the adapter is an adapter."""
    pcm = tone(60)
    adapter = FakeAdapter(lambda _: FakeScript.paced(pcm, chunk_ms=20))
    exchange = adapter.open(REQUEST)
    played = drive(exchange, _events(exchange.script))  # type: ignore[arg-type]

    assert isinstance(adapter, Adapter)
    assert pcm == played.audio
    assert isinstance(played.ending, Done)


def test_a_cut_script_is_truncated():
    """Closed after the first chunk."""
    script = FakeScript.paced(tone(60), chunk_ms=20).cut_off(15)
    played = drive(FakeAdapter(lambda _: script).open(REQUEST), _events(script))  # type: ignore[arg-type]

    assert TransportOutcome.TRUNCATED == played.failure.outcome
    assert tone(60)[: len(played.audio)] == played.audio
    assert isinstance(script.steps[-1].event, Closed)


@pytest.mark.parametrize(
    ("status", "outcome"), [(429, TransportOutcome.REFUSED), (404, TransportOutcome.HTTP_ERROR)]
)
def test_a_failing_script_fails_by_its_status(status: int, outcome: TransportOutcome):
    """As a real engine would."""
    script = FakeScript.failing(status)
    played = drive(FakeAdapter(lambda _: script).open(REQUEST), _events(script))  # type: ignore[arg-type]

    assert outcome == played.failure.outcome


def test_incremental_text_is_sent_piece_by_piece_and_acknowledged():
    """Each piece is a send with its number; the last ends the text."""
    adapter = FakeAdapter(lambda _: FakeScript(()))
    played = drive(
        adapter.open(SpeechRequest("r", "a b", is_incremental=True)),
        [TextDue(0, "a ", False), TextDue(1, "b", True)],
    )

    assert [(0, False), (1, True)] == [(send.text_seq, send.ends_text) for send in played.sends]
    assert [0, 1] == played.accepted


def test_a_script_that_goes_back_in_time_is_refused():
    """Steps are in order."""
    with pytest.raises(ValueError, match="backwards"):
        FakeScript((FakeStep(2.0, EndOfBody()), FakeStep(1.0, EndOfBody())))


def test_a_tone_has_its_length_its_lead_and_its_level():
    """100 ms at 24 kHz after 50 ms of zeros, RMS 20 dB below full scale."""
    samples = array.array("h", tone(100, lead_ms=50))
    level = (sum(value * value for value in samples[1200:]) / 2400) ** 0.5

    assert 3600 == len(samples)
    assert {0} == set(samples[:1200])
    assert pytest.approx(3276.7, rel=0.01) == level
