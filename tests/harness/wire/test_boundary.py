"""Where records and frames end, whatever the reads."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from harness.wire.boundary import FrameBoundary, RecordBoundary
from tests.builders.servers import head

ANSWER = head(101, upgrade="websocket", connection="Upgrade")


def _check(boundary: FrameBoundary | RecordBoundary, units: Sequence[bytes], step: int) -> None:
    """Exactly the reads that end with a whole unit say so."""
    stream = b"".join(units)
    ends, position = set(), 0
    for unit in units:
        position += len(unit)
        ends.add(position)
    for start in range(0, len(stream), step):
        end = min(start + step, len(stream))
        assert (end in ends) is boundary.feed(stream[start:end])


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.integers(1, 50))
def test_record_borders_are_found_whatever_the_reads(sizes: list[int], step: int):
    """By their lengths."""
    records = [b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size) for size in sizes]
    _check(RecordBoundary(), records, step)


@given(
    st.lists(st.sampled_from([0, 1, 100, 125, 126, 127, 400, 65_535, 65_536]), max_size=5),
    st.integers(1, 400),
    st.booleans(),
)
def test_frame_borders_are_found_whatever_the_reads(sizes: list[int], step: int, is_masked: bool):
    """Of every length there is, behind the answer that opens the session."""
    frames = [Frame(Opcode.BINARY, bytes(size)).serialize(mask=is_masked) for size in sizes]
    _check(FrameBoundary(), [ANSWER, *frames], step)


def test_silence_behind_silence_does_not_look_like_its_end():
    """A whole frame of zeros with part of another behind it ends as the first one does."""
    boundary, frame = FrameBoundary(), Frame(Opcode.BINARY, bytes(100)).serialize(mask=False)
    boundary.feed(ANSWER)

    assert not boundary.feed(frame + frame[:-50])
    assert boundary.feed(frame[-50:])
