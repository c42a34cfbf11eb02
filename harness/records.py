"""What is written down about a run: one record per request, one per run, and their columns.

Times are integer nanoseconds on the run clock (zero at the run's anchor); a stamp that was not
taken is None. Nothing here judges: `transport_outcome` is how the wire ended, the rest is analysis.

Schema history
    1: first version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engines.base import AudioFormat
from engines.outcomes import TransportOutcome

__all__ = [
    "CHUNK_COLUMNS",
    "HUNG_UP_KIND",
    "INTERRUPTED_KIND",
    "REQUEST_COLUMNS",
    "SCHEDULE_COLUMNS",
    "SCHEMA_VERSION",
    "TELEMETRY_COLUMNS",
    "TEXT_EVENT_COLUMNS",
    "ChunkEvent",
    "Column",
    "Phase",
    "PointRecord",
    "RequestRecord",
    "RunKind",
    "RunRecord",
    "RunStatus",
    "StampSource",
    "TelemetrySample",
    "TextEvent",
    "TransportOutcome",
]

SCHEMA_VERSION = 1
# `error_kind` of what was in flight when the run itself was interrupted: it ended as `cancelled`,
# but not because the scenario wanted a listener to hang up.
INTERRUPTED_KIND = "interrupted"
# `error_kind` of a request that was cancelled by closing its connection: what its server still sent
# was not read. Where a protocol has words for it and the server answered them, it is another.
HUNG_UP_KIND = "hung_up"


class Phase(StrEnum):
    """Which part of a point an arrival belongs to. The drain has no arrivals."""

    WARMUP = "warmup"
    MEASURE = "measure"


class RunKind(StrEnum):
    """Whether numbers come from a wire or from a model of one. Never drawn alike."""

    MEASURED = "measured"
    SIMULATED = "simulated"


class RunStatus(StrEnum):
    """How far a run folder got."""

    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"  # by the user; closed in order
    INCOMPLETE = "incomplete"  # recovered after a kill, or stopped by a fault


class StampSource(StrEnum):
    """Where `arrival_ns` comes from."""

    KERNEL = "kernel"
    USER = "user"


@dataclass(frozen=True, slots=True)
class ChunkEvent:
    """One delivery of payload bytes.

    `arrival_ns` is the kernel's receive stamp where there is one, else the user stamp of the read.
    `floor_ns` is the latest moment before it at which the socket was known to be drained.
    `offset` counts from the start of this request's payload. `is_exact`: the stamp is the kernel's
    and of this delivery's own last byte; where it is False (a user stamp, or later bytes of the
    same connection came in the same read) the delivery came between `floor_ns` and `arrival_ns`.
    """

    seq: int
    arrival_ns: int
    read_ns: int
    floor_ns: int
    offset: int
    num_bytes: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class TextEvent:
    """One piece of incremental text: when it was due, written, and acknowledged."""

    seq: int
    planned_ns: int
    sent_ns: int | None
    ack_ns: int | None


@dataclass(frozen=True, slots=True)
class TelemetrySample:
    """One value at one moment; `source` is `selfcheck`, `gpu` or `server`."""

    point_id: str
    time_ns: int
    source: str
    name: str
    value: float


@dataclass(slots=True)
class RequestRecord:
    """Everything known about one request. Filled in by its recorder alone, stored once.

    `format` is None when no response got far enough to have one. `audio_file`, `audio_offset` and
    `audio_bytes` say where the stored payload lies; it is shorter than the sum of the chunks where
    the scenario records a part of it only. `known_onset_sample` exists only in simulated runs.
    `server_timing` is JSON text as the server gave it, or None.
    """

    request_id: str
    point_id: str
    shard: int
    index: int
    phase: Phase
    prompt_id: str
    text: str
    scheduled_ns: int
    dispatched_ns: int | None = None
    dns_ns: int | None = None
    connected_ns: int | None = None
    tls_ns: int | None = None
    sent_ns: int | None = None
    last_text_ns: int | None = None
    headers_ns: int | None = None
    first_byte_ns: int | None = None
    cancel_ns: int | None = None
    finished_ns: int | None = None
    connection_reused: bool | None = None
    tls_resumed: bool | None = None
    http_status: int | None = None
    content_type: str | None = None
    transport_outcome: TransportOutcome = TransportOutcome.CLIENT_ERROR
    error_kind: str | None = None
    error_text: str | None = None
    attempts: int = 0
    format: AudioFormat | None = None
    expected_format: AudioFormat | None = None
    audio_file: str | None = None
    audio_offset: int | None = None
    audio_bytes: int = 0
    body_bytes: int = 0
    known_onset_sample: int | None = None
    server_timing: str | None = None
    chunks: list[ChunkEvent] = field(default_factory=list)
    text_events: list[TextEvent] = field(default_factory=list)


@dataclass(slots=True)
class PointRecord:
    """One engine at one rate with one seed. `start_ns` and the phase ends are on the run clock.

    `selfcheck` holds what the client recorded about itself over the measurement phase (see
    `harness.selfcheck`); nothing in it is a verdict.
    """

    point_id: str
    engine: str
    rate_rps: float
    seed: int
    num_planned: int
    start_ns: int | None = None
    warmup_end_ns: int | None = None
    measure_end_ns: int | None = None
    drain_end_ns: int | None = None
    is_complete: bool = False
    selfcheck: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class RunRecord:
    """The contents of run.json.

    engines: one mapping per engine: name, contract, base_url (redacted), params, info (the answer
        to "who are you"), capabilities, preflight (how the request before the load ended, or
        None).
    clock: anchor_utc, anchor_monotonic_ns, offsets (list of [run_ns, realtime_ns,
        uncertainty_ns]), stamp_source, steps.
    prompts: the set's name, its sha256 and how many prompts were chosen from it.
    command: the command line of the first sitting.
    resumes: one mapping per later sitting: resumed_utc, command, revision, preflight (by engine).
    """

    name: str
    kind: RunKind
    status: RunStatus
    created_utc: str
    scenario: dict[str, Any]
    engines: list[dict[str, Any]]
    points: list[PointRecord]
    versions: dict[str, str] = field(default_factory=dict)
    revision: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    clock: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    resumes: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Column:
    """One stored column; type is `int64`, `int32`, `float64`, `bool` or `string`."""

    name: str
    type: str
    is_nullable: bool = False


def _columns(spec: str) -> tuple[Column, ...]:
    """`name:type` words, a trailing `?` meaning nullable."""
    words = (word.split(":") for word in spec.split())
    return tuple(Column(name, kind.rstrip("?"), kind.endswith("?")) for name, kind in words)


REQUEST_COLUMNS = _columns(
    """
    request_id:string point_id:string shard:int32 index:int64 phase:string prompt_id:string
    text:string? scheduled_ns:int64 dispatched_ns:int64? dns_ns:int64? connected_ns:int64?
    tls_ns:int64? sent_ns:int64? last_text_ns:int64? headers_ns:int64? first_byte_ns:int64?
    cancel_ns:int64? finished_ns:int64? connection_reused:bool? tls_resumed:bool?
    http_status:int32? content_type:string? transport_outcome:string error_kind:string?
    error_text:string? attempts:int32 sample_rate_hz:int32? channels:int32? sample_format:string?
    rate_source:string? payload_encoding:string? odd_byte:string? wav_size:string?
    expected_sample_rate_hz:int32? expected_channels:int32? expected_sample_format:string?
    audio_file:string? audio_offset:int64? audio_bytes:int64 body_bytes:int64
    known_onset_sample:int64? server_timing:string?
    """
)
CHUNK_COLUMNS = _columns(
    "request_id:string seq:int32 arrival_ns:int64 read_ns:int64 floor_ns:int64 offset:int64"
    " num_bytes:int64 is_exact:bool"
)
TEXT_EVENT_COLUMNS = _columns(
    "request_id:string seq:int32 planned_ns:int64 sent_ns:int64? ack_ns:int64?"
)
# `scheduled_ns` of the schedule counts from the start of its point; that of a request is on the
# run clock.
SCHEDULE_COLUMNS = _columns(
    "point_id:string shard:int32 index:int64 phase:string scheduled_ns:int64 prompt_id:string"
)
# Long form: one row per sample. `source` is `selfcheck`, `gpu` or `server`.
TELEMETRY_COLUMNS = _columns(
    "point_id:string time_ns:int64 source:string name:string value:float64"
)
