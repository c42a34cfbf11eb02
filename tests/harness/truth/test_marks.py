"""Marks in the lowest bits: there for a program, not for an ear."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.truth.marks import MARK_BYTES, Mark, clear, read_mark, stamp

SAMPLES = st.binary(min_size=MARK_BYTES, max_size=400).map(lambda data: data[: len(data) // 2 * 2])


@given(SAMPLES, st.integers(0, 2**24 - 1), st.integers(0, 2**16 - 1))
def test_mark_is_read_as_it_was_written(samples: bytes, request: int, chunk: int):
    """Whatever the samples are."""
    assert Mark(request, chunk) == read_mark(stamp(clear(samples), Mark(request, chunk)))


@given(SAMPLES)
def test_no_sample_moves_by_more_than_its_lowest_bit(samples: bytes):
    """One part in 32,768: -90 dBFS."""
    marked = stamp(clear(samples), Mark(77, 5))
    before, after = (np.frombuffer(data, "<i2").astype(int) for data in (samples, marked))

    assert np.abs(before - after).max() <= 1
    assert len(samples) == len(marked)


@given(st.binary(min_size=MARK_BYTES, max_size=MARK_BYTES), st.integers(0, MARK_BYTES // 2 - 1))
def test_damaged_mark_is_no_mark(samples: bytes, sample: int):
    """One flipped bit is enough."""
    marked = bytearray(stamp(clear(samples), Mark(123_456, 789)))
    marked[2 * sample] ^= 1

    assert read_mark(bytes(marked)) is None


def test_short_chunk_carries_none():
    """It is sent as it is."""
    short = bytes(range(100))

    assert short == stamp(clear(short), Mark(1, 1))
    assert read_mark(short) is None
