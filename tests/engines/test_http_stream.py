"""How a reply over HTTP is read, beyond what the suite asks of every contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from engines import registry
from engines.base import (
    AudioFormat,
    Closed,
    Done,
    EndOfBody,
    Event,
    Headers,
    Message,
    OddByte,
    RateSource,
    SampleFormat,
    SpeechRequest,
    StreamBytes,
    TextDue,
)
from engines.outcomes import TransportOutcome
from tests.builders.exchanges import Played, byte_by_byte, drive, ramp, wav

REQUEST = SpeechRequest("r1", "Hello.")


def _headers(kind: str, status: int = 200, **more: object) -> Headers:
    extra = tuple((name.replace("_", "-"), str(value)) for name, value in more.items())
    return Headers(status, (("content-type", kind), *extra))


def _play(name: str, *events: Event, **params: Any) -> Played:
    adapter = registry.create(name, base_url="http://127.0.0.1:9", params=params, environ={})
    return drive(adapter.open(REQUEST), events)


def _contract(tmp_path: Path, response: dict[str, Any]) -> str:
    file = tmp_path / "acme.yaml"
    document = {
        "schema": 1,
        "name": "acme",
        "title": "Acme",
        "source": "here",
        "base_url": "http://127.0.0.1:9",
        "request": {"path": "/say", "body": {"text": {"from": "text"}}},
        "response": response,
    }
    file.write_text(yaml.safe_dump(document))
    return str(file)


def test_the_rate_on_the_wire_stands_beside_the_promised_one():
    """A header of 24 kHz where 22.05 kHz was promised: both are told, neither is hidden."""
    played = _play(
        "earwitness-piper",
        _headers("audio/pcm", x_sample_rate=24000),
        StreamBytes(b"\0\0"),
    )

    assert played.format is not None
    assert (24_000, RateSource.HEADER) == (
        played.format.format.sample_rate_hz,
        played.format.format.rate_source,
    )
    assert played.format.expected is not None
    assert 22_050 == played.format.expected.sample_rate_hz


def test_without_a_rate_header_the_contract_speaks():
    """And says that it was the contract."""
    played = _play("earwitness-piper", _headers("audio/pcm"), StreamBytes(b"\0\0"))

    assert played.format is not None
    assert AudioFormat(
        SampleFormat.S16LE, 22_050, 1, RateSource.CONTRACT, odd_byte=OddByte.ERROR
    ) == (played.format.format)


@pytest.mark.parametrize("rate", ["fast", "0", "-1", "24000.5", "1e5", "²", "9" * 30])
def test_a_rate_header_that_is_no_rate_is_a_protocol_error(rate: str):
    """Guessing a rate would bend every duration."""
    played = _play("earwitness-piper", _headers("audio/pcm", x_sample_rate=rate))

    assert TransportOutcome.PROTOCOL_ERROR == played.failure.outcome
    assert "x-sample-rate" in played.failure.text


def test_another_type_than_was_asked_is_read_by_what_it_is():
    """WAV for pcm: read as WAV, with the promise beside it so that analysis can object."""
    played = _play("nari", _headers("audio/wav"), StreamBytes(wav(ramp(0, 10))), EndOfBody())

    assert played.format is not None
    assert played.format.expected is not None
    assert SampleFormat.WAV is played.format.format.sample_format
    assert SampleFormat.S16LE is played.format.expected.sample_format


def test_type_parameters_and_case_do_not_matter():
    """`Audio/PCM; rate=24000` is audio/pcm."""
    played = _play("nari", _headers("Audio/PCM; rate=24000"), StreamBytes(b"\0\0"), EndOfBody())

    assert isinstance(played.ending, Done)


@pytest.mark.parametrize(
    "header",
    [
        {"content_encoding": "gzip"},
        {"content_encoding": "identity, BR"},
        {"transfer_encoding": "gzip, chunked"},
        {"transfer_encoding": "deflate"},
    ],
)
def test_a_compressed_body_is_a_protocol_error(header: dict[str, str]):
    """It was not asked for, and its bytes are not the audio's: neither as the body's own coding nor
    as one of its transfer."""
    played = _play("nari", _headers("audio/pcm", **header))

    assert TransportOutcome.PROTOCOL_ERROR == played.failure.outcome
    assert played.failure.text.endswith(" was not asked")


@pytest.mark.parametrize(
    "header", [{"content_encoding": "identity"}, {"transfer_encoding": " Chunked"}]
)
def test_a_body_that_is_only_framed_is_read(header: dict[str, str]):
    """The wire has taken the framing off."""
    played = _play("nari", _headers("audio/pcm", **header), StreamBytes(b"\0\0"), EndOfBody())

    assert isinstance(played.ending, Done)


def test_pcm_that_spells_riff_is_untouched():
    """A declared content type is trusted where the contract does not ask for more."""
    body = b"RIFF\x10\x00\x00\x00WAVEfmt " + ramp(0, 50)
    played = _play("nari", _headers("audio/pcm"), StreamBytes(body), EndOfBody())

    assert played.format is not None
    assert SampleFormat.S16LE is played.format.format.sample_format
    assert body == played.audio


@pytest.mark.parametrize("body", [wav(ramp(0, 50)), ramp(0, 50), b"\x01\x00"])
def test_a_body_of_unclear_type_is_told_by_its_first_bytes(body: bytes):
    """WAV by its header, headerless by having none, and even a body shorter than a header."""
    wanted = SampleFormat.WAV if body[:4] == b"RIFF" else SampleFormat.S16LE
    for pieces in ([StreamBytes(body)], byte_by_byte(body)):
        played = _play("generic", _headers("application/octet-stream"), *pieces, EndOfBody())
        assert played.format is not None
        assert wanted is played.format.format.sample_format
        assert body == played.audio


def test_a_reserved_retry_time_is_kept():
    """429 with Retry-After: the driver needs the wait."""
    played = _play("nari", _headers("text/plain", 429, retry_after=3), EndOfBody())

    assert {"status": 429, "retry_after": "3"} == played.failure.facts


def test_an_endless_error_page_ends():
    """64 KiB of it are enough for one line."""
    page = [StreamBytes(b"x" * 10_000)] * 20
    played = _play("nari", _headers("text/html", 500), *page)

    assert TransportOutcome.HTTP_ERROR == played.failure.outcome
    assert 500 >= len(played.failure.text)


def test_a_connection_that_closes_inside_an_error_keeps_the_error():
    """The status was said; the cut does not make it `truncated`."""
    played = _play("nari", _headers("text/plain", 503), StreamBytes(b"not re"), Closed())

    assert TransportOutcome.REFUSED == played.failure.outcome


def test_a_redirect_is_an_http_error():
    """Following it would measure another server."""
    played = _play("nari", _headers("text/plain", 307, location="/other"), EndOfBody())

    assert TransportOutcome.HTTP_ERROR == played.failure.outcome


def test_a_key_that_the_server_echoes_is_hidden():
    """Not by its shape, but because it was sent."""
    adapter = registry.create("openai", environ={"OPENAI_API_KEY": "swanlake"})
    said = StreamBytes(b'{"error": {"message": "the word swanlake is wrong"}}')
    played = drive(adapter.open(REQUEST), [_headers("application/json", 401), said, EndOfBody()])

    assert "HTTP 401: the word *** is wrong" == played.failure.text


@pytest.mark.parametrize(
    "event", [StreamBytes(b"x"), EndOfBody(), Message("x"), TextDue(0, "x", True)]
)
def test_an_event_before_the_head_is_a_protocol_error(event: Event):
    """A driver or server out of order is told, not crashed on."""
    assert TransportOutcome.PROTOCOL_ERROR == _play("nari", event).failure.outcome


def test_a_second_head_is_a_protocol_error():
    """One response has one head."""
    played = _play("nari", _headers("audio/pcm"), _headers("audio/pcm"))

    assert TransportOutcome.PROTOCOL_ERROR == played.failure.outcome


WAV_EXACT = {
    "accept": {"audio/wav": {"sample_format": "wav"}},
    "wav_size": "exact",
}


@pytest.mark.parametrize(("declared", "outcome"), [(100, None), (200, TransportOutcome.TRUNCATED)])
def test_exact_wav_sizes_decide_completeness(
    tmp_path: Path, declared: int, outcome: TransportOutcome | None
):
    """Where the contract vouches for the sizes, fewer bytes than declared are a truncation."""
    body = wav(ramp(0, 50), data_size=declared)
    adapter = registry.create(_contract(tmp_path, WAV_EXACT))
    for pieces in ([StreamBytes(body)], byte_by_byte(body)):
        played = drive(adapter.open(REQUEST), [_headers("audio/wav"), *pieces, EndOfBody()])
        assert outcome == getattr(played.ending, "outcome", None)
        assert body == played.audio


@pytest.mark.parametrize("declared", [0, 0xFFFFFFFF, 2_000_000_000, 10])
def test_elsewhere_wav_sizes_end_nothing(declared: int):
    """Four dialects of a streamed header are all just bytes until the framing ends."""
    body = wav(ramp(0, 50), data_size=declared)
    played = _play("vllm-omni", _headers("audio/wav"), StreamBytes(body), EndOfBody())

    assert isinstance(played.ending, Done)
    assert body == played.audio


def test_a_checked_beginning_must_be_right(tmp_path: Path):
    """A server that labels WAV as a web page is believed only if the bytes are WAV."""
    accept = {"text/html": {"sample_format": "wav", "sniff": "check"}}
    adapter = registry.create(_contract(tmp_path, {"accept": accept}))
    page = b"<html><body>Internal error</body></html>"
    good = drive(
        adapter.open(REQUEST),
        [_headers("text/html"), *byte_by_byte(wav(ramp(0, 9))), EndOfBody()],
    )
    bad = drive(adapter.open(REQUEST), [_headers("text/html"), *byte_by_byte(page), EndOfBody()])

    assert isinstance(good.ending, Done)
    assert TransportOutcome.PROTOCOL_ERROR == bad.failure.outcome
    assert "<html>" in bad.failure.text


def test_headerless_audio_of_unknown_rate_is_a_protocol_error(tmp_path: Path):
    """No header, no promise: there is no rate to read it by."""
    adapter = registry.create(
        _contract(tmp_path, {"accept": {"audio/pcm": {"sample_format": "s16le"}}})
    )
    played = drive(adapter.open(REQUEST), [_headers("audio/pcm"), StreamBytes(b"\0\0")])

    assert TransportOutcome.PROTOCOL_ERROR == played.failure.outcome
    assert "without a sample rate" in played.failure.text


def test_raw_payload_is_not_copied():
    """The action holds the very buffer of the event."""
    data = memoryview(bytearray(b"\0\0\1\0"))
    adapter = registry.create("nari")
    exchange = adapter.open(REQUEST)
    exchange.start()
    exchange.feed(_headers("audio/pcm"))
    _, audio = exchange.feed(StreamBytes(data))

    assert audio.data is data  # type: ignore[union-attr]
