"""Ask a server who it is and whether it is ready, before any load."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from engines.base import Adapter, EngineInfo, HttpTarget, Probe, ProbeReply
from engines.redact import redact_url
from harness.clock import Clock
from harness.errors import EngineNotReadyError
from harness.pacer import Pacer, make_waker
from harness.settings import ConnectionMode, ConnectionSettings, WireSettings
from harness.wire.call import Call, CallReply
from harness.wire.context import Wire

__all__ = ["probe"]

# Between two questions of a server that is not ready yet.
_ASK_AGAIN_S = 0.25
_CALL_TIMEOUT_S = 5.0


async def probe(
    adapter: Adapter, *, settings: WireSettings, clock: Clock, ready_s: float | None = None
) -> EngineInfo:
    """Make the adapter's probe calls until the server is ready, and say who it is.

    A server that is there but is not who the contract says is reported at once (`is_match`
    False), not waited for.

    Args:
        ready_s: how long to wait; default: `settings.timeouts.ready_s`.

    Raises:
        EngineNotReadyError: nobody answered, or not ready, within `ready_s`; one line.
    """
    limit_s = settings.timeouts.ready_s if ready_s is None else ready_s
    loop = asyncio.get_running_loop()
    faults: list[Exception] = []
    pacer = Pacer(clock, make_waker(loop, clock), on_error=faults.append)
    one_by_one = replace(settings, connections=ConnectionSettings(mode=ConnectionMode.COLD))
    wire = Wire(loop, clock, pacer=pacer, settings=one_by_one)
    wire.start()
    try:
        return await _until_ready(adapter, wire, clock=clock, pacer=pacer, limit_s=limit_s)
    finally:
        wire.close()
        pacer.close()


async def _until_ready(
    adapter: Adapter, wire: Wire, *, clock: Clock, pacer: Pacer, limit_s: float
) -> EngineInfo:
    asked = adapter.probe()
    give_up_ns = clock.now_ns() + round(limit_s * 1e9)
    while True:
        left_s = (give_up_ns - clock.now_ns()) / 1e9
        timeout_s = max(0.05, min(_CALL_TIMEOUT_S, left_s))
        info = await _ask(asked, wire, clock=clock, pacer=pacer, timeout_s=timeout_s)
        if info.is_ready or info.is_match is False:
            return info
        if clock.now_ns() + round(_ASK_AGAIN_S * 1e9) >= give_up_ns:
            raise EngineNotReadyError(
                f"{adapter.name} at {redact_url(adapter.base_url)}: not ready within "
                f"{limit_s:g} s (timeouts.ready_s): {info.reason or 'no reason given'}"
            )
        await asyncio.sleep(_ASK_AGAIN_S)


async def _ask(
    asked: Probe, wire: Wire, *, clock: Clock, pacer: Pacer, timeout_s: float
) -> EngineInfo:
    replies = []
    for name, target in asked.calls.items():
        reply = await _call(target, wire, clock=clock, pacer=pacer, timeout_s=timeout_s)
        replies.append(ProbeReply(name, reply.status, reply.headers, reply.body))
    return asked.parse(replies)


async def _call(
    target: HttpTarget, wire: Wire, *, clock: Clock, pacer: Pacer, timeout_s: float
) -> CallReply:
    done: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
    call = Call(
        target,
        wire=wire,
        clock=clock,
        pacer=pacer,
        on_reply=partial(_resolve, done),
        timeout_s=timeout_s,
    ).start()
    try:
        return await done
    finally:
        call.cancel()


def _resolve(done: asyncio.Future[CallReply], reply: CallReply) -> None:
    if not done.done():
        done.set_result(reply)
