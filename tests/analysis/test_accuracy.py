"""Measured against true, on runs that are wrong in exactly one known way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.accuracy import Accuracy, bars_for, measure_accuracy
from analysis.errors import RunDataError
from harness.records import ChunkEvent, RequestRecord, TransportOutcome
from harness.truth.expected import Bracket, Delivery, ExpectedReply
from harness.truth.marks import Mark, clear, stamp
from harness.truth.script import Ending, Script, cut_off, paced
from harness.truth.sound import Sound, render
from tests.builders.runs import chunk, ms, record, run_folder

# Where the run clock's zero lies on CLOCK_MONOTONIC, and how far a converted stamp can be off.
ANCHOR_NS = 7_000_000_000
CONVERSION_NS = 100
CLOCK = {
    "anchor_utc": "2026-01-01T00:00:00Z",
    "anchor_monotonic_ns": ANCHOR_NS,
    "offsets": [[0, 0, CONVERSION_NS]],
    "stamp_source": "kernel",
    "steps": [],
}
CHUNK_BYTES = 1_920  # 40 ms
SCRIPT = paced("tone", Sound(duration_ms=200.0, lead_ms=60.0), chunk_ms=40.0)
PLAN_MS = (20.0, 60.0, 100.0, 140.0, 180.0)
WIDTH_MS = 0.05


def truth(
    at_ms: Sequence[float] = PLAN_MS, *, number: int = 1, script: Script = SCRIPT
) -> ExpectedReply:
    """A reply of which each chunk was sent within 0.05 ms from its moment on the run clock."""

    def bracket(at: float) -> Bracket:
        return Bracket(ANCHOR_NS + ms(at), ANCHOR_NS + ms(at + WIDTH_MS))

    return ExpectedReply(
        number=number,
        script=script,
        transport="http",
        received_ns=ANCHOR_NS + ms(0.2),
        head=bracket(0.3),
        first_body=bracket(at_ms[0]),
        deliveries=tuple(
            Delivery(i * CHUNK_BYTES, (i + 1) * CHUNK_BYTES, bracket(at))
            for i, at in enumerate(at_ms)
        ),
        chunk_ends=tuple((i + 1) * CHUNK_BYTES for i in range(len(at_ms))),
        end=bracket(at_ms[-1]) if script.is_whole else None,
        onset_sample=render(script.sound).onset_sample,
    )


def chunks_at(at_ms: Sequence[float], *, late_ms: float = 0.3) -> list[ChunkEvent]:
    """Chunks of 40 ms with exact stamps, read a little later, the socket drained 1 ms before."""
    return [
        chunk(
            at_ms=at,
            num_bytes=CHUNK_BYTES,
            seq=i,
            offset=i * CHUNK_BYTES,
            read_ms=at + late_ms,
            floor_ms=at - 1,
        )
        for i, at in enumerate(at_ms)
    ]


def payload(number: int = 1) -> bytes:
    """The script's audio with its marks."""
    whole = render(SCRIPT.sound).samples.tobytes()
    pieces = [whole[at : at + CHUNK_BYTES] for at in range(0, len(whole), CHUNK_BYTES)]
    return b"".join(stamp(clear(p), Mark(number, i)) for i, p in enumerate(pieces))


def request(chunks: Sequence[ChunkEvent], *, number: int = 1, **fields: object) -> RequestRecord:
    """A request that the server knows as `number`, dispatched at 0."""
    timing = json.dumps({"truth_request": str(number)})
    return record(chunks=chunks, index=number, server_timing=timing, **fields)


def compared(
    tmp_path: Path,
    chunks: Sequence[ChunkEvent],
    true: ExpectedReply | None = None,
    *,
    data: bytes | None = None,
    **fields: object,
) -> Accuracy:
    """The accuracy of a run of one request."""
    folder = run_folder(tmp_path, [(request(chunks, **fields), data or payload())], clock=CLOCK)
    return measure_accuracy(folder, {1: true or truth()})


GOOD = tuple(at + WIDTH_MS / 2 for at in PLAN_MS)


def test_run_that_is_right_is_found_right(tmp_path: Path):
    """Stamps in the middle of their sends, every figure within half of a send's width."""
    found = compared(tmp_path, chunks_at(GOOD))

    assert (5, 5, 5) == (
        found.stamps.num_chunks, found.stamps.num_exact, found.stamps.num_inside
    )  # fmt: skip
    assert 0.0 == found.stamps.kernel_error_us.max
    assert 275 == pytest.approx(found.stamps.user_error_us.p50)
    assert 50 == pytest.approx(found.stamps.bracket_us.p50)
    for name in ("ttfb", "ttfp", "audible_received", "audible_ttfa", "e2e"):
        assert WIDTH_MS / 2 == pytest.approx(found.report.error_ms[name].max, abs=1e-6), name
    assert {"tone": 0.0} == found.report.onset_error_ms
    assert (5, 0) == (found.identity.num_marks, found.identity.num_wrong_marks)
    assert () == found.identity.wrong_outcomes


def test_stamp_outside_its_send_is_counted_and_measured(tmp_path: Path):
    """2 ms after the send had returned."""
    late = [*GOOD[:2], PLAN_MS[2] + WIDTH_MS + 2, *GOOD[3:]]
    found = compared(tmp_path, chunks_at(late))

    assert (5, 4) == (found.stamps.num_exact, found.stamps.num_inside)
    assert 2_000 == pytest.approx(found.stamps.kernel_error_us.max)
    assert 0.8 == found.stamps.coverage


def test_conversion_error_is_allowed_for(tmp_path: Path):
    """0.1 us: a stamp 0.08 us after its send is inside, 0.2 us after it is not."""
    for over_ms, inside in ((0.00008, 5), (0.0002, 4)):
        (folder := tmp_path / str(inside)).mkdir()
        found = compared(folder, chunks_at([*GOOD[:4], PLAN_MS[4] + WIDTH_MS + over_ms]))

        assert inside == found.stamps.num_inside


@pytest.mark.parametrize(("floor_ms", "num_unaccounted"), [(50, 0), (80, 1)])
def test_shared_stamp_must_admit_the_truth(tmp_path: Path, floor_ms: float, num_unaccounted: int):
    """Sent at 60, merged and stamped 100: right if it says `since 50`, wrong if `since 80`."""
    chunks = chunks_at(GOOD)
    chunks[1] = replace(chunks[2], seq=1, offset=CHUNK_BYTES, floor_ns=ms(floor_ms), is_exact=False)
    found = compared(tmp_path, chunks)

    assert (4, 1, num_unaccounted) == (
        found.stamps.num_exact, found.stamps.num_shared, found.stamps.num_unaccounted
    )  # fmt: skip


def test_border_that_the_client_lost_is_counted(tmp_path: Path):
    """Two chunks of the server as one of the client."""
    chunks = chunks_at(GOOD)
    joined = replace(chunks[2], seq=1, offset=CHUNK_BYTES, num_bytes=2 * CHUNK_BYTES)
    rest = [replace(each, seq=each.seq - 1) for each in chunks[3:]]
    found = compared(tmp_path, [chunks[0], joined, *rest])

    assert 1 == found.stamps.num_lost_boundaries


def test_send_that_the_kernel_held_back_has_no_truth(tmp_path: Path):
    """Nobody knows when it arrived, so it counts for nothing."""
    true = truth()
    held = replace(true.deliveries[3], arrival=Bracket(ANCHOR_NS + ms(140), None))
    parts = (*true.deliveries[:3], held, true.deliveries[4])
    found = compared(tmp_path, chunks_at(GOOD), replace(true, deliveries=parts))

    assert (1, 4) == (found.stamps.num_unbounded, found.stamps.num_exact)


def test_underrun_that_both_have_is_right(tmp_path: Path):
    """The fourth chunk came 30 ms late, and the report says so."""
    late = (20.0, 60.0, 100.0, 170.0, 180.0)
    found = compared(tmp_path, chunks_at([at + WIDTH_MS / 2 for at in late]), truth(late))
    playback = found.playback

    assert (1, 1, 0, 0) == (
        playback.num_true, playback.num_reported, playback.num_missed, playback.num_invented
    )  # fmt: skip
    assert playback.stall_error_ms.max <= 2 * WIDTH_MS


def test_underrun_of_the_report_alone_is_invented(tmp_path: Path):
    """A wrong stamp that claims to be exact."""
    found = compared(tmp_path, chunks_at([*GOOD[:3], GOOD[3] + 20, GOOD[4]])).playback

    assert (0, 1, 1) == (found.num_true, found.num_reported, found.num_invented)


def test_underrun_of_the_truth_alone_is_missed(tmp_path: Path):
    """The chunk came 20 ms late, the stamp says in time."""
    late = (*PLAN_MS[:3], PLAN_MS[3] + 20, PLAN_MS[4] + 20)
    found = compared(tmp_path, chunks_at(GOOD), truth(late)).playback

    assert (1, 0, 1) == (found.num_true, found.num_reported, found.num_missed)


def test_stall_that_the_truth_itself_cannot_tell_is_left_out(tmp_path: Path):
    """0.98 to 1.08 ms, where an underrun begins at 1."""
    late = (*PLAN_MS[:3], PLAN_MS[3] + 1.03, PLAN_MS[4])
    found = compared(tmp_path, chunks_at([at + WIDTH_MS / 2 for at in late]), truth(late)).playback

    assert (1, 0, 0) == (found.num_ambiguous, found.num_missed, found.num_invented)


def test_undecided_stall_is_neither_right_nor_wrong(tmp_path: Path):
    """20 ms late by a stamp that may be 40 ms late itself."""
    chunks = chunks_at([*GOOD[:3], GOOD[3] + 20, GOOD[4]])
    chunks[3] = replace(chunks[3], floor_ns=ms(120), is_exact=False)
    found = compared(tmp_path, chunks).playback

    assert (1, 1, 0) == (
        found.num_undecided, found.num_replies_undecided, found.num_invented
    )  # fmt: skip
    assert 1.0 == found.undecided_share


def test_bytes_of_another_request_are_found_by_their_marks(tmp_path: Path):
    """The third chunk belongs to request 9."""
    ours, theirs = payload(1), payload(9)
    mixed = ours[: 2 * CHUNK_BYTES] + theirs[2 * CHUNK_BYTES : 3 * CHUNK_BYTES]
    found = compared(tmp_path, chunks_at(GOOD), data=mixed + ours[3 * CHUNK_BYTES :])

    assert (5, 1) == (found.identity.num_marks, found.identity.num_wrong_marks)


def test_broken_reply_is_known_by_its_mark_and_judged_by_its_script(tmp_path: Path):
    """No header told its number; it should have been cut off, and was."""
    script = cut_off(SCRIPT, "cut", chunk=2, ending=Ending.CLOSE)
    cut = record(
        chunks=chunks_at(GOOD[:3]),
        transport_outcome=TransportOutcome.TRUNCATED,
        server_timing=None,
    )
    folder = run_folder(tmp_path, [(cut, payload()[: 3 * CHUNK_BYTES])], clock=CLOCK)
    found = measure_accuracy(folder, {1: truth(PLAN_MS[:3], script=script)})

    assert (1, 0, ()) == (
        found.identity.num_requests, found.identity.num_unmatched, found.identity.wrong_outcomes
    )  # fmt: skip
    assert 3 == found.stamps.num_inside


def test_ending_that_was_not_played_is_named(tmp_path: Path):
    """The reply came whole and is called truncated."""
    outcome = TransportOutcome.TRUNCATED
    found = compared(tmp_path, chunks_at(GOOD), transport_outcome=outcome)

    assert ("fake-r2-s1-1 (tone): truncated, expected ok",) == found.identity.wrong_outcomes


def test_request_that_left_before_it_was_sent_is_impossible(tmp_path: Path):
    """The server read it at 0.2 ms; a `sent_ns` of 5 ms is a lie."""
    found = compared(tmp_path, chunks_at(GOOD), sent_ns=ms(5))

    assert 1 == found.timing.num_impossible_sends


def test_reads_count_once_and_by_window(tmp_path: Path):
    """Five reads, 6 ms late each: no quiet window."""
    found = compared(tmp_path, chunks_at(GOOD, late_ms=6)).timing

    assert (5, 1, 0) == (found.read_lag_ms.n, found.num_windows, found.num_quiet_windows)
    assert 6 == pytest.approx(found.read_lag_ms.p50)


def test_lines_follow_the_load(tmp_path: Path):
    """All are met by a run that is right; a figure that is missing meets none."""
    found = compared(tmp_path, chunks_at(GOOD))
    few, many = (bars_for(found, streams=number) for number in (10, 500))

    assert all(bar.is_met for bar in few)
    assert [(1.0, 1.0), (0.999, 5.0)] == [(bars[0].limit, bars[2].limit) for bars in (few, many)]
    assert not replace(few[0], value=None).is_met
    assert not replace(few[3], value=1.01).is_met


def test_run_of_another_system_cannot_be_compared(tmp_path: Path):
    """It has no CLOCK_MONOTONIC to lay the log beside."""
    clock = {name: value for name, value in CLOCK.items() if name != "anchor_monotonic_ns"}
    folder = run_folder(tmp_path, [(request(chunks_at(GOOD)), payload())], clock=clock)

    with pytest.raises(RunDataError, match="anchor_monotonic_ns"):
        measure_accuracy(folder, {1: truth()})
