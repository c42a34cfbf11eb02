"""What of a recorded run can be served again."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from engines.base import PayloadEncoding
from engines.outcomes import TransportOutcome
from harness.errors import RunFolderError
from harness.records import ChunkEvent, RequestRecord
from harness.replay.book import Ending, RecordedReply, load_book
from harness.store import open_run
from tests.builders.runs import PCM_24K, chunks_of, ms, record, run_folder


def spoken(index: int = 0, *, chunks=None, **fields) -> tuple[RequestRecord, bytes]:
    """Dispatched at 0, sent at 3 ms; 4 bytes at 20 ms, 2 at 50 ms, over at 60 ms."""
    built = record(
        index=index,
        chunks=chunks_of([(20, 4), (50, 2)]) if chunks is None else chunks,
        **{"sent_ns": ms(3), "headers_ns": ms(10), "finished_ns": ms(60), **fields},
    )
    return built, b"abcdex"


def book_of(tmp_path, *pairs, **options):
    return load_book(open_run(run_folder(tmp_path, pairs)), **options)


def only(tmp_path, pair) -> RecordedReply:
    [[reply]] = book_of(tmp_path, pair).replies.values()
    return reply


def test_pieces_are_those_of_the_recording_counted_from_its_sending(tmp_path):
    """17 and 47 ms after the request was sent; the head after 7, the end after 57."""
    reply = only(tmp_path, spoken())

    assert [(ms(17), b"abcd"), (ms(47), b"ex")] == [(p.after_ns, p.data) for p in reply.pieces]
    assert (ms(7), ms(57), Ending.CLEAN) == (reply.head_after_ns, reply.end_after_ns, reply.ending)


def test_head_of_a_session_accepted_before_the_text_goes_at_once(tmp_path):
    """A WebSocket was there before the text was sent."""
    assert 0 == only(tmp_path, spoken(headers_ns=ms(1))).head_after_ns


@pytest.mark.parametrize(
    ("outcome", "ending"),
    [
        (TransportOutcome.TRUNCATED, Ending.BROKEN),
        (TransportOutcome.SERVER_ERROR, Ending.BROKEN),
        (TransportOutcome.TIMEOUT, Ending.NEVER),
    ],
)
def test_reply_that_failed_fails_again(tmp_path, outcome, ending):
    """Broken off where it broke off, open where it stayed open."""
    assert ending is only(tmp_path, spoken(transport_outcome=outcome)).ending


def test_refusal_keeps_its_status_and_its_words(tmp_path):
    """A 429 is one again."""
    refused = record(
        transport_outcome=TransportOutcome.REFUSED,
        http_status=429,
        error_text="the queue is full",
        format=None,
    )
    reply = only(tmp_path, (refused, None))

    assert (429, None, "the queue is full") == (reply.status, reply.format, reply.message)


def test_base64_events_are_served_as_the_audio_in_them(tmp_path):
    """Each is an encoding of its own, with its own padding."""
    parts = [base64.b64encode(part) for part in (b"abcd", b"ef")]
    fmt = replace(PCM_24K, encoding=PayloadEncoding.BASE64)
    built, _ = spoken(chunks=chunks_of([(20, len(parts[0])), (50, len(parts[1]))]), format=fmt)

    assert [b"abcd", b"ef"] == [
        piece.data for piece in only(tmp_path, (built, b"".join(parts))).pieces
    ]


def test_late_stamp_moves_no_later_piece_before_it(tmp_path):
    """Bytes come in order whatever their stamps say."""
    chunks = [ChunkEvent(0, ms(50), ms(50), ms(50), 0, 4), ChunkEvent(1, ms(40), ms(50), 0, 4, 2)]
    built, payload = spoken(chunks=chunks)

    assert [ms(47), ms(47)] == [p.after_ns for p in only(tmp_path, (built, payload)).pieces]


def test_replies_to_one_text_are_kept_in_the_order_of_the_run(tmp_path):
    """So that the same plan gets each its own again."""
    [replies] = book_of(tmp_path, spoken(0), spoken(1)).replies.values()

    assert ["fake-r2-s1-0", "fake-r2-s1-1"] == [reply.request_id for reply in replies]


def test_what_says_nothing_about_the_server_is_left_out_and_counted(tmp_path):
    """No connection, cancelled, audio not recorded, text not recorded."""
    book = book_of(
        tmp_path,
        spoken(0),
        spoken(1, transport_outcome=TransportOutcome.CONNECT_ERROR),
        spoken(2, transport_outcome=TransportOutcome.CANCELLED),
        (spoken(3)[0], None),
        spoken(4, text=""),
    )

    assert 1 == book.num_replies
    assert {
        "ended as connect_error": 1,
        "ended as cancelled": 1,
        "without their whole audio": 1,
        "without their text": 1,
    } == book.num_left_out


def test_payload_that_is_not_what_it_says_is_left_out(tmp_path):
    """Recorded as hexadecimal, and none."""
    fmt = replace(PCM_24K, encoding=PayloadEncoding.HEX)

    assert {"not hex as their format says": 1} == book_of(
        tmp_path, spoken(0), spoken(1, format=fmt)
    ).num_left_out


def test_run_without_anything_to_serve_is_refused_with_the_reasons(tmp_path):
    """And with what to record next time."""
    with pytest.raises(RunFolderError, match=r"1 without their whole audio.*recording\.audio"):
        book_of(tmp_path, (spoken()[0], None))


def test_point_must_be_chosen_where_there_are_several(tmp_path):
    """A reply's timing depends on its load."""
    run = open_run(run_folder(tmp_path, [spoken(point_id="a-r1-s1"), spoken(point_id="a-r2-s1")]))
    with pytest.raises(RunFolderError, match="--point: a-r1-s1, a-r2-s1"):
        load_book(run)
    with pytest.raises(RunFolderError, match="no point 'b'"):
        load_book(run, point_id="b")

    assert 1 == load_book(run, point_id="a-r2-s1").num_replies
