"""Open-loop load: on time, whatever becomes of the requests."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter_ns as now_ns
from typing import Any

import pytest

from engines.base import Buffer, Exchange, SpeechRequest
from engines.errors import ContractError
from harness.dispatcher import Progress
from harness.preparation import is_chosen
from harness.records import Phase, PointRecord, RequestRecord
from harness.schedule import Arrival
from harness.settings import (
    CancelFrom,
    CancelSettings,
    ConnectionSettings,
    SlowReaderSettings,
    TimeoutSettings,
    WireSettings,
)
from harness.wire.http_message import ResponseParser
from tests.builders.servers import (
    ScriptedServer,
    Wait,
    WaitForClose,
    chunked,
    ok,
    paced,
    refusal,
)
from tests.builders.wire import MemorySink, PlainAdapter, PlainExchange, every, ms, run_load

PCM = bytes(480)


def _busy(duration_ms: float) -> Callable[[], None]:
    def work() -> None:
        end_ns = time.perf_counter_ns() + ms(duration_ms)
        while time.perf_counter_ns() < end_ns:
            pass

    return work


@pytest.mark.slow
def test_rate_holds_against_work_in_every_dispatch():
    """400 requests at 200 a second with 0.4 ms of work in each: relative waits would give 185.

    Absolute deadlines do not drift: the last request leaves as late as any, and the rate is the
    one that was asked for."""
    with ScriptedServer(ok(b"")) as server:
        adapter = PlainAdapter(server.base_url, on_open=_busy(0.4))
        ran = run_load(
            adapter, every(5, 400), wire=WireSettings(connections=ConnectionSettings(pool=4))
        )
    sent = [record.dispatched_ns for record in ran.records]
    lags = [record.dispatched_ns - record.scheduled_ns for record in ran.records]
    # Middle halves, so that one bad moment of the host decides nothing.
    early, late = sorted(lags[:200])[100], sorted(lags[200:])[100]

    assert ["ok"] * 400 == ran.outcomes
    assert 400 == len(server.requests)
    assert min(lags) >= 0, "nothing leaves early"
    assert late - early < ms(5), "the lag must not grow"
    assert 199 < 399 / ((sent[-1] - sent[0] - (lags[-1] - lags[0])) / 1e9) < 201
    lag = ran.point.selfcheck["dispatch_lag_ms"]
    assert (400, round(max(lags) / 1e6, 4)) == (lag["n"], lag["max"])
    assert sorted(lags)[199] / 1e6 == pytest.approx(lag["p50"], rel=0.04, abs=1e-3)
    assert lag["p50"] <= lag["p99"] <= lag["max"]


def test_nothing_waits_for_a_completion():
    """Ten requests 2 ms apart against a server that answers after 100 ms: all are in flight; an
    eleventh, long after them, is alone."""
    late = Arrival(10, Phase.MEASURE, ms(300), "p", 0)
    with ScriptedServer([(Wait(100), *ok(PCM))]) as server:
        ran = run_load(PlainAdapter(server.base_url), (*every(2, 10), late))
    dispatched = [record.dispatched_ns for record in ran.records[:10]]
    finished = [record.finished_ns for record in ran.records]

    assert max(dispatched) < min(finished)
    assert 10 == ran.point.selfcheck["max_in_flight"]


def test_every_request_is_prepared_before_its_moment():
    """The first one too: what an adapter needs to write a request down delays nobody."""
    opened: list[int] = []
    with ScriptedServer(ok(PCM)) as server:
        adapter = PlainAdapter(server.base_url, on_open=lambda: opened.append(now_ns()))
        ran = run_load(adapter, every(60, 3))
    moments = [r.scheduled_ns + ran.clock.monotonic_ns(0) for r in ran.records]

    assert [True] * 3 == [at < due for at, due in zip(opened[1:], moments, strict=True)]


def test_same_plan_whatever_the_server_does():
    """Scheduled times come from the plan alone."""
    with ScriptedServer(ok(PCM)) as fast, ScriptedServer(refusal()) as slow:
        runs = [run_load(PlainAdapter(s.base_url), every(3, 5)) for s in (fast, slow)]
    plans = [[record.scheduled_ns - ran.point.start_ns for record in ran.records] for ran in runs]

    assert [0, ms(3), ms(6), ms(9), ms(12)] == plans[0] == plans[1]


def test_cap_on_requests_in_flight_is_recorded_not_waited_for():
    """The arrivals beyond it are not sent, and say so."""
    with ScriptedServer([(Wait(60), *ok(PCM))]) as server:
        ran = run_load(PlainAdapter(server.base_url), every(2, 6), max_in_flight=4)

    assert ["ok"] * 4 + ["not_sent"] * 2 == ran.outcomes
    assert [None, None] == [record.dispatched_ns for record in ran.records[4:]]
    assert 4 == len(server.requests)
    assert "limits.max_in_flight" in ran.records[4].error_text


def test_end_of_drain_is_a_timeout():
    """Whoever is still in flight then was too slow; it was not cancelled."""
    with ScriptedServer((WaitForClose(),)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(2, 3), drain_s=0.05)

    assert [("timeout", "drain_end")] * 3 == [
        (record.transport_outcome.value, record.error_kind) for record in ran.records
    ]
    assert ran.point.is_complete


def test_drain_begins_where_the_measurement_ends():
    """A reply may come as late as the whole drain after it."""
    with ScriptedServer([(Wait(500), *ok(PCM))]) as server:
        ran = run_load(PlainAdapter(server.base_url), every(1, 1), measure_s=0.3, drain_s=0.4)

    assert ["ok"] == ran.outcomes


def test_drain_ends_when_nothing_is_in_flight():
    """No point waits for its drain in vain."""
    with ScriptedServer(ok(PCM)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(2, 3), drain_s=60.0)

    assert ran.point.drain_end_ns - ran.point.measure_end_ns < 10e9
    assert ran.point.start_ns <= ran.point.warmup_end_ns <= ran.point.measure_end_ns


def test_stop_ends_the_point_with_everything_recorded():
    """Interrupted: no more is sent, what was in flight is recorded, the point is not complete."""
    with ScriptedServer((WaitForClose(),)) as server:
        ran = run_load(
            PlainAdapter(server.base_url),
            every(10, 100),
            stop_when=lambda: len(server.requests) >= 3,
        )

    assert 3 <= len(ran.records) < 50
    assert {("cancelled", "interrupted")} == {
        (record.transport_outcome.value, record.error_kind) for record in ran.records
    }
    assert not ran.point.is_complete
    assert ran.point.selfcheck["dispatch_lag_ms"]["n"] >= 3


def test_cancelled_task_records_what_was_in_flight():
    """Ctrl-C arrives as a cancellation."""
    sink = MemorySink()

    def cancel_soon(main: Any) -> None:
        async def outer() -> None:
            task = asyncio.ensure_future(main)
            while len(server.requests) < 3:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(outer())

    with ScriptedServer((WaitForClose(),)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(10, 100), runner=cancel_soon, sink=sink)

    assert {"cancelled"} == set(ran.outcomes)


def test_sink_that_fails_ends_the_run_with_its_own_error():
    """A full disk is not to be found out at the end."""

    class Full(MemorySink):
        def append(self, record: RequestRecord, payload: Sequence[Buffer]) -> None:
            super().append(record, payload)
            raise OSError("disk full")

    sink = Full()
    with ScriptedServer(ok(PCM)) as server, pytest.raises(OSError, match="disk full"):
        run_load(PlainAdapter(server.base_url), every(5, 100), sink=sink)

    assert len(sink.records) < 50


def test_sink_that_fails_at_the_very_end_leaves_the_point_incomplete():
    """A point whose last record was lost must be run again."""

    class Full(MemorySink):
        def append(self, record: RequestRecord, payload: Sequence[Buffer]) -> None:
            raise OSError("disk full")

    point = PointRecord("point", "plain", 0.0, 1, 1)
    with ScriptedServer((WaitForClose(),)) as server, pytest.raises(OSError, match="disk full"):
        run_load(PlainAdapter(server.base_url), every(1, 1), drain_s=0.02, sink=Full(), point=point)

    assert point.drain_end_ns is not None
    assert not point.is_complete


def test_request_the_contract_cannot_say_is_our_error():
    """Recorded like any other; the rest goes on."""
    texts = iter([ContractError("too long"), None])

    def refuse_once() -> None:
        # The first call is the one that warms the pool.
        error = next(texts, None) if refuse_once.calls else None  # type: ignore[attr-defined]
        refuse_once.calls += 1  # type: ignore[attr-defined]
        if error is not None:
            raise error

    refuse_once.calls = 0  # type: ignore[attr-defined]
    with ScriptedServer(ok(PCM)) as server:
        ran = run_load(PlainAdapter(server.base_url, on_open=refuse_once), every(3, 3))

    assert ["client_error", "ok", "ok"] == ran.outcomes
    assert ("ContractError", "too long") == (ran.records[0].error_kind, ran.records[0].error_text)


def test_bytes_are_what_the_server_sent():
    """Chunks, body and server agree, and the payload is the body."""
    pieces = [bytes([n]) * 100 for n in range(5)]
    with ScriptedServer(chunked(pieces)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(4, 4))

    assert [b"".join(pieces)] * 4 == ran.payloads
    assert [500] * 4 == [record.body_bytes for record in ran.records]
    assert [500] * 4 == [sum(c.num_bytes for c in record.chunks) for record in ran.records]


def test_gaps_and_reads_are_counted_over_all_requests():
    """As the records have them: how many gaps between chunks, and how many below a millisecond;
    every read that the kernel stamped has its delay."""
    with ScriptedServer(paced([(1, PCM), (0, PCM), (3, PCM), (0, PCM)])) as server:
        ran = run_load(PlainAdapter(server.base_url), every(10, 3), measure_s=0.3)
    gaps = [
        later.arrival_ns - earlier.arrival_ns
        for record in ran.records
        for earlier, later in pairwise(record.chunks)
    ]

    assert 9 == len(gaps)
    assert {"num": 9, "below_1ms": sum(gap < 1_000_000 for gap in gaps)} == (
        ran.point.selfcheck["coalesced"]
    )
    assert (
        ran.point.selfcheck["reads"]["kernel_stamps"] == (ran.point.selfcheck["self_delay_ms"]["n"])
    )


def test_arrivals_lie_in_the_servers_send_brackets_under_load():
    """Real-time pacing, many streams: kernel stamps fall between before and after each send."""
    with ScriptedServer(paced([(2, PCM), (5, PCM), (5, PCM)])) as server:
        ran = run_load(PlainAdapter(server.base_url), every(3, 30))
    order = {request.header("x-request-id"): n for n, request in enumerate(server.requests)}
    num_inside = num_exact = 0
    for record in ran.records:
        sends = [send for send in server.sends if send.request == order[record.request_id]]
        # Head, three pieces, zero chunk.
        for send, chunk in zip(sends[1:4], record.chunks, strict=True):
            if chunk.is_exact:
                num_exact += 1
                before = ran.clock.from_monotonic_ns(send.before_ns) - ran.clock.uncertainty_ns
                after = ran.clock.from_monotonic_ns(send.after_ns) + ran.clock.uncertainty_ns
                num_inside += before <= chunk.arrival_ns <= after

    assert num_inside == num_exact > 0


# -- behaviour ------------------------------------------------------------------------------------


def test_a_share_of_requests_is_cancelled():
    """Which ones is fixed by the seed, whatever the engine."""
    cancel = CancelSettings(0.5, after_s=0.01, counted_from=CancelFrom.DISPATCH, seed=3)
    with ScriptedServer(paced([(1, PCM), (60, PCM)])) as server:
        ran = run_load(PlainAdapter(server.base_url), every(4, 12), cancel=cancel)
    expected = ["cancelled" if is_chosen(0.5, 3, index) else "ok" for index in range(12)]

    assert expected == ran.outcomes
    assert {"ok", "cancelled"} == set(expected)


def test_slow_reader_holds_the_server_back():
    """8,000 bytes at 40,000 a second take 200 ms, though the server has them at once; the
    connection, whose window was made small, is not used again."""
    slow = SlowReaderSettings(1.0, 40_000)
    with ScriptedServer(ok(bytes(8000))) as server:
        ran = run_load(PlainAdapter(server.base_url), every(1, 1), slow_reader=slow)
    record = ran.records[0]

    assert ["ok"] == ran.outcomes
    assert record.chunks[-1].read_ns - record.sent_ns >= ms(150)
    assert 8000 == record.audio_bytes


def test_share_is_met_over_many_arrivals():
    """A quarter of 10,000 is 2,500, give or take."""
    assert 2350 < sum(is_chosen(0.25, 1, index) for index in range(10_000)) < 2650
    assert not any(is_chosen(0.0, 1, index) for index in range(100))
    assert all(is_chosen(1.0, 1, index) for index in range(100))


# -- what it tells --------------------------------------------------------------------------------


def test_progress_and_telemetry_are_told():
    """Four times a second, and once a second."""
    progress, rows = [], []
    with ScriptedServer(ok(PCM)) as server:
        run_load(
            PlainAdapter(server.base_url),
            every(50, 22),
            on_progress=progress.append,
            on_telemetry=rows.extend,
        )

    assert (22, 22, 22, 0) == (
        progress[-1].num_planned,
        progress[-1].num_arrived,
        progress[-1].num_finished,
        progress[-1].num_failed,
    )
    assert {"loop_lag_max_ms", "cpu_process", "cpu_loop_thread", "in_flight", "rss_mb"} == {
        row.name for row in rows
    }
    assert {("point", "selfcheck")} == {(row.point_id, row.source) for row in rows}


def test_failures_are_told_while_it_lasts():
    """Everything that did not end well."""
    progress: list[Progress] = []
    with ScriptedServer([refusal(), refusal(), ok(PCM)]) as server:
        run_load(PlainAdapter(server.base_url), every(20, 3), on_progress=progress.append)

    assert (3, 2) == (progress[-1].num_finished, progress[-1].num_failed)


def test_warm_up_is_sent_and_left_out_of_the_self_check():
    """Three requests before the measurement, two in it."""
    with ScriptedServer(ok(PCM)) as server:
        ran = run_load(
            PlainAdapter(server.base_url),
            every(10, 5, num_warmup=3),
            warmup_s=0.025,
            measure_s=0.05,
        )
    point = ran.point

    assert ["ok"] * 5 == ran.outcomes
    assert 2 == point.selfcheck["dispatch_lag_ms"]["n"]
    assert (ms(25), ms(75)) == (
        point.warmup_end_ns - point.start_ns,
        point.measure_end_ns - point.start_ns,
    )


def test_what_comes_after_the_measurement_is_not_in_its_self_check():
    """A reply that comes in the drain is read, but judges nothing that was measured."""
    with ScriptedServer([(Wait(150), *ok(PCM))]) as server:
        ran = run_load(PlainAdapter(server.base_url), every(1, 1), measure_s=0.02)
    told = ran.point.selfcheck

    assert ["ok"] == ran.outcomes
    assert (1, 0) == (told["reads"]["kernel_stamps"], told["self_delay_ms"]["n"])


def test_everything_is_put_back():
    """Callbacks of the collector, its frozen objects, descriptors, tasks."""
    import os

    def num_descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = (len(gc.callbacks), num_descriptors())
    with ScriptedServer(ok(PCM)) as server:
        run_load(PlainAdapter(server.base_url), every(2, 5))

    assert before == (len(gc.callbacks), num_descriptors())
    assert 0 == gc.get_freeze_count()


def test_finished_requests_leave_nothing_for_the_collector():
    """No cycles: with the collector off, everything of a request is gone with its record."""
    opened: list[weakref.ref[PlainExchange]] = []

    class Watched(PlainAdapter):
        def open(self, request: SpeechRequest) -> Exchange:
            exchange = super().open(request)
            opened.append(weakref.ref(exchange))  # type: ignore[arg-type]
            return exchange

    class Forgetful(MemorySink):
        def append(self, record: RequestRecord, payload: Sequence[Buffer]) -> None:
            left.append(sum(ref() is not None for ref in opened))

    left: list[int] = []
    script = [ok(PCM), chunked([PCM], is_complete=False), refusal(), chunked([PCM, PCM])]
    gc.collect()
    gc.disable()
    try:
        with ScriptedServer(lambda request: script[len(left) % 4]) as server:
            run_load(Watched(server.base_url), every(8, 16), sink=Forgetful())
        num_left = sum(ref() is not None for ref in opened)
        # By type(): isinstance asks objects of other tests' libraries, and some of those answer.
        parsers = [o for o in gc.get_objects() if type(o) is ResponseParser]
    finally:
        gc.enable()

    assert 17 == len(opened)  # one warmed the pool
    assert 0 == num_left
    assert [] == parsers


@pytest.mark.parametrize("use_timerfd", [True, False])
@pytest.mark.parametrize("is_kernel_stamped", [True, False])
def test_fallbacks_work_and_are_named(use_timerfd: bool, is_kernel_stamped: bool):
    """Without kernel stamps or timer descriptors it still measures, and says how."""
    wire = WireSettings(is_kernel_stamped=is_kernel_stamped, timeouts=TimeoutSettings())
    with ScriptedServer(ok(PCM)) as server:
        ran = run_load(
            PlainAdapter(server.base_url), every(2, 5), wire=wire, use_timerfd=use_timerfd
        )
    told = ran.point.selfcheck

    assert ["ok"] * 5 == ran.outcomes
    assert ("timerfd" if use_timerfd else "loop") == told["pacing"]
    assert ("kernel" if is_kernel_stamped else "user") == told["stamp_source"]
    assert is_kernel_stamped is (told["reads"]["user_stamps"] == 0)
    assert is_kernel_stamped is all(c.is_exact for r in ran.records for c in r.chunks)


def test_plain_asyncio_works_too():
    """Where uvloop does not install."""
    with ScriptedServer(ok(PCM)) as server:
        ran = run_load(PlainAdapter(server.base_url), every(2, 5), runner=asyncio.run)

    assert ["ok"] * 5 == ran.outcomes
    assert "asyncio" == ran.point.selfcheck["loop"]


def test_point_without_arrivals_is_complete():
    """A rate so low that nothing fell into the window."""
    ran = run_load(PlainAdapter("http://127.0.0.1:1"), (), measure_s=0.01)

    assert ran.point.is_complete
    assert [] == ran.records
