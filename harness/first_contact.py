"""Before the load: who answers at each engine, and whether it takes a request like those to come.

The one request (`preflight: true`) says what the load will say first, sent as the load will be:
same parameters, pacing, limits and trust. It belongs to no point and no figure; `run.json` keeps
how it ended. A refusal that every other request would meet ends the run while nothing is lost;
whatever else happens to it is told, and left to the load to measure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from engines.base import Adapter, EngineInfo, HttpTarget, SpeechRequest, WebSocketTarget
from engines.params import address_hint
from engines.redact import shown_place
from harness.clock import Clock
from harness.errors import EngineNotReadyError, RunInterruptedError
from harness.observer import Preflight, RunObserver
from harness.plan import RunPlan, engines_ahead
from harness.point_settings import point_settings
from harness.probe import identify
from harness.records import RequestRecord
from harness.settings import PointSettings
from harness.single import single
from harness.text_source import TextMode

__all__ = ["Contact", "contact_engines", "hint_for"]

# What is wrong with the address, the key, the route or the parameters is wrong for every request.
# Other 4xx are about one text (413), one moment (408, 425) or the load (429).
# Source: RFC 9110, section 15.5.
_SHARED_REFUSALS = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 415, 422})
_NO_ROUTE = frozenset({404, 405})

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Contact:
    """What an engine said of itself, and how its one request ended (None: not wanted)."""

    info: EngineInfo
    preflight: Preflight | None


async def contact_engines(
    plan: RunPlan, *, clock: Clock, observer: RunObserver, stop: asyncio.Event
) -> dict[str, Contact]:
    """Meet every engine of the plan, by label.

    Raises:
        EngineNotReadyError: one is unreachable, not ready, another server, or refuses what every
            request would be refused for.
        RunInterruptedError: stopped in the meantime.
    """
    settings = _settings(plan)
    ahead = engines_ahead(plan.scenario, plan.points)
    contacts: dict[str, Contact] = {}
    for label, adapter in plan.adapters.items():
        info = await _unless_stopped(
            identify(
                adapter,
                settings=settings.wire,
                clock=clock,
                on_waiting=partial(observer.on_waiting, label),
            ),
            stop,
        )
        observer.on_engine(label, info)
        preflight = None
        if label in ahead:
            tried = _try(plan, adapter, label=label, settings=settings, clock=clock)
            preflight = await _unless_stopped(tried, stop)
            observer.on_preflight(label, preflight)
        contacts[label] = Contact(info, preflight)
    return contacts


def hint_for(adapter: Adapter, record: RequestRecord) -> str:
    """What to change where a server has no such route; empty where the address does not tell."""
    if record.http_status not in _NO_ROUTE:
        return ""
    target = adapter.open(SpeechRequest("hint", record.text)).target
    if not isinstance(target, HttpTarget | WebSocketTarget):
        return ""
    return address_hint(adapter.base_url, target.url)


def _settings(plan: RunPlan) -> PointSettings:
    settings = point_settings(plan.scenario, rate_rps=1.0, seed=0, user_agent=plan.user_agent)
    wire = replace(settings.wire, are_commands_allowed=plan.are_commands_allowed)
    return replace(settings, wire=wire)


async def _try(
    plan: RunPlan, adapter: Adapter, *, label: str, settings: PointSettings, clock: Clock
) -> Preflight:
    """One request, and the end of the run where no other could fare better."""
    prompt = plan.first_prompt
    pacing = settings.text_pacing
    request = SpeechRequest(
        f"preflight-{label}",
        prompt.text,
        is_incremental=pacing is not None and pacing.mode is not TextMode.WHOLE,
    )
    result = await single(adapter, request, settings=settings.wire, clock=clock, text_pacing=pacing)
    record = result.record
    if record.http_status in _SHARED_REFUSALS:
        hint = hint_for(adapter, record)
        raise EngineNotReadyError(
            f"{label}, {shown_place(adapter.base_url)}: refused the request sent before the load "
            f"({record.error_text}), and would refuse every other: mend what it says"
            f"{f' ({hint})' if hint else ''}, or send the load all the same with --no-preflight"
        )
    return _found(prompt.id, record)


def _found(prompt_id: str, record: RequestRecord) -> Preflight:
    begun, ended = record.dispatched_ns, record.finished_ns
    return Preflight(
        prompt_id=prompt_id,
        num_characters=len(record.text),
        outcome=record.transport_outcome,
        http_status=record.http_status,
        error_text=record.error_text,
        duration_ms=None if begun is None or ended is None else (ended - begun) / 1e6,
    )


async def _unless_stopped(asked: Coroutine[Any, Any, Found], stop: asyncio.Event) -> Found:
    task = asyncio.ensure_future(asked)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise RunInterruptedError("stopped before the load; nothing of it was sent")
        return task.result()
    finally:
        stopped.cancel()
