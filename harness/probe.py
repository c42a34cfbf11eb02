"""Ask who is there, and wait until it is ready: before any load, up to a limit that is named.

A server that is not the one its contract describes is refused at once: no figure is ever measured
against the wrong one. A server that cannot tell who it is passes with a warning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from engines.base import Adapter, EngineInfo, HttpTarget, Probe, ProbeReply
from harness.clock import Clock
from harness.errors import EngineNotReadyError
from harness.loop import FaultTrap
from harness.pacer import Pacer, make_waker
from harness.settings import ConnectionMode, ConnectionSettings, WireSettings
from harness.wire.call import Call, CallReply
from harness.wire.context import Wire

__all__ = ["OnWaiting", "ask", "identify"]

_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 2.0
_CALL_TIMEOUT_S = 10.0
_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}

# Called with the reason each time the server is found not ready.
OnWaiting = Callable[[str], None]


def _ignore(_reason: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class _Tools:
    clock: Clock
    pacer: Pacer
    wire: Wire


async def identify(
    adapter: Adapter,
    *,
    settings: WireSettings,
    clock: Clock,
    on_waiting: OnWaiting = _ignore,
) -> EngineInfo:
    """Who answers at the adapter's address, once it is ready.

    Args:
        adapter: says what to ask and how to read the answers.
        settings: `timeouts.ready_s` is the longest wait.
        clock: of the run.
        on_waiting: told why it is not ready yet, before each new try.

    Raises:
        EngineNotReadyError: not ready within the limit, unreachable, or another server.
    """
    deadline_ns = clock.now_ns() + round(settings.timeouts.ready_s * 1e9)
    pause_s = _FIRST_PAUSE_S
    while True:
        info = await ask(adapter, settings=settings, clock=clock, deadline_ns=deadline_ns)
        if info.is_match is False:
            raise EngineNotReadyError(
                f"{adapter.base_url}: is not the server of contract {adapter.name}: {info.mismatch}"
            )
        if info.is_ready:
            return info
        if clock.now_ns() + round(pause_s * 1e9) >= deadline_ns:
            raise EngineNotReadyError(
                f"{adapter.base_url}: {adapter.name} is not ready after "
                f"{settings.timeouts.ready_s:g} s (timeouts.ready_s): {info.reason}"
            )
        on_waiting(info.reason)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)


async def ask(
    adapter: Adapter, *, settings: WireSettings, clock: Clock, deadline_ns: int
) -> EngineInfo:
    """One round of the adapter's probe calls; never raises for what a server does.

    An adapter without calls is asked whether anybody listens, no more. A server that accepts and
    says nothing is waited for until `deadline_ns` of the clock, at most ten seconds a call.
    """
    probe = adapter.probe()
    if not probe.calls:
        return await _knock(adapter, probe, settings)
    loop = asyncio.get_running_loop()
    pacer = Pacer(clock, make_waker(loop, clock), on_error=_raise)
    wire = Wire(loop, clock, pacer=pacer, settings=_cold(settings))
    wire.start()
    try:
        tools = _Tools(clock, pacer, wire)
        replies = [
            await _call(name, target, tools, timeout_s=_left_s(deadline_ns, clock))
            for name, target in probe.calls.items()
        ]
    finally:
        wire.close()
        pacer.close()
    return probe.parse(replies)


def _cold(settings: WireSettings) -> WireSettings:
    """The same trust and limits, without a pool."""
    return WireSettings(
        connections=ConnectionSettings(mode=ConnectionMode.COLD),
        timeouts=settings.timeouts,
        limits=settings.limits,
        tls=settings.tls,
        user_agent=settings.user_agent,
    )


def _left_s(deadline_ns: int, clock: Clock) -> float:
    """How long one call may take."""
    return min(_CALL_TIMEOUT_S, max(0.0, (deadline_ns - clock.now_ns()) / 1e9))


async def _call(name: str, target: HttpTarget, tools: _Tools, *, timeout_s: float) -> ProbeReply:
    done: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
    call = Call(
        target,
        wire=tools.wire,
        clock=tools.clock,
        pacer=tools.pacer,
        on_reply=done.set_result,
        timeout_s=timeout_s,
    )
    with FaultTrap(lambda error: None if done.done() else done.set_exception(error)):
        call.start()
        try:
            reply = await done
        finally:
            call.cancel()
    return ProbeReply(name, reply.status, reply.headers, reply.body)


async def _knock(adapter: Adapter, probe: Probe, settings: WireSettings) -> EngineInfo:
    """Whether a connection can be made, for a server that offers no calls to ask by."""
    info = probe.parse([])
    address = urlsplit(adapter.base_url)
    port = address.port or _DEFAULT_PORTS.get(address.scheme)
    if address.hostname is None or port is None:
        return info
    try:
        async with asyncio.timeout(settings.timeouts.connect_s):
            _, writer = await asyncio.open_connection(address.hostname, port)
    except (OSError, TimeoutError) as fault:
        reason = f"cannot connect to {address.hostname} port {port}: {_said(fault)}"
        return EngineInfo(adapter.name, is_ready=False, reason=reason)
    writer.close()
    return info


def _said(fault: BaseException) -> str:
    return getattr(fault, "strerror", None) or str(fault) or "no answer in time"


def _raise(error: Exception) -> Any:
    raise error
