"""What must be true of every HTTP engine that a contract describes, as plain functions.

`test_contracts.py` runs them over every contract of the package; the walk-through of
`engines/README.md` runs them over a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

from engines.base import (
    CancelDue,
    Close,
    Closed,
    Done,
    EndOfBody,
    Event,
    Format,
    Headers,
    HttpTarget,
    OddByte,
    SampleFormat,
    StreamBytes,
)
from engines.http_contract import AcceptSpec, ReadBody
from engines.outcomes import TransportOutcome
from tests.builders.exchanges import Played, byte_by_byte, drive, pieces_of, random_pieces
from tests.engines.canned import CannedReply, Fixture

__all__ = ["CHECKS"]


def request_is_written_as_the_contract_says(fixture: Fixture) -> None:
    """Method, path, query and exactly these body keys; no key of ours beside them."""
    exchange = fixture.open()
    target = exchange.target
    assert isinstance(target, HttpTarget)
    (send,) = drive(exchange, []).sends
    url = urlsplit(target.url)
    assert isinstance(send.data, bytes)
    kind = dict(target.headers).get("Content-Type", "")
    body = json.loads(send.data) if "json" in kind else dict(parse_qsl(send.data.decode()))

    assert fixture.sends == {
        "method": target.method,
        "path": url.path,
        **({"query": dict(parse_qsl(url.query))} if url.query else {}),
        "body": body,
    }
    assert send.ends_text


def success_gives_the_same_audio_for_every_split(fixture: Fixture) -> None:
    """Whole, byte by byte and cut at random places: the payload and the format do not change."""
    reply = fixture.success
    splits = [[StreamBytes(reply.body)], byte_by_byte(reply.body)]
    splits += [random_pieces(reply.body, seed=seed) for seed in range(4)]
    for split in splits:
        played = _after(fixture, reply, [*split, EndOfBody()])
        assert isinstance(played.ending, Done), played.ending
        assert reply.audio == played.audio
        _check_format(fixture, played.format)


def raw_chunks_are_deliveries(fixture: Fixture) -> None:
    """Where the body is the audio and is not sniffed, every delivery is one chunk, untouched."""
    accept = _accept(fixture)
    if accept.read is not ReadBody.BODY or accept.sniff != "none":
        return
    split = pieces_of(fixture.success.body, [3, 1, 4093, 1697])
    played = _after(fixture, fixture.success, [*split, EndOfBody()])

    assert [bytes(piece.data) for piece in split] == played.chunks


def refusal_is_refused_with_the_servers_words(fixture: Fixture) -> None:
    """Its status makes it `refused`; the text is what the server said, on one line."""
    played = _after_all(fixture, fixture.refusal)

    assert TransportOutcome.REFUSED == played.failure.outcome
    assert fixture.refusal.says in played.failure.text
    assert fixture.refusal.headers.status == played.failure.facts["status"]


def error_status_is_an_http_error_with_the_servers_words(fixture: Fixture) -> None:
    """Any other bad status; status and words are in the one line."""
    played = _after_all(fixture, fixture.error)

    assert TransportOutcome.HTTP_ERROR == played.failure.outcome
    assert fixture.error.says in played.failure.text
    assert str(fixture.error.headers.status) in played.failure.text
    assert 1 == len(played.failure.text.splitlines())


def error_after_200_is_a_server_error(fixture: Fixture) -> None:
    """An error inside the stream ends it as `server_error`, with what was heard before kept."""
    reply = fixture.in_band_error
    if reply is None:
        return
    for split in ([StreamBytes(reply.body)], byte_by_byte(reply.body)):
        played = _after(fixture, reply, [*split, EndOfBody()])
        assert TransportOutcome.SERVER_ERROR == played.failure.outcome
        assert reply.says in played.failure.text
        assert reply.audio == played.audio


def a_closed_connection_is_truncated(fixture: Fixture) -> None:
    """Cut anywhere before the end: `truncated`, and what came is a prefix of the audio."""
    reply = fixture.success
    for keep in {0, 1, len(reply.body) // 3, len(reply.body) // 2, len(reply.body) - 1}:
        body = [StreamBytes(reply.body[:keep])] if keep else []
        played = _after(fixture, reply, [*body, Closed()])
        if not isinstance(played.ending, Done):
            assert TransportOutcome.TRUNCATED == played.failure.outcome, played.failure
        else:  # an end event may come before the last byte of its line ending
            assert _accept(fixture).read is not ReadBody.BODY
            assert reply.audio == played.audio
        assert reply.audio.startswith(played.audio)


def closing_without_an_end_event_is_truncated(fixture: Fixture) -> None:
    """An event stream whose body ends in order, but before its end event, is not complete."""
    reply = fixture.success
    if _accept(fixture).read is ReadBody.BODY or not fixture.needs_end_event:
        return
    played = _after(fixture, reply, [StreamBytes(reply.body[: len(reply.body) // 2]), EndOfBody()])

    assert TransportOutcome.TRUNCATED == played.failure.outcome


def an_empty_body_has_no_audio(fixture: Fixture) -> None:
    """200 with nothing in it: no chunk, and never an exception."""
    played = _after(fixture, fixture.success, [EndOfBody()])

    assert [] == played.chunks
    assert played.ending is not None


def an_odd_byte_is_kept_and_told_apart(fixture: Fixture) -> None:
    """A stray byte at the end of headerless audio is payload; the contract says what it means."""
    accept = _accept(fixture)
    is_raw = SampleFormat(fixture.format["sample_format"]).bytes_per_sample is not None
    if accept.read is not ReadBody.BODY or not is_raw:
        return
    body = fixture.success.body + b"\x7f"
    played = _after(fixture, fixture.success, [StreamBytes(body), EndOfBody()])

    assert body == played.audio
    assert isinstance(played.ending, Done)
    assert played.format is not None
    assert OddByte(fixture.contract.response.odd_byte) is played.format.format.odd_byte


def another_content_type_is_a_protocol_error(fixture: Fixture) -> None:
    """The line names the type that came and those that were expected."""
    headers = Headers(200, (("content-type", "video/mp4"),))
    played = drive(fixture.open(), [headers, StreamBytes(fixture.success.body), EndOfBody()])

    assert TransportOutcome.PROTOCOL_ERROR == played.failure.outcome
    assert "video/mp4" in played.failure.text
    assert next(iter(fixture.contract.response.accept)) in played.failure.text


def words_under_a_200_are_quoted(fixture: Fixture) -> None:
    """JSON where audio was due is a protocol error that repeats the server's words."""
    if "application/json" in fixture.contract.response.accept:
        return
    headers = Headers(200, (("content-type", "application/json; charset=utf-8"),))
    body = b'{"error": {"message": "no such voice"}, "detail": "no such voice"}'
    for split in ([StreamBytes(body)], byte_by_byte(body)):
        played = drive(fixture.open(), [headers, *split, EndOfBody()])
        assert TransportOutcome.PROTOCOL_ERROR == played.failure.outcome
        assert "no such voice" in played.failure.text


def cancelling_closes_and_is_cancelled(fixture: Fixture) -> None:
    """HTTP has no cancel message: the connection is closed, the outcome is `cancelled`."""
    played = _after(fixture, fixture.success, [StreamBytes(fixture.success.body[:64]), CancelDue()])

    assert Close() in played.actions
    assert TransportOutcome.CANCELLED == played.failure.outcome


CHECKS: tuple[Callable[[Fixture], None], ...] = (
    request_is_written_as_the_contract_says,
    success_gives_the_same_audio_for_every_split,
    raw_chunks_are_deliveries,
    refusal_is_refused_with_the_servers_words,
    error_status_is_an_http_error_with_the_servers_words,
    error_after_200_is_a_server_error,
    a_closed_connection_is_truncated,
    closing_without_an_end_event_is_truncated,
    an_empty_body_has_no_audio,
    an_odd_byte_is_kept_and_told_apart,
    another_content_type_is_a_protocol_error,
    words_under_a_200_are_quoted,
    cancelling_closes_and_is_cancelled,
)


def _after(fixture: Fixture, reply: CannedReply, events: list[Event]) -> Played:
    return drive(fixture.open(), [reply.headers, *events])


def _after_all(fixture: Fixture, reply: CannedReply) -> Played:
    return _after(fixture, reply, [StreamBytes(reply.body), EndOfBody()])


def _accept(fixture: Fixture) -> AcceptSpec:
    kind = (fixture.success.headers.get("content-type") or "").partition(";")[0]
    return fixture.contract.response.accept[kind]


def _check_format(fixture: Fixture, said: Format | None) -> None:
    assert said is not None
    found = said.format
    assert fixture.format == {
        "sample_format": found.sample_format,
        "sample_rate_hz": found.sample_rate_hz,
        "channels": found.channels,
        "rate_source": found.rate_source,
    }
