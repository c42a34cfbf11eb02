"""From simulated events to an ordinary run folder: no socket, no audio, the same tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engines.base import AudioFormat, RateSource, SampleFormat
from harness.clock import RunClock
from harness.environment import describe_environment
from harness.prompts import PromptSet
from harness.records import (
    ChunkEvent,
    PointRecord,
    RequestRecord,
    RunKind,
    RunRecord,
    RunStatus,
    StampSource,
    TransportOutcome,
)
from harness.scenario import Point, Scenario
from harness.schedule import Arrival, Schedule
from harness.store import write_run
from reference_engine.config import Profile
from reference_engine.cost_table import CostTable
from reference_engine.messages import SAMPLE_RATE_HZ, EndReason
from reference_engine.simulate import SILENT_CODEC_FRAMES, SimulatedRequest, Simulation

__all__ = ["SimulatedPoint", "write_simulated_run"]

_BYTES_PER_SAMPLE = 2
_FORMAT = AudioFormat(SampleFormat.S16LE, SAMPLE_RATE_HZ, 1, RateSource.CONTRACT)
# Listeners of a simulation never hang up and read at once, so there are no other endings.
_OUTCOMES = {
    EndReason.COMPLETE: TransportOutcome.OK,
    EndReason.LENGTH: TransportOutcome.TRUNCATED,
    EndReason.FAILED: TransportOutcome.SERVER_ERROR,
}


class SimulatedPoint:
    """One point: what was planned, and what came of it."""

    def __init__(
        self, point: Point, schedule: Schedule, simulation: Simulation, scenario: Scenario
    ) -> None:
        self.point, self.schedule, self.simulation = point, schedule, simulation
        self._drain_ns = round(scenario.phases.drain_s * 1_000_000_000)

    def record(self, start_ns: int) -> PointRecord:
        """The point as run.json holds it. A virtual clock has no lateness of its own to record."""
        schedule = self.schedule
        return PointRecord(
            point_id=self.point.point_id,
            engine=self.point.engine,
            rate_rps=self.point.rate_rps,
            seed=self.point.seed,
            num_planned=len(schedule),
            start_ns=start_ns,
            warmup_end_ns=start_ns + schedule.warmup_ns,
            measure_end_ns=start_ns + schedule.measure_ns,
            drain_end_ns=start_ns + schedule.measure_ns + self._drain_ns,
            is_complete=True,
        )

    def requests(self, start_ns: int, prompts: PromptSet) -> Iterator[RequestRecord]:
        """Its requests, in order of arrival."""
        for arrival, request in zip(self.schedule, self.simulation.requests, strict=True):
            yield _request(arrival, request, self.point, start_ns=start_ns, prompts=prompts)


def _request(
    arrival: Arrival,
    request: SimulatedRequest,
    point: Point,
    *,
    start_ns: int,
    prompts: PromptSet,
) -> RequestRecord:
    at_ns = start_ns + arrival.scheduled_ns
    chunks = _chunks(request, start_ns)
    first_ns = chunks[0].arrival_ns if chunks else None
    outcome, error = _outcome(request)
    record = RequestRecord(
        request_id=f"{point.point_id}-{arrival.index}",
        point_id=point.point_id,
        shard=arrival.shard,
        index=arrival.index,
        phase=arrival.phase,
        prompt_id=arrival.prompt_id,
        text=prompts[arrival.prompt_id].text,
        scheduled_ns=at_ns,
        dispatched_ns=at_ns,
        sent_ns=at_ns,
        last_text_ns=at_ns,
        headers_ns=first_ns,
        first_byte_ns=first_ns,
        finished_ns=None if request.finished_ns is None else start_ns + request.finished_ns,
        connection_reused=True,
        http_status=429 if request.refusal else 200,
        transport_outcome=outcome,
        error_kind=None if outcome is TransportOutcome.OK else outcome.value,
        error_text=error,
        attempts=1,
        format=_FORMAT if chunks else None,
        expected_format=_FORMAT,
        body_bytes=sum(chunk.num_bytes for chunk in chunks),
        known_onset_sample=request.known_onset_sample,
        server_timing=_timing(request),
    )
    record.chunks = chunks
    return record


def _chunks(request: SimulatedRequest, start_ns: int) -> list[ChunkEvent]:
    """Deliveries at exact instants: stamps of virtual time have no uncertainty."""
    chunks: list[ChunkEvent] = []
    offset = 0
    for seq, chunk in enumerate(request.chunks):
        at_ns = start_ns + chunk.arrival_ns
        num_bytes = chunk.num_samples * _BYTES_PER_SAMPLE
        chunks.append(ChunkEvent(seq, at_ns, at_ns, at_ns, offset, num_bytes))
        offset += num_bytes
    return chunks


def _outcome(request: SimulatedRequest) -> tuple[TransportOutcome, str | None]:
    if request.refusal is not None:
        return TransportOutcome.REFUSED, request.refusal
    if request.reason is None:
        return TransportOutcome.TIMEOUT, "still in progress at the end of the drain"
    outcome = _OUTCOMES[request.reason]
    return outcome, None if outcome is TransportOutcome.OK else f"ended by {request.reason.value}"


def _timing(request: SimulatedRequest) -> str | None:
    """Where the time went, as a server would say it (ms from arrival)."""
    stats = request.stats
    if stats is None:
        return None
    stamps = {
        "admitted": stats.admitted_ns,
        "first_step": stats.first_step_ns,
        "first_codec": stats.first_codec_ns,
        "first_routed": stats.first_routed_ns,
    }
    at_ns = request.arrival.at_ns
    known = {name: (ns - at_ns) / 1e6 for name, ns in stamps.items() if ns is not None}
    return json.dumps(known) if known else None


def write_simulated_run(
    folder: Path,
    scenario: Scenario,
    points: Sequence[SimulatedPoint],
    *,
    prompts: PromptSet,
    profiles: dict[str, Profile],
    costs: CostTable,
    command: Sequence[str],
) -> None:
    """Write the points, one after another on the run clock, as a run of kind `simulated`.

    Raises:
        RunFolderError: the folder exists, or the disk refuses.
    """
    starts: list[int] = []
    next_ns = 0
    for point in points:
        starts.append(next_ns)
        next_ns = point.record(next_ns).drain_end_ns or next_ns
    environment = describe_environment()
    run = RunRecord(
        name=scenario.name,
        kind=RunKind.SIMULATED,
        status=RunStatus.COMPLETE,
        created_utc=RunClock().anchor_utc,
        scenario=scenario.resolved(),
        engines=[_engine(label, profile, costs) for label, profile in profiles.items()],
        points=[point.record(start) for point, start in zip(points, starts, strict=True)],
        versions=environment.versions,
        revision=environment.revision,
        machine=environment.machine,
        # Virtual time has no anchor in real time.
        clock={"anchor_utc": None, "offsets": [], "stamp_source": StampSource.USER.value},
        prompts={
            "set": prompts.name,
            "sha256": prompts.sha256,
            "num_prompts": len(prompts),
        },
        command=list(command),
        notes=[
            f"simulated with the cost table {costs.label!r} ({costs.kind.value}): {costs.source}",
            f"every voice begins with {SILENT_CODEC_FRAMES} silent codec frame",
        ],
    )
    records = (
        (record, None)
        for point, start in zip(points, starts, strict=True)
        for record in point.requests(start, prompts)
    )
    write_run(folder, run, [point.schedule for point in points], records)


def _engine(label: str, profile: Profile, costs: CostTable) -> dict[str, Any]:
    return {
        "name": label,
        "contract": "simulated",
        "base_url": None,
        "params": {},
        "info": {
            "profile": profile.resolved(),
            "profile_hash": profile.hash,
            "cost_table": costs.label,
            "cost_kind": costs.kind.value,
        },
        "capabilities": {},
    }
