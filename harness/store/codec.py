"""Records as bytes for the log, and back. JSON: a log that outlives its writer can be read by eye.

Chunks travel as columns, which is a third of the size and of the time of one object each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import orjson

from engines.base import (
    AudioFormat,
    OddByte,
    PayloadEncoding,
    RateSource,
    SampleFormat,
    WavSize,
)
from harness.records import (
    ChunkEvent,
    Phase,
    PointRecord,
    RequestRecord,
    TelemetrySample,
    TextEvent,
    TransportOutcome,
)

__all__ = [
    "RequestKey",
    "StoredRequest",
    "decode_point",
    "decode_request",
    "decode_telemetry",
    "encode_point",
    "encode_request",
    "encode_telemetry",
    "request_key",
]

_SCALARS = tuple(
    field.name for field in fields(RequestRecord) if field.name not in ("chunks", "text_events")
)
_CHUNK_FIELDS = tuple(field.name for field in fields(ChunkEvent))
_TEXT_FIELDS = tuple(field.name for field in fields(TextEvent))
_ENUMS: Mapping[str, Callable[[str], Any]] = {
    "phase": Phase,
    "transport_outcome": TransportOutcome,
}


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Point, place in its plan, and id of one request."""

    point_id: str
    index: int
    request_id: str


def encode_request(record: RequestRecord) -> bytes:
    """One request with its chunks and text events."""
    values: dict[str, Any] = {name: getattr(record, name) for name in _SCALARS}
    values["chunks"] = [[getattr(c, name) for c in record.chunks] for name in _CHUNK_FIELDS]
    values["text_events"] = [
        [getattr(e, name) for e in record.text_events] for name in _TEXT_FIELDS
    ]
    return _dumps(values)


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """One request out of the log: its record without rows, and the rows as columns.

    `chunks` and `text_events` have one list for each field of `ChunkEvent` and `TextEvent`.
    """

    record: RequestRecord
    chunks: list[list[int]]
    text_events: list[list[int | None]]


def decode_request(body: bytes) -> StoredRequest:
    """The inverse of `encode_request`, as far as tables need it: rows stay columns."""
    values: dict[str, Any] = orjson.loads(body)
    chunks, text_events = values.pop("chunks"), values.pop("text_events")
    for name, enum in _ENUMS.items():
        values[name] = enum(values[name])
    for name in ("format", "expected_format"):
        values[name] = _audio_format(values[name])
    return StoredRequest(RequestRecord(**values), chunks, text_events)


def request_key(body: bytes) -> RequestKey:
    """What a stored request is found and sorted by, without building all of it."""
    values: dict[str, Any] = orjson.loads(body)
    return RequestKey(values["point_id"], values["index"], values["request_id"])


def encode_point(point: PointRecord) -> bytes:
    """The state of one point."""
    return _dumps(point)


def decode_point(body: bytes) -> PointRecord:
    """The inverse of `encode_point`."""
    return PointRecord(**orjson.loads(body))


def encode_telemetry(rows: list[TelemetrySample]) -> bytes:
    """A batch of samples."""
    return _dumps([[r.point_id, r.time_ns, r.source, r.name, r.value] for r in rows])


def decode_telemetry(body: bytes) -> list[TelemetrySample]:
    """The inverse of `encode_telemetry`."""
    return [TelemetrySample(*row) for row in orjson.loads(body)]


def _audio_format(values: dict[str, Any] | None) -> AudioFormat | None:
    if values is None:
        return None
    return AudioFormat(
        sample_format=SampleFormat(values["sample_format"]),
        sample_rate_hz=values["sample_rate_hz"],
        channels=values["channels"],
        rate_source=RateSource(values["rate_source"]),
        encoding=PayloadEncoding(values["encoding"]),
        odd_byte=OddByte(values["odd_byte"]),
        wav_size=WavSize(values["wav_size"]),
    )


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # Half a surrogate pair in a text is the one thing JSON in UTF-8 cannot hold.
        return orjson.dumps(_encodable(value))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value
