"""One request outside a run: contract checks, solo service times, a first listen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from engines.base import Adapter, Buffer, SpeechRequest
from harness.clock import Clock
from harness.pacer import Pacer, make_waker
from harness.recorder import Recorder, RecorderSettings, RecorderTools
from harness.records import Phase, RequestRecord, TransportOutcome
from harness.settings import WireSettings
from harness.text_source import TextPacing, pace_text
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
    faults: list[Exception] = []
    pacer = Pacer(clock, make_waker(loop, clock), on_error=faults.append)
    wire = Wire(loop, clock, pacer=pacer, settings=settings)
    record = RequestRecord(
        request_id=request.request_id,
        point_id=point_id,
        shard=0,
        index=0,
        phase=Phase.MEASURE,
        prompt_id="",
        text=request.text,
        scheduled_ns=clock.now_ns(),
    )
    done = asyncio.Event()
    is_paced = request.is_incremental and text_pacing is not None
    recorder = Recorder(
        record,
        exchange,
        tools=RecorderTools(clock, pacer, wire),
        settings=RecorderSettings(
            timeouts=settings.timeouts,
            pieces=pace_text(request.text, text_pacing, seed=0)
            if text_pacing is not None and is_paced
            else (),
        ),
        on_finished=lambda _: done.set(),
    )
    wire.start()
    try:
        wire.prepare(exchange.target)
        record.scheduled_ns = clock.now_ns()
        recorder.launch()
        await done.wait()
    finally:
        recorder.end(TransportOutcome.CANCELLED, "interrupted", "interrupted by the caller")
        wire.close()
        pacer.close()
    if faults:
        raise faults[0]
    return SingleResult(record, _join(recorder.payload))


def _join(payload: list[Buffer]) -> bytes:
    return b"".join(payload)
