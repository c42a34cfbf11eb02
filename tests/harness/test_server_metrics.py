"""The server's own metrics, sampled while it is under load."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from engines import registry
from engines.base import HttpTarget
from harness.clock import RunClock
from harness.records import TelemetrySample
from harness.server_metrics import parse_exposition, sample_server
from tests.builders.servers import Close, Reply, ScriptedServer, Wait, Write, head, ok

PAGE = """
# HELP queue_length Requests that wait.
# TYPE queue_length gauge
queue_length 3.0
steps_total{stage="codec",rows="a b"} 17
steps_created{stage="codec"} 1.7e9
wait_seconds_bucket{le="0.1"} 4
wait_seconds_sum 0.25
ratio NaN
limit +Inf
stamped 5 1700000000000
not a line at all {
"""


def test_values_are_kept_by_name_and_labels():
    """Buckets, times of creation and what is not finite are left out; so is what is no line."""
    expected = {
        "queue_length": 3.0,
        'steps_total{stage="codec",rows="a b"}': 17.0,
        "wait_seconds_sum": 0.25,
        "stamped": 5.0,
    }

    assert expected == parse_exposition(PAGE)


def test_a_page_without_end_is_cut():
    """A server cannot fill the run's folder."""
    page = "\n".join(f"metric_{n} {n}" for n in range(10_000))

    assert 500 == len(parse_exposition(page))


def _sample(url: str, count: int, *, limit_s: float = 4.0) -> list[TelemetrySample]:
    rows: list[TelemetrySample] = []
    is_enough = asyncio.Event()

    async def go() -> None:
        def take(samples: object) -> None:
            rows.extend(samples)  # type: ignore[call-overload]
            if len(rows) >= count:
                is_enough.set()

        task = asyncio.create_task(
            sample_server(
                HttpTarget(url, method="GET"),
                point_id="p",
                clock=RunClock(),
                on_telemetry=take,
                interval_s=0.001,
                limit_s=limit_s,
            )
        )
        async with asyncio.timeout(10):
            await is_enough.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(go())
    return rows


def test_the_page_is_stored_again_and_again_with_its_moment():
    """Rows of the point, from the server, in order of time."""
    with ScriptedServer(lambda request: ok(b"queue_length 3\n", content_type="text/plain")) as one:
        rows = _sample(f"{one.base_url}/metrics", 3)

    assert {("p", "server", "queue_length", 3.0)} == {
        (row.point_id, row.source, row.name, row.value) for row in rows
    }
    assert sorted(row.time_ns for row in rows) == [row.time_ns for row in rows]


def test_a_page_that_cannot_be_had_is_a_sample_too():
    """The run goes on, and the gap has a reason."""
    with ScriptedServer(lambda request: ok(b"", content_type="text/plain")) as one:
        gone = one.base_url
    rows = _sample(f"{gone}/metrics", 2)

    assert {("scrape_failed", 1.0)} == {(row.name, row.value) for row in rows}


@pytest.mark.parametrize(
    "reply",
    [
        ok(b"", status=302, location="http://127.0.0.1:9/"),
        (Write(b"SSH-2.0-x\r\n\r\n"), Close()),
        (Write(head(200, content_length=100) + b"queue_length 3"), Close()),
        (Close(),),
    ],
)
def test_an_answer_that_is_no_page_is_a_sample_too(reply: Reply):
    """A redirect is not followed, and what is no HTTP does not end the sampling."""
    with ScriptedServer(reply) as one:
        rows = _sample(f"{one.base_url}/metrics", 2)

    assert {("scrape_failed", 1.0)} == {(row.name, row.value) for row in rows}


def test_a_page_that_trickles_is_given_up_and_holds_nobody():
    """Byte after byte in time for the network's limit: the thread ends with the page's own."""
    trickle = [step for _ in range(200) for step in (Write(b"a"), Wait(20))]
    with ScriptedServer((Write(head(200)), *trickle)) as one:
        rows = _sample(f"{one.base_url}/metrics", 1, limit_s=0.05)
        assert one.num_open <= 1

    assert ["scrape_failed"] == [row.name for row in rows]


@pytest.mark.parametrize(("name", "has_page"), [("reference", True), ("nari", False)])
def test_only_contracts_that_name_the_page_are_asked(name, has_page):
    """Asking others would be load that nobody agreed to."""
    target = registry.create(name).probe().metrics

    assert has_page == (target is not None)
    assert target is None or target.url.endswith(":8124/metrics")
