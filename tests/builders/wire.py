"""Builders for the wire: a time moved by hand, streams without a network, short real runs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engines import registry
from engines.base import (
    Action,
    Adapter,
    Audio,
    Buffer,
    Closed,
    Done,
    EndOfBody,
    Event,
    Exchange,
    Fail,
    Headers,
    HttpTarget,
    Send,
    SpeechRequest,
    StreamBytes,
    Target,
)
from engines.outcomes import TransportOutcome
from harness.clock import FakeClock, RunClock
from harness.dispatcher import run_point
from harness.loop import run
from harness.pacer import Pacer
from harness.records import Phase, PointRecord, RequestRecord
from harness.schedule import Arrival
from harness.settings import (
    ConnectionSettings,
    PhaseSettings,
    PointSettings,
    WireSettings,
)
from harness.single import SingleResult, single
from harness.wire.connection import (
    Address,
    ByteReceiver,
    ConnectionInfo,
    Listener,
    OnSent,
    Stamp,
    StreamPhases,
    WireFailure,
)

__all__ = [
    "FakeConnection",
    "FakeStream",
    "FakeTime",
    "FakeWire",
    "Heard",
    "MemorySink",
    "PlainAdapter",
    "PlainExchange",
    "Ran",
    "Received",
    "every",
    "ms",
    "run_load",
    "say",
    "stamp",
]


def ms(milliseconds: float) -> int:
    """Nanoseconds of so many milliseconds."""
    return round(milliseconds * 1_000_000)


def stamp(at_ms: float, *, read_ms: float | None = None, floor_ms: float | None = None) -> Stamp:
    """A stamp whose read and floor are near its arrival."""
    return Stamp(
        ms(at_ms),
        ms(at_ms + 0.01 if read_ms is None else read_ms),
        ms(at_ms - 0.01 if floor_ms is None else floor_ms),
    )


# -- time -----------------------------------------------------------------------------------------


class _HandWaker:
    """Never wakes by itself."""

    name = "hand"

    def __init__(self) -> None:
        self.armed: list[int] = []

    def start(self, on_wake: Callable[[], None]) -> None:
        self.on_wake = on_wake

    def arm(self, due_ns: int) -> None:
        self.armed.append(due_ns)

    def close(self) -> None:
        self.armed.clear()


class FakeTime:
    """A clock and a pacer that move only when told."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.waker = _HandWaker()
        self.errors: list[Exception] = []
        self.pacer = Pacer(self.clock, self.waker, on_error=self.errors.append)

    def advance(self, by_ms: float) -> None:
        """Move on in steps of 0.5 ms or less, running what falls due on the way."""
        left_ns = ms(by_ms)
        while left_ns > 0:
            step_ns = min(left_ns, ms(0.5))
            self.clock.advance_ns(step_ns)
            left_ns -= step_ns
            self.pacer.run_due()


# -- streams and connections ----------------------------------------------------------------------


class FakeStream:
    """A byte stream without a socket; the test plays the server."""

    def __init__(self, receiver: ByteReceiver, clock: FakeClock) -> None:
        self.receiver = receiver
        self.clock = clock
        self.addresses: list[Address] = []
        self.written = b""
        self.has_unsent = False
        self.is_closed = False
        self.floors: list[int] = []
        self.read_rates: list[int | None] = []

    def connect(self, address: Address) -> None:
        self.addresses.append(address)

    def accept(self) -> None:
        self.receiver.on_connected(StreamPhases(self.clock.now_ns()))

    def write(self, data: bytes, on_sent: OnSent | None = None) -> None:
        self.written += data
        if on_sent is not None:
            on_sent(self.clock.now_ns())

    def mark_drained(self, now_ns: int) -> None:
        self.floors.append(now_ns)

    def limit_reading(self, bytes_per_s: int | None) -> None:
        self.read_rates.append(bytes_per_s)

    def close(self) -> None:
        self.is_closed = True

    def deliver(self, data: bytes, at_ms: float = 0.0) -> None:
        self.receiver.on_bytes(data, stamp(at_ms))

    def eof(self, at_ms: float = 0.0) -> None:
        self.receiver.on_eof(stamp(at_ms))

    def error(self, error: OSError, at_ms: float = 0.0) -> None:
        self.receiver.on_error(error, stamp(at_ms))


@dataclass
class Received:
    """A receiver that keeps everything and can wait for it."""

    data: list[bytes] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)
    phases: list[StreamPhases] = field(default_factory=list)
    errors: list[OSError] = field(default_factory=list)
    is_eof: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def on_connected(self, phases: StreamPhases) -> None:
        self.phases.append(phases)
        self.news.set()

    def on_bytes(self, data: bytes, stamp: Stamp) -> None:
        self.data.append(data)
        self.stamps.append(stamp)
        self.news.set()

    def on_eof(self, stamp: Stamp) -> None:
        self.is_eof = True
        self.news.set()

    def on_error(self, error: OSError, stamp: Stamp) -> None:
        self.errors.append(error)
        self.news.set()

    async def until(self, is_met: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not is_met():
                self.news.clear()
                await self.news.wait()


@dataclass
class Heard:
    """A listener that writes down everything."""

    infos: list[ConnectionInfo] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)
    failure: WireFailure | None = None
    closed: Closed | None = None

    def on_open(self, info: ConnectionInfo) -> None:
        self.infos.append(info)

    def on_event(self, event: Event, stamp: Stamp) -> None:
        assert self.failure is None
        self.events.append(event)
        self.stamps.append(stamp)

    def on_end(self, failure: WireFailure, stamp: Stamp, closed: Closed) -> None:
        assert self.failure is None
        self.failure, self.closed = failure, closed


class FakeConnection:
    """What a recorder drives; the test plays wire and server."""

    def __init__(self, clock: FakeClock, *, is_warm: bool = True) -> None:
        self.clock = clock
        self.is_warm = is_warm
        self.listener: Listener | None = None
        self.sent: list[Send] = []
        self.is_released = False
        self.is_aborted = False
        self.closes: list[tuple[int, str]] = []
        self.num_end_starts = 0
        self.read_rates: list[int] = []

    def open(self, listener: Listener) -> None:
        self.listener = listener
        if self.is_warm:
            self.is_warm = False  # as a real one: it is busy from now on
            listener.on_open(ConnectionInfo(is_reused=True, peer="fake"))

    def connected(self) -> None:
        assert self.listener is not None
        now_ns = self.clock.now_ns()
        self.listener.on_open(
            ConnectionInfo(is_reused=False, peer="fake", connected_ns=now_ns, dns_ns=now_ns)
        )

    def limit_reading(self, bytes_per_s: int) -> None:
        self.read_rates.append(bytes_per_s)

    def send(self, action: Send, on_sent: OnSent) -> None:
        self.sent.append(action)
        on_sent(self.clock.now_ns())

    def end_start(self) -> None:
        self.num_end_starts += 1

    def release(self) -> None:
        self.is_released = True

    def close(self, code: int, reason: str) -> None:
        self.closes.append((code, reason))

    def abort(self) -> None:
        self.is_aborted = True

    def event(self, event: Event, at_ms: float) -> None:
        assert self.listener is not None
        self.listener.on_event(event, stamp(at_ms))

    def end(self, failure: WireFailure, at_ms: float, closed: Closed | None = None) -> None:
        assert self.listener is not None
        self.listener.on_end(failure, stamp(at_ms), closed or Closed())


class FakeWire:
    """Hands out one prepared connection."""

    def __init__(self, connection: FakeConnection) -> None:
        self.connection = connection

    def connect(self, target: Callable[[], Target]) -> FakeConnection:
        target()
        return self.connection


class PlainExchange:
    """Raw audio over HTTP, with nothing to get wrong: for tests of what is around an exchange."""

    def __init__(self, text: str, target: HttpTarget) -> None:
        self.text = text
        self.target = target
        self.status = 0

    def start(self) -> list[Action]:
        return [Send(self.text.encode(), ends_text=True)]

    def feed(self, event: Event) -> list[Action]:
        match event:
            case Headers(status=status):
                self.status = status
                return []
            case StreamBytes(data=data):
                return [Audio(data)] if self.status == 200 else []
            case EndOfBody() if self.status == 200:
                return [Done()]
            case EndOfBody():
                is_refusal = self.status in (429, 503)
                outcome = TransportOutcome.REFUSED if is_refusal else TransportOutcome.HTTP_ERROR
                return [Fail(outcome, "headers", f"HTTP {self.status}")]
            case Closed():
                return [Fail(TransportOutcome.TRUNCATED, "body", "closed too early")]
            case _:
                return []


class PlainAdapter:
    """Opens `PlainExchange`s at a URL; `on_open` may be busy or raise."""

    name = "plain"

    def __init__(self, base_url: str, *, on_open: Callable[[], None] = lambda: None) -> None:
        self.base_url = base_url
        self._on_open = on_open

    def open(self, request: SpeechRequest) -> Exchange:
        self._on_open()
        headers = (("X-Request-Id", request.request_id),)
        return PlainExchange(request.text, HttpTarget(f"{self.base_url}/say", headers=headers))


# -- short real runs ------------------------------------------------------------------------------


class MemorySink:
    """Keeps what the dispatcher hands over."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.payloads: list[bytes] = []

    def append(self, record: RequestRecord, payload: Sequence[Buffer]) -> None:
        self.records.append(record)
        self.payloads.append(b"".join(payload))


@dataclass(frozen=True, slots=True)
class Ran:
    """One point that was run."""

    point: PointRecord
    records: list[RequestRecord]
    payloads: list[bytes]
    clock: RunClock

    @property
    def outcomes(self) -> list[str]:
        return [record.transport_outcome.value for record in self.records]


def every(gap_ms: float, count: int, *, num_warmup: int = 0) -> tuple[Arrival, ...]:
    """`count` arrivals at a fixed gap, from 0."""
    return tuple(
        Arrival(
            index,
            Phase.WARMUP if index < num_warmup else Phase.MEASURE,
            ms(index * gap_ms),
            "p",
            0,
        )
        for index in range(count)
    )


def run_load(
    adapter: Adapter,
    arrivals: Iterable[Arrival],
    *,
    drain_s: float = 1.0,
    warmup_s: float = 0.0,
    measure_s: float | None = None,
    runner: Callable[[Coroutine[Any, Any, None]], None] = run,
    stop_when: Callable[[], bool] | None = None,
    sink: Any = None,
    point: PointRecord | None = None,
    use_timerfd: bool = True,
    on_telemetry: Any = None,
    on_progress: Any = None,
    **settings: Any,
) -> Ran:
    """Run one short point against a loopback server and give everything it left."""
    # A point begins with a collection; it need not search everything that tests have imported.
    gc.freeze()
    plan = tuple(arrivals)
    last_ns = plan[-1].scheduled_ns if plan else 0
    phases = PhaseSettings(warmup_s, measure_s or last_ns / 1e9 + 0.005, drain_s)
    settings.setdefault("wire", WireSettings(connections=ConnectionSettings(pool=2)))
    point = point or PointRecord("point", "plain", 0.0, 1, len(plan))
    sink = sink or MemorySink()
    clock = RunClock()

    async def main() -> None:
        stop = asyncio.Event()
        watching = asyncio.ensure_future(_set_when(stop, stop_when))
        await run_point(
            adapter,
            plan,
            point=point,
            texts={"p": "Hello there."},
            settings=PointSettings(phases=phases, **settings),
            clock=clock,
            sink=sink,
            stop=stop,
            use_timerfd=use_timerfd,
            on_telemetry=on_telemetry,
            on_progress=on_progress,
        )
        watching.cancel()

    runner(main())
    order = sorted(range(len(sink.records)), key=lambda i: sink.records[i].index)
    return Ran(point, [sink.records[i] for i in order], [sink.payloads[i] for i in order], clock)


async def _set_when(stop: asyncio.Event, is_met: Callable[[], bool] | None) -> None:
    while is_met is not None and not is_met():
        await asyncio.sleep(0.005)
    if is_met is not None:
        stop.set()


def say(
    target: str | Adapter,
    *,
    text: str = "Hello there.",
    clock: RunClock | None = None,
    settings: WireSettings | None = None,
    contract: str = "generic",
) -> SingleResult:
    """One request to a server (base URL or adapter), on a fresh loop."""
    adapter = registry.create(contract, base_url=target) if isinstance(target, str) else target
    request = SpeechRequest("r1", text)
    used = clock or RunClock()
    return run(single(adapter, request, settings=settings or WireSettings(), clock=used))
