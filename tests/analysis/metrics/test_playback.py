"""Continuity metrics: per reply and per point."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from analysis.metrics import PointData, PointMetric, registry
from analysis.playback import buffer_ms, delay_ms
from analysis.view import AnalysisSettings
from engines.outcomes import TransportOutcome
from tests.builders.audio import tone
from tests.builders.runs import chunk, ms, point
from tests.builders.views import measure, view

# 80 ms at 100, 640 at 400, 640 at 900: dry at 180, one stall of 220 ms.
STALLED = [(100, tone(80)), (400, tone(640)), (900, tone(640))]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_underruns", 1),
        ("num_undecided", 0),
        ("stall_total", 220),
        ("stall_longest", 220),
        ("required_delay", 220),
        ("min_slack", -220),
    ],
)
def test_reply_with_one_stall(name, value):
    """The stall, the delay that would have avoided it, the deadline it missed by that much."""
    assert value == measure(name, view(STALLED))


def test_steady_reply_has_slack_and_no_stall():
    """100 ms every 80 ms: the second chunk comes 20 ms before it is due."""
    of = view([(100 + 80 * i, tone(100)) for i in range(5)])

    assert (0, 20) == (measure("stall_total", of), measure("min_slack", of))


def test_stall_that_the_stamps_cannot_prove_is_counted_apart():
    """One read completed both chunks and may have come 60 ms late; the stall is 20 ms."""
    late = chunk(at_ms=120, num_bytes=4800, seq=1, offset=4800, floor_ms=60)
    chunks = [
        chunk(at_ms=0, num_bytes=4800),
        replace(late, is_exact=False),
        chunk(at_ms=120, num_bytes=480, seq=2, offset=9600, floor_ms=60),
    ]
    of = view([(0, tone(100)), (120, tone(100)), (120, tone(10))], chunks=chunks)

    assert (0, 1) == (measure("num_underruns", of), measure("num_undecided", of))


@pytest.mark.parametrize("name", ["num_underruns", "stall_total", "required_delay", "min_slack"])
def test_reply_in_one_chunk_is_not_applicable(name):
    """Never "smooth"."""
    assert measure(name, view([(100, tone(900))])) is None


@pytest.mark.parametrize("name", ["num_underruns", "required_delay"])
def test_failed_reply_has_no_continuity(name):
    """What was cut off is no sign of a smooth or a stalled reply."""
    assert measure(name, view(STALLED, transport_outcome=TransportOutcome.TRUNCATED)) is None


@pytest.mark.parametrize(("left_ms", "waits_ms"), [(450, (220, 220)), (390, (None, None))])
def test_nobody_waits_for_what_comes_after_the_cancel(left_ms, waits_ms):
    """The third chunk came when the listener was gone; at 390 not even the second was there."""
    pieces = [(100, tone(80)), (400, tone(640)), (2000, tone(640))]
    of = view(pieces, transport_outcome=TransportOutcome.CANCELLED, cancel_ns=ms(left_ms))

    assert waits_ms == (measure("stall_total", of), measure("required_delay", of))


@pytest.mark.parametrize("start", [buffer_ms(1000), delay_ms(500)])
def test_player_that_had_not_begun_when_the_listener_left_played_nothing(start):
    """720 ms of sound were in at 500: too little for the buffer; the delay ends at 600."""
    of = view(
        STALLED,
        transport_outcome=TransportOutcome.CANCELLED,
        cancel_ns=ms(500),
        settings=AnalysisSettings(start=start),
    )

    assert (None, None) == (measure("audible_ttfa", of), measure("num_underruns", of))
    assert 100 == measure("audible_received", of)


def of_point(name: str, columns: dict[str, list[float | None]]):
    metric = registry()[name]
    assert isinstance(metric, PointMetric)
    cohort = pd.DataFrame({key: pd.array(v, dtype="Float64") for key, v in columns.items()})
    return metric.compute(PointData(point(), cohort, len(cohort)))


def test_underrun_rate_is_over_replies_that_could_stall():
    """One of three; the fourth came in one chunk and is missing."""
    found = of_point("underrun_rate", {"num_underruns": [0.0, 2.0, 0.0, None]})

    assert (1 / 3, 3, 1) == (found.value, found.n, found.missing)


def test_underrun_length_is_over_replies_that_stutter():
    """The longest stalls of three are 300, 20 and 80 ms; one without an underrun is left out."""
    cohort = {
        "num_underruns": [0.0, 2.0, 1.0, 1.0, None],
        "stall_longest": [0.4, 300, 20, 80, None],
    }
    found = of_point("underrun_length", cohort)

    assert (80, 3, 1) == (found.value, found.n, found.missing)


def test_undecided_rate_is_a_share_of_replies():
    """One of four."""
    assert 0.25 == of_point("undecided_rate", {"num_undecided": [0.0, 0.0, 3.0, 0.0]}).value


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("pass_rate_0ms", 0.25),
        ("pass_rate_50ms", 0.5),
        ("pass_rate_100ms", 0.75),
        ("pass_rate_200ms", 0.75),
    ],
)
def test_pass_rate_counts_replies_that_need_no_longer_delay(name, share):
    """Required delays of 0, 50, 80 and 300 ms."""
    assert share == of_point(name, {"required_delay": [0.0, 50.0, 80.0, 300.0]}).value


def test_start_delay_for_1_percent_leaves_one_in_a_hundred():
    """Of 100 replies that need 1..100 ms, 99 ms leave one with a gap."""
    found = of_point(
        "start_delay_for_1_percent", {"required_delay": [float(i) for i in range(1, 101)]}
    )

    assert (99, 100) == (found.value, found.n)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("underrun_rate", "num_underruns"),
        ("pass_rate_0ms", "required_delay"),
        ("start_delay_for_1_percent", "required_delay"),
    ],
)
def test_point_without_a_reply_in_chunks_has_no_figure(name, column):
    """Null, not 0 and not 1."""
    found = of_point(name, {column: [None, None]})

    assert (None, 0, 2) == (found.value, found.n, found.missing)
