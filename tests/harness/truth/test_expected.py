"""The truth's own arithmetic, on logs worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.truth.expected import Bracket, ExpectedReply, expected_replies
from harness.truth.log import LoggedItem, LoggedRequest, LoggedSeal, LoggedSend, TruthLog
from harness.truth.script import Container, Script, paced
from harness.truth.sound import Sound

MS = 1_000_000
SAMPLES_PER_MS = 24
HEAD_BYTES, TOP_BYTES, TAIL_BYTES = 100, 6, 2


def ms(value: float) -> int:
    return round(value * MS)


def script(*, lead_ms: float = 0.0, container: Container = Container.RAW) -> Script:
    """Long enough for any chunks of a test; only its sound and container matter."""
    sound = Sound(duration_ms=3000, lead_ms=lead_ms)
    return paced("s", sound, chunk_ms=3000, container=container)


def reply(
    chunks: Sequence[tuple[float, float]],
    *,
    lead_ms: float = 0.0,
    width_ms: float = 0.0,
    container: Container = Container.RAW,
    header_ms: float | None = None,
) -> ExpectedReply:
    """A reply whose chunks are (sent at, ms of audio), one send each, `width_ms` long.

    The head goes at 0; a WAV header alone at `header_ms`; the end with the last chunk.
    """
    payloads = [(at, round(audio * SAMPLES_PER_MS) * 2) for at, audio in chunks]
    if header_ms is not None:
        payloads.insert(0, (header_ms, 44))
    log = TruthLog()
    log.requests.append(LoggedRequest(1, 1, "s", "http", 0))
    log.items.append(LoggedItem(1, "head", 0, HEAD_BYTES, 0, None, 0, 0))
    log.sends.append(LoggedSend(1, 0, HEAD_BYTES, 0, 10, 0))
    at, offset = HEAD_BYTES, 0
    for index, (at_ms, size) in enumerate(payloads):
        end = at + TOP_BYTES + size + TAIL_BYTES
        kind = "container" if index == 0 and header_ms is not None else "audio"
        log.items.append(LoggedItem(1, kind, at, end, at + TOP_BYTES, None, offset, size))
        is_last = index == len(payloads) - 1
        if is_last:
            log.items.append(LoggedItem(1, "end", end, end + 5, end, None, offset + size, 0))
        send_end = end + 5 if is_last else end
        log.sends.append(LoggedSend(1, at, send_end, ms(at_ms), ms(at_ms + width_ms), 0))
        at, offset = end, offset + size
    return expected_replies(log, {"s": script(lead_ms=lead_ms, container=container)})[1]


def stalls_of(found: ExpectedReply) -> list[tuple[float, float, float]]:
    """(media before, least, most) in ms, of those that may be more than nothing."""
    return [
        (s.sample / SAMPLES_PER_MS, s.length.lo_ns / MS, s.length.hi_ns / MS)
        for s in found.stalls()
        if s.length.hi_ns is None or s.length.hi_ns > 0
    ]


@pytest.mark.parametrize(("tone_at_ms", "heard_ms", "stalls"), [
    (300, 420, []),
    (600, 600, [(400, 180, 180)]),
])  # fmt: skip
def test_sound_behind_silence_is_heard_after_it(tone_at_ms, heard_ms, stalls):
    """400 ms of zeros at 20; the tone comes in time, or the player has run dry."""
    found = reply([(20, 400), (tone_at_ms, 500)], lead_ms=400)

    assert Bracket(ms(20), ms(20)) == found.first_sample()
    assert Bracket(ms(tone_at_ms), ms(tone_at_ms)) == found.onset_received()
    assert Bracket(ms(heard_ms), ms(heard_ms)) == found.onset_played()
    assert stalls == stalls_of(found)


def test_header_alone_is_no_sample():
    """44 bytes at 50 ms, the first 10 ms of sound at 300."""
    found = reply([(300, 10), (310, 10)], header_ms=50, container=Container.WAV)

    assert Bracket(ms(50), ms(50)) == found.first_body
    assert Bracket(ms(300), ms(300)) == found.first_sample()
    assert Bracket(ms(300), ms(300)) == found.onset_played()


def test_early_first_chunk_is_paid_for_by_a_stall():
    """80 ms at 100, 640 at 400, 640 at 900: 220 ms without sound from 180 on."""
    assert [(80, 220, 220)] == stalls_of(reply([(100, 80), (400, 640), (900, 640)]))


def test_bursts_are_late_and_without_a_stall():
    """Ten chunks at 820, ten at 1620, 100 ms each."""
    found = reply([(820 if i < 10 else 1620, 100) for i in range(20)])

    assert Bracket(ms(820), ms(820)) == found.onset_played()
    assert [] == stalls_of(found)


def test_truth_is_as_wide_as_its_sends():
    """Each send took 2 ms: a chunk 30 ms late was so by 28 to 32."""
    found = reply([(10, 50), (90, 50)], width_ms=2)

    assert [(50, 28, 32)] == stalls_of(found)
    assert Bracket(ms(10), ms(12)) == found.onset_played()


def test_later_stalls_count_from_the_one_before():
    """Late by 20, then on the old schedule: the first stall gave it 20 ms of slack."""
    assert [(50, 20, 20)] == stalls_of(reply([(0, 50), (70, 50), (115, 50)]))


def test_player_that_gets_bytes_in_larger_pieces_waits_for_the_last_of_them():
    """Two sends that the client saw as one chunk: it is there when the second is."""
    found = reply([(0, 40), (40, 40), (100, 40)])
    ends = [3840, 5760]  # the first two chunks together

    assert Bracket(ms(40), ms(40)) == found.first_sample(ends)
    assert [ms(0)] == [stall.length.hi_ns for stall in found.stalls(ends)]


def test_reply_knows_its_chunks_and_its_end():
    """As they were cut, and when the last byte of the framing went."""
    found = reply([(0, 40), (40, 40)])

    assert (1920, 3840) == found.chunk_ends
    assert Bracket(ms(40), ms(40)) == found.end
    assert Bracket(ms(0), ms(0)) == found.arrival_of(1919)
    with pytest.raises(IndexError, match="no payload byte 3840"):
        found.arrival_of(3840)


def one_chunk(log: TruthLog) -> ExpectedReply:
    """A reply of one chunk of 100 payload bytes at plain position 6."""
    log.requests.append(LoggedRequest(1, 1, "s", "http", 0))
    log.items.append(LoggedItem(1, "audio", 0, 108, 6, None, 0, 100))
    return expected_replies(log, {"s": script()})[1]


def test_chunk_in_two_sends_arrives_in_two_parts():
    """Payload byte 43 is the last one of the first send."""
    log = TruthLog(sends=[LoggedSend(1, 0, 50, 10, 11, 0), LoggedSend(1, 50, 108, 20, 21, 0)])
    found = one_chunk(log)

    assert [(0, 44, 10), (44, 100, 20)] == [
        (part.start, part.end, part.arrival.lo_ns) for part in found.deliveries
    ]


def test_nothing_of_a_tls_record_can_be_read_before_its_last_byte():
    """One record in two sends: all of it came with the second."""
    log = TruthLog(
        is_sealed=True,
        seals=[LoggedSeal(1, 0, 108, 500)],
        sends=[LoggedSend(1, 370, 400, 10, 11, 0), LoggedSend(1, 400, 500, 20, 21, 0)],
    )

    assert [(0, 100, 20)] == [
        (part.start, part.end, part.arrival.lo_ns) for part in one_chunk(log).deliveries
    ]


def test_message_is_there_when_its_last_byte_is():
    """Base64 inside an event: no payload byte is of use before."""
    log = TruthLog(sends=[LoggedSend(1, 0, 50, 10, 11, 0), LoggedSend(1, 50, 108, 20, 21, 0)])
    log.requests.append(LoggedRequest(1, 1, "s", "sse", 0))
    log.items.append(LoggedItem(1, "audio", 0, 108, 4, 105, 0, 60))
    found = expected_replies(log, {"s": script()})[1]

    assert [(0, 60, 20)] == [(p.start, p.end, p.arrival.lo_ns) for p in found.deliveries]
    assert Bracket(10, 11) == found.first_body


def test_bytes_that_the_kernel_held_back_have_no_latest_moment():
    """Of 108 bytes 20 were not on their way when the send returned."""
    found = one_chunk(TruthLog(sends=[LoggedSend(1, 0, 108, 10, 11, 20)]))

    assert Bracket(10, None) == found.arrival_of(99)


def test_bytes_that_were_never_sent_are_no_delivery():
    """The connection ended 60 bytes into the chunk."""
    found = one_chunk(TruthLog(sends=[LoggedSend(1, 0, 66, 10, 11, 0)]))

    assert 60 == found.num_payload_bytes
    assert () == found.chunk_ends
    assert found.end is None
