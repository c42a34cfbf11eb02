"""Open-loop load: every request leaves at its planned moment, whatever became of the others.

The dispatcher never waits for a completion. It hands each arrival to a recorder, counts what is in
flight against a safety cap, and passes finished records on. Retries, where the scenario wants any,
are made here and nowhere below, so that a record can tell how often it was tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from engines.base import Adapter, Buffer
from engines.redact import one_line
from harness.clock import Clock
from harness.loop import FaultTrap, loop_name
from harness.pacer import Pacer, Timer, make_waker
from harness.preparation import PlannedArrival, Prepared, Preparer
from harness.recorder import Recorder, RecorderTools
from harness.records import INTERRUPTED_KIND, PointRecord, RequestRecord, TransportOutcome
from harness.retry import next_attempt_ns, reset_for_retry
from harness.selfcheck import OnTelemetry, SelfCheck
from harness.settings import PointSettings
from harness.wire.context import Wire

__all__ = ["PlannedArrival", "Progress", "RecordSink", "run_point"]

_NS = 1_000_000_000
# Between the last preparation and the first arrival, so that the first is not late.
_LEAD_NS = 50_000_000
# A request whose moment is further away than this is prepared ahead.
_PREPARE_NS = 1_000_000
_PROGRESS_INTERVAL_NS = 250_000_000


class RecordSink(Protocol):
    """Who keeps finished requests (`harness.store.RunWriter`); must not block the loop."""

    def append(self, record: RequestRecord, payload: Sequence[Buffer]) -> None:
        """Take over one finished request."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a point is. `num_failed` counts everything that did not end `ok`."""

    point_id: str
    elapsed_s: float
    num_planned: int
    num_arrived: int
    num_finished: int
    num_failed: int
    num_in_flight: int


async def run_point(
    adapter: Adapter,
    arrivals: Sequence[PlannedArrival],
    *,
    point: PointRecord,
    texts: Mapping[str, str],
    settings: PointSettings,
    clock: Clock,
    sink: RecordSink,
    start_ns: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_telemetry: OnTelemetry | None = None,
    stop: asyncio.Event | None = None,
    use_timerfd: bool = True,
) -> PointRecord:
    """Send the arrivals of one point on time, wait out the drain, and fill in `point`.

    Args:
        adapter: whom to talk to.
        arrivals: in order of `scheduled_ns`, which counts from the start of the point.
        point: its stamps, `is_complete` and `selfcheck` are written here.
        texts: by prompt id.
        start_ns: the start on the run clock; default: as soon as connections are open.
        on_progress: called four times a second, on the loop.
        stop: once set, nothing more is sent and what is in flight ends as `cancelled`, kind
            `interrupted`; the point is then not complete. Cancelling the task does the same.

    Raises:
        Exception: whatever `sink` or a callback raised; what had finished is recorded by then.
    """
    run = _PointRun(
        adapter,
        arrivals,
        point=point,
        texts=texts,
        settings=settings,
        clock=clock,
        sink=sink,
        use_timerfd=use_timerfd,
    )
    await run.run(start_ns=start_ns, on_progress=on_progress, on_telemetry=on_telemetry, stop=stop)
    return point


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request between two attempts."""

    record: RequestRecord
    timer: Timer


class _PointRun:
    """The state of one point while it runs."""

    def __init__(
        self,
        adapter: Adapter,
        arrivals: Sequence[PlannedArrival],
        *,
        point: PointRecord,
        texts: Mapping[str, str],
        settings: PointSettings,
        clock: Clock,
        sink: RecordSink,
        use_timerfd: bool,
    ) -> None:
        self._arrivals = arrivals
        self._point = point
        self._settings = settings
        self._clock = clock
        self._sink = sink
        loop = asyncio.get_running_loop()
        self._loop = loop
        waker = make_waker(loop, clock, use_timerfd=use_timerfd)
        self._pacer = Pacer(clock, waker, on_error=self._fault)
        self._wire = Wire(loop, clock, pacer=self._pacer, settings=settings.wire)
        tools = RecorderTools(clock, self._pacer, self._wire)
        self._preparer = Preparer(adapter, point=point, texts=texts, settings=settings, tools=tools)
        self._in_flight: dict[str, Recorder] = {}
        self._retries: dict[str, _Waiting] = {}
        self._is_closing = False
        self._next = 0
        self._prepared: Prepared | None = None
        self._start_ns = 0
        self._num_finished = 0
        self._num_failed = 0
        self._max_in_flight = 0
        self._num_gaps = 0
        self._num_short_gaps = 0
        self._error: Exception | None = None
        self._halted = asyncio.Event()
        self._is_over = asyncio.Event()
        self._on_progress: Callable[[Progress], None] | None = None
        self._check = SelfCheck(clock, self._pacer, point_id=point.point_id)

    # -- the phases --------------------------------------------------------------------------

    async def run(
        self,
        *,
        start_ns: int | None,
        on_progress: Callable[[Progress], None] | None,
        on_telemetry: OnTelemetry | None,
        stop: asyncio.Event | None,
    ) -> None:
        """Warm connections, then the phases; everything is closed again whatever happens."""
        self._on_progress = on_progress
        self._check = SelfCheck(
            self._clock,
            self._pacer,
            point_id=self._point.point_id,
            num_in_flight=lambda: self._num_in_flight,
            on_telemetry=on_telemetry,
        )
        # A callback of ours that raises where nobody catches: the point cannot be trusted any more.
        with FaultTrap(self._fault):
            await self._run(start_ns, stop)
        if self._error is not None:
            raise self._error

    async def _run(self, start_ns: int | None, stop: asyncio.Event | None) -> None:
        watch = asyncio.ensure_future(self._watch(stop)) if stop is not None else None
        self._wire.start()
        self._wire.read_stats.on_self_delay = self._check.self_delay.add
        is_checking = False
        try:
            await self._warm_up()
            self._check.start()
            is_checking = True
            await self._phases(start_ns)
        finally:
            if watch is not None:
                watch.cancel()
            self._interrupt()
            checked = self._check.stop() if is_checking else {}
            self._point.selfcheck = {**checked, **self._counts()}
            self._wire.close()
            self._pacer.close()

    async def _warm_up(self) -> None:
        if self._arrivals:
            await self._wire.warm_up(self._preparer.target_of(self._arrivals[0]))

    async def _phases(self, start_ns: int | None) -> None:
        phases, point = self._settings.phases, self._point
        self._start_ns = start_ns if start_ns is not None else self._clock.now_ns() + _LEAD_NS
        point.start_ns = self._start_ns
        warmup_end_ns = self._start_ns + round(phases.warmup_s * _NS)
        measure_end_ns = warmup_end_ns + round(phases.measure_s * _NS)
        drain_end_ns = measure_end_ns + round(phases.drain_s * _NS)
        # Before the first arrival is scheduled: of two timers at one moment the older runs first.
        self._pacer.at(warmup_end_ns, self._check.begin)
        self._schedule_next()
        self._pacer.at(self._start_ns, self._report_progress)
        if not await self._until(measure_end_ns):
            return
        self._check.end()
        point.warmup_end_ns, point.measure_end_ns = warmup_end_ns, measure_end_ns
        if self._has_work:
            self._pacer.at(drain_end_ns, self._is_over.set)
            await self._first_of(self._is_over)
        if self._halted.is_set():
            return
        limit_s = phases.drain_s
        text = f"still in flight at the end of the drain of {limit_s:g} s (phases.drain_s)"
        self._end_all(TransportOutcome.TIMEOUT, "drain_end", text)
        point.drain_end_ns = self._clock.now_ns()
        point.is_complete = self._error is None
        self._report_progress()

    @property
    def _has_work(self) -> bool:
        return self._num_in_flight > 0 or self._next < len(self._arrivals)

    @property
    def _num_in_flight(self) -> int:
        """Sent and not ended, those between two attempts included."""
        return len(self._in_flight) + len(self._retries)

    async def _until(self, moment_ns: int) -> bool:
        """True when the moment came, False when the run was halted before."""
        reached = asyncio.Event()
        timer = self._pacer.at(moment_ns, reached.set)
        try:
            await self._first_of(reached)
        finally:
            timer.cancel()
        return not self._halted.is_set()

    async def _first_of(self, event: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(e.wait()) for e in (event, self._halted)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._halted.set()

    def _fault(self, error: Exception) -> None:
        """Our own side failed (the sink, a callback): end the point, keep the first reason."""
        if self._error is None:
            self._error = error
        self._halted.set()

    def _interrupt(self) -> None:
        """End what is still in flight; does nothing after a whole drain."""
        self._next = len(self._arrivals)
        self._prepared = None
        text = "the run was interrupted while this request was in flight"
        self._end_all(TransportOutcome.CANCELLED, INTERRUPTED_KIND, text)

    def _end_all(self, outcome: TransportOutcome, kind: str, text: str) -> None:
        self._is_closing = True
        for waiting in list(self._retries.values()):
            waiting.timer.cancel()
            self._close_record(waiting.record, outcome, kind, text)
        self._retries.clear()
        for recorder in list(self._in_flight.values()):
            recorder.end(outcome, kind, text)

    # -- arrivals ----------------------------------------------------------------------------

    def _schedule_next(self) -> None:
        if self._next < len(self._arrivals) and not self._halted.is_set():
            due_ns = self._start_ns + self._arrivals[self._next].scheduled_ns
            self._pacer.at(due_ns, self._dispatch)
            if due_ns - self._clock.now_ns() > _PREPARE_NS:
                self._prepared = self._prepare(self._arrivals[self._next])

    def _prepare(self, arrival: PlannedArrival) -> Prepared:
        on_finished = partial(self._on_finished, arrival)
        return self._preparer.prepare(arrival, start_ns=self._start_ns, on_finished=on_finished)

    def _dispatch(self) -> None:
        if self._halted.is_set() or self._next >= len(self._arrivals):
            return
        arrival, prepared = self._arrivals[self._next], self._prepared
        self._next += 1
        self._prepared = None
        if prepared is None or prepared.arrival is not arrival:
            prepared = self._prepare(arrival)
        record = prepared.record
        if self._num_in_flight >= self._settings.max_in_flight:
            limit = self._settings.max_in_flight
            text = f"{limit} requests were in flight (limits.max_in_flight)"
            self._close_record(record, TransportOutcome.NOT_SENT, "max_in_flight", text)
        else:
            self._launch(prepared)
        if record.dispatched_ns is not None:
            self._check.dispatch_lag.add(record.dispatched_ns - record.scheduled_ns)
        self._schedule_next()

    def _launch(self, prepared: Prepared) -> None:
        record, recorder = prepared.record, prepared.recorder
        if recorder is None:
            kind = type(prepared.error).__name__
            text = str(prepared.error)
            self._close_record(record, TransportOutcome.CLIENT_ERROR, kind, text)
            return
        self._in_flight[record.request_id] = recorder
        self._max_in_flight = max(self._max_in_flight, self._num_in_flight)
        recorder.launch()

    def _close_record(
        self, record: RequestRecord, outcome: TransportOutcome, kind: str, text: str
    ) -> None:
        """End a request that no recorder is at work on."""
        record.transport_outcome = outcome
        record.error_kind = kind
        record.error_text = one_line(text)
        record.finished_ns = self._clock.now_ns()
        self._keep(record, ())

    # -- endings -----------------------------------------------------------------------------

    def _on_finished(self, arrival: PlannedArrival, recorder: Recorder) -> None:
        record = recorder.record
        del self._in_flight[record.request_id]
        due_ns = None if self._is_closing else self._next_attempt_ns(recorder)
        if due_ns is not None:
            timer = self._pacer.at(due_ns, partial(self._retry, record, arrival))
            self._retries[record.request_id] = _Waiting(record, timer)
            return
        self._num_gaps += max(0, len(record.chunks) - 1)
        self._num_short_gaps += recorder.num_short_gaps
        self._keep(record, recorder.payload)

    def _next_attempt_ns(self, recorder: Recorder) -> int | None:
        settings = self._settings
        return next_attempt_ns(
            recorder, settings.retries, clock=self._clock, timeouts=settings.wire.timeouts
        )

    def _retry(self, record: RequestRecord, arrival: PlannedArrival) -> None:
        del self._retries[record.request_id]
        reset_for_retry(record)
        on_finished = partial(self._on_finished, arrival)
        self._launch(self._preparer.prepare_again(arrival, record, on_finished=on_finished))

    def _keep(self, record: RequestRecord, payload: Sequence[Buffer]) -> None:
        self._num_finished += 1
        self._num_failed += record.transport_outcome is not TransportOutcome.OK
        try:
            self._sink.append(record, payload)
        except Exception as error:
            self._fault(error)
        if not self._has_work:
            self._is_over.set()

    # -- what is told ------------------------------------------------------------------------

    def _report_progress(self) -> None:
        if self._on_progress is None:
            return
        now_ns = self._clock.now_ns()
        self._on_progress(
            Progress(
                point_id=self._point.point_id,
                elapsed_s=(now_ns - self._start_ns) / _NS,
                num_planned=len(self._arrivals),
                num_arrived=self._next,
                num_finished=self._num_finished,
                num_failed=self._num_failed,
                num_in_flight=self._num_in_flight,
            )
        )
        self._pacer.at(now_ns + _PROGRESS_INTERVAL_NS, self._report_progress)

    def _counts(self) -> dict[str, object]:
        reads = self._wire.read_stats
        pools = [pool.stats for pool in self._wire.pools.values()]
        return {
            "stamp_source": self._wire.stamp_source.value,
            "loop": loop_name(self._loop),
            "max_in_flight": self._max_in_flight,
            "reads": {
                "num": reads.num_reads,
                "bytes": reads.num_bytes,
                "kernel_stamps": reads.num_kernel_stamps,
                "user_stamps": reads.num_user_stamps,
                "full": reads.num_full_reads,
                "clamped": reads.num_clamped,
            },
            "coalesced": {"num": self._num_gaps, "below_1ms": self._num_short_gaps},
            "connections": {
                "opened": sum(stats.num_opened for stats in pools),
                "reused": sum(stats.num_reused for stats in pools),
                "closed_idle": sum(stats.num_closed_idle for stats in pools),
                "failed": sum(stats.num_failed for stats in pools),
                "failures": [text for stats in pools for text in stats.failures],
            },
        }
