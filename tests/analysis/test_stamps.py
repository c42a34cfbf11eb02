"""How uncertain an arrival is, by how its read went."""

from __future__ import annotations

from dataclasses import replace

from analysis.stamps import StampRule, chunk_uncertainties, stamp_rule
from harness.records import StampSource
from tests.builders.runs import chunk

KERNEL = StampRule(StampSource.KERNEL, 100)
USER = StampRule(StampSource.USER, 0)
MS = 1_000_000


def test_delivery_alone_in_its_read_is_as_sure_as_the_conversion():
    """Its kernel stamp is its own."""
    chunks = [chunk(at_ms=10, num_bytes=1, read_ms=11, floor_ms=2)]

    assert (100,) == chunk_uncertainties(chunks, KERNEL)


def test_earlier_deliveries_of_a_read_came_since_the_socket_was_empty():
    """Three in one read, drained last at 4 ms and stamped 10: the first two are unsure by 6 ms."""
    read = [chunk(at_ms=10, num_bytes=1, seq=i, read_ms=11, floor_ms=4) for i in range(3)]
    chunks = [*(replace(each, is_exact=False) for each in read[:2]), read[2]]

    assert (6 * MS + 100, 6 * MS + 100, 100) == chunk_uncertainties(chunks, KERNEL)


def test_deliveries_that_came_in_one_segment_share_its_stamp():
    """The harness calls all of them exact."""
    chunks = [chunk(at_ms=10, num_bytes=1, seq=i, read_ms=11, floor_ms=4) for i in range(3)]

    assert (100, 100, 100) == chunk_uncertainties(chunks, KERNEL)


def test_last_arrival_of_the_read_before_bounds_it_from_below():
    """The floor says 2 ms, but the read before brought something that came at 8."""
    chunks = [
        chunk(at_ms=8, num_bytes=1, read_ms=9, floor_ms=2),
        replace(chunk(at_ms=10, num_bytes=1, seq=1, read_ms=11, floor_ms=2), is_exact=False),
        chunk(at_ms=10, num_bytes=1, seq=2, read_ms=11, floor_ms=2),
    ]

    assert (100, 2 * MS + 100, 100) == chunk_uncertainties(chunks, KERNEL)


def test_read_that_left_bytes_behind_bounds_nothing():
    """Its stamp, 10 ms, is of bytes still queued: what is read next came at some time since 2."""
    chunks = [
        replace(chunk(at_ms=10, num_bytes=1, read_ms=11, floor_ms=2), is_exact=False),
        replace(chunk(at_ms=10, num_bytes=1, seq=1, read_ms=12, floor_ms=2), is_exact=False),
        chunk(at_ms=10, num_bytes=1, seq=2, read_ms=12, floor_ms=2),
    ]

    assert (8 * MS + 100, 8 * MS + 100, 100) == chunk_uncertainties(chunks, KERNEL)


def test_user_stamp_is_as_unsure_as_the_socket_was_unwatched():
    """Nothing says when in [4, 10] the bytes came."""
    chunks = [chunk(at_ms=10, num_bytes=1, read_ms=10, floor_ms=4)]

    assert (6 * MS,) == chunk_uncertainties(chunks, USER)


def test_conversion_error_is_the_median_of_those_kept():
    """The first reading, before the offset was pinned down, does not decide."""
    clock = {"stamp_source": "kernel", "offsets": [[0, 0, 9000], [1, 1, 120], [2, 2, 110]]}

    assert StampRule(StampSource.KERNEL, 120) == stamp_rule(clock)


def test_user_stamps_need_no_conversion():
    """They are on the run clock already."""
    clock = {"stamp_source": "user", "offsets": [[0, 0, 9000]]}

    assert StampRule(StampSource.USER, 0) == stamp_rule(clock)
