"""One request outside a run: contract checks, solo service times, a first listen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from engines.base import Adapter, SpeechRequest
from harness.clock import Clock
from harness.loop import FaultTrap
from harness.pacer import Pacer, make_waker
from harness.recorder import Recorder, RecorderSettings, RecorderTools
from harness.records import Phase, RequestRecord, TransportOutcome
from harness.settings import WireSettings
from harness.text_source import TextPacing, TextPiece, pace_text
from harness.wire.context import Wire

__all__ = ["SingleResult", "single"]


@dataclass(frozen=True, slots=True)
class SingleResult:
    """What one request left: its record and its payload as received."""

    record: RequestRecord
    payload: bytes


async def single(
    adapter: Adapter,
    request: SpeechRequest,
    *,
    settings: WireSettings,
    clock: Clock,
    point_id: str = "single",
    text_pacing: TextPacing | None = None,
) -> SingleResult:
    """Send one request now, on a connection of its own, and wait until it has ended.

    Never raises for what the server does: that is the record's outcome. Cancelling the task ends
    the request as `cancelled`.

    Raises:
        ContractError: the contract cannot say this request.
        ScenarioError: a certificate file that cannot be used.
    """
    exchange = adapter.open(request)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def on_fault(error: Exception) -> None:
        if not done.done():
            done.set_exception(error)

    def on_finished(_recorder: Recorder) -> None:
        if not done.done():
            done.set_result(None)

    pacer = Pacer(clock, make_waker(loop, clock), on_error=on_fault)
    wire = Wire(loop, clock, pacer=pacer, settings=settings)
    recorder = Recorder(
        _record(request, point_id, clock.now_ns()),
        exchange,
        tools=RecorderTools(clock, pacer, wire),
        settings=RecorderSettings(
            timeouts=settings.timeouts,
            limits=settings.limits,
            pieces=_pieces(request, text_pacing),
        ),
        on_finished=on_finished,
    )
    with FaultTrap(on_fault):
        wire.start()
        try:
            wire.prepare(exchange.target)
            recorder.record.scheduled_ns = clock.now_ns()
            recorder.launch()
            await done
        finally:
            recorder.end(TransportOutcome.CANCELLED, "interrupted", "interrupted by the caller")
            wire.close()
            pacer.close()
    return SingleResult(recorder.record, b"".join(recorder.payload))


def _record(request: SpeechRequest, point_id: str, now_ns: int) -> RequestRecord:
    return RequestRecord(
        request_id=request.request_id,
        point_id=point_id,
        shard=0,
        index=0,
        phase=Phase.MEASURE,
        prompt_id="",
        text=request.text,
        scheduled_ns=now_ns,
    )


def _pieces(request: SpeechRequest, pacing: TextPacing | None) -> tuple[TextPiece, ...]:
    if pacing is None or not request.is_incremental:
        return ()
    return pace_text(request.text, pacing, seed=0)
