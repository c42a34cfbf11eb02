"""Run a scenario: every point, one after the other, into one run folder. Judges nothing.

Whatever ends it, the folder is closed in order: `complete`, `interrupted` by the user, or
`incomplete` where a safety rule or the disk ended it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from engines.base import Buffer
from harness.clock import RunClock
from harness.dispatcher import Progress, run_point
from harness.environment import Environment
from harness.errors import RunFolderError
from harness.first_contact import Contact, contact_engines
from harness.machine_limits import check_writable
from harness.observer import RunObserver, SilentObserver
from harness.plan import RunPlan, redacted, redactor
from harness.point_settings import point_settings
from harness.records import (
    Phase,
    PointRecord,
    RequestRecord,
    RunKind,
    RunRecord,
    RunStatus,
    StampSource,
    TransportOutcome,
)
from harness.safety import PUBLIC_MAX_ERROR_SHARE, StopRule
from harness.scenario import Point
from harness.schedule import Schedule
from harness.server_metrics import sample_server
from harness.settings import PointSettings
from harness.store import RunWriter

__all__ = [
    "RunResult",
    "check_folder",
    "remaining_points",
    "run_scenario",
]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `reason` says why it is not complete; counts are of the measured phase."""

    folder: Path
    status: RunStatus
    num_measured: int
    num_ok: int
    reason: str = ""


class _Sink:
    """What a finished request passes on its way into the store: counts, and the rule to stop.

    Raises out of `append`, and so ends the point, when the disk has failed.
    """

    def __init__(self, writer: RunWriter, rule: StopRule, stop: asyncio.Event) -> None:
        self._writer = writer
        self._rule = rule
        self._stop = stop
        self.num_measured = 0
        self.num_ok = 0

    def append(self, record: RequestRecord, payload: Sequence[Buffer]) -> None:
        """Take over one finished request."""
        if record.phase is Phase.MEASURE:
            self.num_measured += 1
            self.num_ok += record.transport_outcome is TransportOutcome.OK
        self._rule.note(record)
        if self._rule.reason is not None:
            self._stop.set()
        # First, even where it cannot be stored any more: the writer says how many were lost.
        self._writer.append(record, payload)
        if self._writer.failure is not None:
            raise self._writer.failure


def check_folder(folder: Path) -> None:
    """Refuse a folder that exists, or cannot be made, before anything is sent.

    Raises:
        RunFolderError: with what is in the way.
    """
    if folder.exists():
        raise RunFolderError(
            f"{folder}: exists already and a run folder is never re-used; name another with -o, "
            "or go on with it by --resume"
        )
    check_writable(folder)


async def run_scenario(
    plan: RunPlan,
    folder: Path,
    *,
    environment: Environment,
    observer: RunObserver | None = None,
    command: Sequence[str] = (),
    stop: asyncio.Event | None = None,
    is_resumed: bool = False,
    is_kernel_stamped: bool = True,
) -> RunResult:
    """Find out who is there, run every point of the plan, close the folder.

    Args:
        plan: from `plan_run`.
        folder: must not exist; with `is_resumed` a closed run of the same scenario.
        environment: stored with the run.
        observer: is told how it goes.
        command: the command line, stored without secrets.
        stop: once set, the run ends in order and is marked `interrupted`.
        is_kernel_stamped: False does without the kernel's receive stamps, as other systems must.

    Raises:
        EngineNotReadyError: an engine is unreachable, not ready, another server, or refuses what
            every request would be refused for.
        RunInterruptedError: stopped before the load; there is no folder.
        RunFolderError: the folder exists, or the disk failed; what was stored can be recovered.
    """
    observer = observer or SilentObserver()
    stop = stop or asyncio.Event()
    if not is_resumed:
        check_folder(folder)
    clock = RunClock()
    contacts = await contact_engines(plan, clock=clock, observer=observer, stop=stop)
    open_folder = _resumed if is_resumed else _created
    writer = open_folder(
        plan, folder, clock, contacts=contacts, environment=environment, command=command
    )
    rule = StopRule(_max_error_share(plan))
    run = _Run(
        plan,
        writer,
        clock=clock,
        observer=observer,
        stop=stop,
        rule=rule,
        is_kernel_stamped=is_kernel_stamped,
    )
    status = RunStatus.INCOMPLETE
    try:
        await run.all_points()
        if rule.reason is None:
            status = RunStatus.INTERRUPTED if stop.is_set() else RunStatus.COMPLETE
        else:
            writer.run.notes.append(rule.reason)
    finally:
        # Also on the way out of an error: what had finished is kept, in order.
        writer.close(status)
    sink = run.sink
    return RunResult(folder, status, sink.num_measured, sink.num_ok, rule.reason or "")


class _Once:
    """Calls a function the first time, and then no more."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def call(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()


class _Run:
    """The points of one sitting, one after the other."""

    def __init__(
        self,
        plan: RunPlan,
        writer: RunWriter,
        *,
        clock: RunClock,
        observer: RunObserver,
        stop: asyncio.Event,
        rule: StopRule,
        is_kernel_stamped: bool,
    ) -> None:
        self._plan = plan
        self._is_kernel_stamped = is_kernel_stamped
        self._writer = writer
        self._clock = clock
        self._observer = observer
        self._stop = stop
        self._texts = {prompt.id: prompt.text for prompt in plan.prompts.prompts}
        self.sink = _Sink(writer, rule, stop)

    async def all_points(self) -> None:
        """Until they are done, or one is stopped."""
        for point, schedule in zip(self._plan.points, self._plan.schedules, strict=True):
            if self._stop.is_set():
                return
            self._observer.on_point(point, schedule)
            await self._one_point(point, schedule)

    async def _one_point(self, point: Point, schedule: Schedule) -> None:
        record = _planned(point, schedule)

        # A run that is killed later then knows when this point began.
        noted = _Once(partial(self._writer.note_point, record))

        def on_progress(progress: Progress) -> None:
            noted.call()
            self._observer.on_progress(progress)

        plan = self._plan
        sampling = self._sample_server(point, record)
        try:
            await run_point(
                plan.adapters[point.engine],
                schedule.arrivals,
                point=record,
                texts=self._texts,
                settings=self._settings(point),
                clock=self._clock,
                sink=self.sink,
                on_progress=on_progress,
                on_telemetry=self._writer.append_telemetry,
                stop=self._stop,
            )
        finally:
            if sampling is not None:
                sampling.cancel()
                await asyncio.gather(sampling, return_exceptions=True)
            _note_clock(self._writer.run, self._clock, record)
            self._writer.save_point(record)

    def _sample_server(self, point: Point, record: PointRecord) -> asyncio.Task[None] | None:
        """Store the server's own metrics meanwhile, where its contract names them."""
        target = self._plan.adapters[point.engine].probe().metrics
        if target is None:
            return None
        return asyncio.create_task(
            sample_server(
                target,
                point_id=record.point_id,
                clock=self._clock,
                on_telemetry=self._writer.append_telemetry,
            )
        )

    def _settings(self, point: Point) -> PointSettings:
        settings = point_settings(
            self._plan.scenario,
            rate_rps=point.rate_rps,
            seed=point.seed,
            user_agent=self._plan.user_agent,
        )
        wire = replace(
            settings.wire,
            is_kernel_stamped=self._is_kernel_stamped,
            are_commands_allowed=self._plan.are_commands_allowed,
        )
        return replace(settings, wire=wire)


# -- before the first point ------------------------------------------------------------------------


def _created(
    plan: RunPlan,
    folder: Path,
    clock: RunClock,
    *,
    contacts: Mapping[str, Contact],
    environment: Environment,
    command: Sequence[str],
) -> RunWriter:
    """Open a new folder."""
    head = _head(plan, contacts, clock=clock, environment=environment, command=command)
    return RunWriter.create(folder, head, plan.schedules, redact=redactor(plan.secrets))


def _head(
    plan: RunPlan,
    contacts: Mapping[str, Contact],
    *,
    clock: RunClock,
    environment: Environment,
    command: Sequence[str],
) -> RunRecord:
    redact = redactor(plan.secrets)
    pairs = list(zip(plan.points, plan.schedules, strict=True))
    return RunRecord(
        name=plan.scenario.name,
        kind=RunKind.MEASURED,
        status=RunStatus.RUNNING,
        created_utc=clock.anchor_utc,
        scenario=redacted(plan.scenario.resolved(), redact),
        engines=[
            redacted(_engine_entry(plan, label, contact), redact)
            for label, contact in contacts.items()
        ],
        points=[_planned(point, schedule) for point, schedule in pairs],
        versions=environment.versions,
        revision=environment.revision,
        machine=environment.machine,
        clock=_clock_entry(clock, StampSource.KERNEL),
        prompts={
            "set": plan.prompts.name,
            "sha256": plan.prompts.sha256,
            "num_prompts": len(plan.prompts),
        },
        command=redacted(list(command), redact),
    )


def _engine_entry(plan: RunPlan, label: str, contact: Contact) -> dict[str, Any]:
    spec, adapter, info = plan.scenario.engine(label), plan.adapters[label], contact.info
    return {
        "name": label,
        "contract": spec.contract,
        "base_url": adapter.base_url,
        "params": spec.params,
        "info": {f.name: getattr(info, f.name) for f in fields(info)},
        "capabilities": {
            f.name: getattr(adapter.capabilities, f.name) for f in fields(adapter.capabilities)
        },
        "preflight": _preflight_entry(contact),
    }


def _preflight_entry(contact: Contact) -> dict[str, Any] | None:
    return None if contact.preflight is None else asdict(contact.preflight)


def _planned(point: Point, schedule: Schedule) -> PointRecord:
    return PointRecord(
        point_id=point.point_id,
        engine=point.engine,
        rate_rps=point.rate_rps,
        seed=point.seed,
        num_planned=len(schedule),
    )


def _max_error_share(plan: RunPlan) -> float | None:
    """The scenario's own limit; on a public host there always is one."""
    own = plan.scenario.limits.max_error_share
    if own is None and any(estimate.is_public for estimate in plan.estimates):
        return PUBLIC_MAX_ERROR_SHARE
    return own


# -- the clock of a sitting ------------------------------------------------------------------------


def _clock_entry(clock: RunClock, source: StampSource) -> dict[str, Any]:
    return {
        "anchor_utc": clock.anchor_utc,
        # The run clock's zero on this machine's CLOCK_MONOTONIC, to line up with other logs here.
        "anchor_monotonic_ns": clock.monotonic_ns(0),
        "offsets": clock.offsets,
        "stamp_source": source.value,
        "steps": [asdict(step) for step in clock.steps],
    }


def _note_clock(run: RunRecord, clock: RunClock, point: PointRecord) -> None:
    """Bring the stored clock up to date; one point with user stamps makes the source `user`."""
    sources = {run.clock.get("stamp_source"), point.selfcheck.get("stamp_source")} - {None}
    is_kernel = sources <= {StampSource.KERNEL.value}
    source = StampSource.KERNEL if is_kernel else StampSource.USER
    run.clock = {**run.clock, **_clock_entry(clock, source)}


# -- going on with a run ---------------------------------------------------------------------------


def remaining_points(run: RunRecord) -> tuple[Point, ...]:
    """What a stored run still lacks: points that never began, and new tries of unfinished ones.

    An unfinished point keeps its id and its requests; its new try has an id of its own.
    """
    done = {(p.engine, p.rate_rps, p.seed) for p in run.points if p.is_complete}
    tries: dict[tuple[str, float, int], list[PointRecord]] = {}
    for point in run.points:
        tries.setdefault((point.engine, point.rate_rps, point.seed), []).append(point)
    remaining = []
    for key, earlier in tries.items():
        if key in done:
            continue
        last, first_id = earlier[-1], earlier[0].point_id
        point_id = last.point_id if last.start_ns is None else f"{first_id}-try{len(earlier) + 1}"
        remaining.append(Point(point_id, *key))
    return tuple(remaining)


def _resumed(
    plan: RunPlan,
    folder: Path,
    clock: RunClock,
    *,
    contacts: Mapping[str, Contact],
    environment: Environment,
    command: Sequence[str],
) -> RunWriter:
    """Open a closed run for the points of this plan."""
    redact = redactor(plan.secrets)
    plans_to_add = partial(_plans_to_add, folder, plan)
    writer = RunWriter.resume(folder, plans_to_add, redact=redact)
    _go_on(writer.run, clock)
    writer.run.resumes.append(
        {
            "resumed_utc": clock.anchor_utc,
            "command": redacted(list(command), redact),
            "revision": environment.revision,
            "preflight": {
                label: redacted(_preflight_entry(contact), redact)
                for label, contact in contacts.items()
            },
        }
    )
    return writer


def _plans_to_add(folder: Path, plan: RunPlan, run: RunRecord) -> list[Schedule]:
    """Plans of new tries; those of points that never began are stored already.

    Raises:
        RunFolderError: somebody else went on with the run since it was planned.
    """
    if not set(plan.points) <= set(remaining_points(run)):
        raise RunFolderError(
            f"{folder}: another process went on with this run meanwhile; start --resume again for "
            "what is left"
        )
    known = {point.point_id for point in run.points}
    return [schedule for schedule in plan.schedules if schedule.point_id not in known]


def _go_on(run: RunRecord, clock: RunClock) -> None:
    """A new sitting has a clock of its own; the one before is kept with the points it timed."""
    earlier = run.clock.pop("earlier", [])
    covered = {point_id for sitting in earlier for point_id in sitting["point_ids"]}
    begun = [p.point_id for p in run.points if p.start_ns is not None]
    sitting = {**run.clock, "point_ids": [p for p in begun if p not in covered]}
    run.clock = {**_clock_entry(clock, StampSource.KERNEL), "earlier": [*earlier, sitting]}
