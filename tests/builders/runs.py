"""Builders of scenarios, records and run folders: a test names only the fields it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.base import AudioFormat, RateSource, SampleFormat
from harness.records import (
    ChunkEvent,
    Phase,
    PointRecord,
    RequestRecord,
    RunKind,
    RunRecord,
    RunStatus,
    TransportOutcome,
)
from harness.scenario import Scenario, parse_scenario
from harness.schedule import Arrival, Schedule
from harness.store import RunWriter, write_run

__all__ = [
    "PCM_24K",
    "chunk",
    "chunks_of",
    "kill",
    "ms",
    "point",
    "record",
    "run_folder",
    "run_record",
    "scenario",
    "scenario_data",
    "schedule_of",
]

PCM_24K = AudioFormat(
    sample_format=SampleFormat.S16LE,
    sample_rate_hz=24_000,
    channels=1,
    rate_source=RateSource.CONTRACT,
)


def ms(milliseconds: float) -> int:
    """Nanoseconds of so many milliseconds."""
    return round(milliseconds * 1_000_000)


def scenario_data(**sections: Any) -> dict[str, Any]:
    """The mapping of a small valid scenario file, with whole sections replaced."""
    data: dict[str, Any] = {
        "schema": 1,
        "name": "test",
        "engines": [{"contract": "fake"}],
        "arrivals": {"process": "poisson", "rates_rps": [2.0], "seeds": [1]},
        "phases": {"warmup_s": 1.0, "measure_s": 5.0, "drain_s": 1.0},
    }
    return {**data, **sections}


def scenario(overrides: Mapping[str, Any] | None = None, **sections: Any) -> Scenario:
    """A small valid scenario; `overrides` are dotted keys, `sections` replace whole sections."""
    return parse_scenario(
        scenario_data(**sections), where="test.yaml", base_dir=Path.cwd(), overrides=overrides
    )


def chunk(
    *,
    at_ms: float,
    num_bytes: int,
    seq: int = 0,
    offset: int = 0,
    read_ms: float | None = None,
    floor_ms: float | None = None,
) -> ChunkEvent:
    """One delivery; without `read_ms` and `floor_ms` its stamp has no uncertainty."""
    return ChunkEvent(
        seq=seq,
        arrival_ns=ms(at_ms),
        read_ns=ms(at_ms if read_ms is None else read_ms),
        floor_ns=ms(at_ms if floor_ms is None else floor_ms),
        offset=offset,
        num_bytes=num_bytes,
    )


def chunks_of(deliveries: Iterable[tuple[float, int]]) -> list[ChunkEvent]:
    """Chunks in order from (milliseconds, bytes) pairs, with seq and offset filled in."""
    built: list[ChunkEvent] = []
    offset = 0
    for seq, (at_ms, num_bytes) in enumerate(deliveries):
        built.append(chunk(at_ms=at_ms, num_bytes=num_bytes, seq=seq, offset=offset))
        offset += num_bytes
    return built


def record(
    *,
    index: int = 0,
    scheduled_ms: float = 0.0,
    chunks: Sequence[ChunkEvent] = (),
    **fields: Any,
) -> RequestRecord:
    """A request that ended well, dispatched on time; stamps follow from its chunks.

    Any field of `RequestRecord` may be given by name.
    """
    at_ns = ms(scheduled_ms)
    last_ns = chunks[-1].arrival_ns if chunks else at_ns
    num_bytes = sum(each.num_bytes for each in chunks)
    point_id = str(fields.pop("point_id", "fake-r2-s1"))
    values: dict[str, Any] = {
        "request_id": f"{point_id}-{index}",
        "shard": 0,
        "phase": Phase.MEASURE,
        "prompt_id": "p1",
        "text": "Hello there.",
        "dispatched_ns": at_ns,
        "sent_ns": at_ns,
        "last_text_ns": at_ns,
        "headers_ns": chunks[0].arrival_ns if chunks else at_ns,
        "first_byte_ns": chunks[0].arrival_ns if chunks else None,
        "finished_ns": last_ns,
        "connection_reused": True,
        "http_status": 200,
        "content_type": "audio/pcm",
        "transport_outcome": TransportOutcome.OK,
        "attempts": 1,
        "format": PCM_24K,
        "expected_format": PCM_24K,
        "audio_bytes": num_bytes,
        "body_bytes": num_bytes,
    }
    return RequestRecord(
        point_id=point_id,
        index=index,
        scheduled_ns=at_ns,
        chunks=list(chunks),
        **{**values, **fields},
    )


def point(point_id: str = "fake-r2-s1", **fields: Any) -> PointRecord:
    """A finished point of 5 s of measurement after 1 s of warm-up."""
    values: dict[str, Any] = {
        "engine": "fake",
        "rate_rps": 2.0,
        "seed": 1,
        "num_planned": 1,
        "start_ns": 0,
        "warmup_end_ns": ms(1_000),
        "measure_end_ns": ms(6_000),
        "drain_end_ns": ms(7_000),
        "is_complete": True,
    }
    return PointRecord(point_id=point_id, **{**values, **fields})


def run_record(*, points: Sequence[PointRecord] = (), **fields: Any) -> RunRecord:
    """The head of a finished run of the test scenario."""
    values: dict[str, Any] = {
        "name": "test",
        "kind": RunKind.MEASURED,
        "status": RunStatus.COMPLETE,
        "created_utc": "2026-01-01T00:00:00Z",
        "scenario": scenario().resolved(),
        "engines": [{"name": "fake", "contract": "fake", "base_url": None, "params": {}}],
        "clock": {
            "anchor_utc": "2026-01-01T00:00:00Z",
            "offsets": [],
            "stamp_source": "kernel",
            "steps": [],
        },
    }
    return RunRecord(points=list(points) or [point()], **{**values, **fields})


def schedule_of(records: Sequence[RequestRecord], points: Sequence[PointRecord]) -> list[Schedule]:
    """The plans that the records would have come from, one a point."""
    plans: list[Schedule] = []
    for each in points:
        start_ns = each.start_ns or 0
        arrivals = tuple(
            Arrival(r.index, r.phase, r.scheduled_ns - start_ns, r.prompt_id, r.shard)
            for r in records
            if r.point_id == each.point_id
        )
        warmup_ns = (each.warmup_end_ns or start_ns) - start_ns
        measure_ns = (each.measure_end_ns or start_ns) - start_ns
        plans.append(
            Schedule(each.point_id, each.rate_rps, each.seed, warmup_ns, measure_ns, arrivals)
        )
    return plans


def run_folder(
    tmp_path: Path,
    records: Sequence[RequestRecord | tuple[RequestRecord, bytes | None]],
    *,
    points: Sequence[PointRecord] | None = None,
    name: str = "run",
    **fields: Any,
) -> Path:
    """A closed run folder that holds these records, each with its payload where one is given.

    Without `points` there is one for every point id among the records.
    """
    pairs = [each if isinstance(each, tuple) else (each, None) for each in records]
    plain = [each for each, _ in pairs]
    if points is None:
        ids = dict.fromkeys(each.point_id for each in plain)
        points = [
            point(point_id, num_planned=sum(r.point_id == point_id for r in plain))
            for point_id in ids
        ]
    folder = tmp_path / name
    write_run(
        folder,
        run_record(points=[replace(each) for each in points], **fields),
        schedule_of(plain, points),
        pairs,
    )
    return folder


def kill(writer: RunWriter) -> None:
    """Leave the folder as a killed process would: all that was appended, nothing closed."""
    writer._segment.close()
    writer._lock.release()
