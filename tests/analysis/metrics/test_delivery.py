"""Delivery metrics describe bunching and have no better direction."""

from __future__ import annotations

import pytest

from analysis.metrics import Better, registry
from tests.builders.audio import tone
from tests.builders.runs import chunk
from tests.builders.views import measure, view

STEADY = [(100 + 80 * i, tone(100)) for i in range(20)]
BURSTS = [(820 if i < 10 else 1620, tone(100)) for i in range(20)]


def test_delivery_in_bursts_is_named_coalesced():
    """18 of its 19 gaps are below 1 ms; of the steady one none."""
    assert 18 / 19 == pytest.approx(measure("coalesced_share", view(BURSTS)))
    assert 0 == measure("coalesced_share", view(STEADY))


def test_median_gap_would_praise_the_bursts():
    """0 ms against 80; that is why it has no better direction."""
    assert (0, 80) == (measure("gap_median", view(BURSTS)), measure("gap_median", view(STEADY)))
    assert Better.NEITHER is registry()["gap_median"].better


def test_latency_tells_which_path_is_worse():
    """First sound at 100 ms or at 820."""
    assert 100 == pytest.approx(measure("audible_ttfa", view(STEADY)), abs=2)
    assert 820 == pytest.approx(measure("audible_ttfa", view(BURSTS)), abs=2)
    assert (0, 0) == tuple(measure("stall_total", view(path)) for path in (STEADY, BURSTS))


def test_bytes_per_read_counts_reads_not_chunks():
    """Three chunks of 4,800 bytes in two reads."""
    chunks = [
        chunk(at_ms=10, num_bytes=4800),
        chunk(at_ms=20, num_bytes=4800, seq=1, offset=4800),
        chunk(at_ms=20, num_bytes=4800, seq=2, offset=9600),
    ]

    assert 7200 == measure("bytes_per_read", view([(0, tone(300))], chunks=chunks))
    assert 3 == measure("num_chunks", view([(0, tone(300))], chunks=chunks))


@pytest.mark.parametrize("name", ["gap_median", "coalesced_share"])
def test_one_chunk_has_no_gap(name):
    """Null."""
    assert measure(name, view([(10, tone(100))])) is None


@pytest.mark.parametrize("name", ["num_chunks", "bytes_per_read"])
def test_nothing_received_has_no_delivery(name):
    """Null, not 0."""
    assert measure(name, view()) is None
