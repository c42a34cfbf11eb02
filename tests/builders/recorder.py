"""A recorder on a fake connection, and an exchange that answers by a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engines.base import Action, EndOfBody, Event, Headers, HttpTarget, Send, StreamBytes
from harness.recorder import Recorder, RecorderSettings, RecorderTools
from harness.records import Phase, RequestRecord
from harness.settings import TimeoutSettings
from tests.builders.wire import FakeConnection, FakeTime, FakeWire, PlainExchange, ms

__all__ = ["HTTP", "RecorderRig", "ScriptedExchange"]

HTTP = HttpTarget("http://h/say")


class ScriptedExchange:
    """Answers each event by a function."""

    def __init__(
        self,
        react: Callable[[Event], list[Action]] = lambda _: [],
        *,
        start: list[Action] | None = None,
        target: Any = HTTP,
    ) -> None:
        self.react = react
        self.actions = [Send("text", ends_text=True)] if start is None else start
        self.target = target
        self.events: list[Event] = []

    def start(self) -> list[Action]:
        return self.actions

    def feed(self, event: Event) -> list[Action]:
        self.events.append(event)
        return self.react(event)


class RecorderRig:
    """A recorder on a fake connection, launched at 10 ms.

    `first_dispatched_ms`: of an earlier attempt, which this one follows.
    """

    def __init__(
        self,
        exchange: Any = None,
        *,
        is_warm: bool = True,
        timeouts: TimeoutSettings | None = None,
        first_dispatched_ms: float | None = None,
        **settings: Any,
    ) -> None:
        self.time = FakeTime()
        self.time.advance(10)
        self.connection = FakeConnection(self.time.clock, is_warm=is_warm)
        self.exchange = exchange or PlainExchange("text", HTTP)
        self.record = RequestRecord("r", "p", 0, 0, Phase.MEASURE, "x", "text", ms(10))
        if first_dispatched_ms is not None:
            self.record.attempts, self.record.dispatched_ns = 1, ms(first_dispatched_ms)
        self.finished: list[Recorder] = []
        self.recorder = Recorder(
            self.record,
            self.exchange,
            tools=RecorderTools(self.time.clock, self.time.pacer, FakeWire(self.connection)),  # type: ignore[arg-type]
            settings=RecorderSettings(timeouts=timeouts or TimeoutSettings(), **settings),
            on_finished=self.finished.append,
        )
        self.recorder.launch()
        self.time.pacer.run_due()

    def reply(self, *pieces: tuple[float, bytes], end_ms: float | None = None) -> None:
        self.connection.event(Headers(200, (("content-type", "audio/pcm"),)), pieces[0][0])
        for at_ms, data in pieces:
            self.connection.event(StreamBytes(data), at_ms)
        if end_ms is not None:
            self.connection.event(EndOfBody(), end_ms)

    @property
    def ending(self) -> tuple[str, str | None]:
        assert 1 == len(self.finished), "not ended, or ended twice"
        return self.record.transport_outcome.value, self.record.error_kind
