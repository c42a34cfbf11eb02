"""Wyoming: JSON lines with raw payloads over TCP, the protocol of Home Assistant's voices.

An event is one line of JSON, then `data_length` bytes of more JSON, then `payload_length` raw
bytes; `data` may stand in the line, behind it, or both. Whole texts answer with one group of
`audio-start` ... `audio-stop`; streamed texts with a group a sentence, and only
`synthesize-stopped` is the end.

Source: wyoming 1.10.2, wyoming-piper 2.5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import orjson

from engines.adapter import CodedAdapter
from engines.base import (
    Action,
    Audio,
    AudioFormat,
    Buffer,
    CancelDue,
    Capabilities,
    Close,
    Closed,
    Done,
    EndOfBody,
    EngineInfo,
    Event,
    Exchange,
    Fail,
    Format,
    Probe,
    RateSource,
    SampleFormat,
    Send,
    SpeechRequest,
    StreamBytes,
    TcpTarget,
    TextDue,
)
from engines.card import EngineCard
from engines.ending import EndsOnce
from engines.http_body import protocol_error
from engines.http_contract import FieldSpec
from engines.outcomes import TransportOutcome
from engines.redact import one_line
from engines.shape import is_channel_count, is_sample_rate, is_whole_number

__all__ = ["WyomingAdapter", "WyomingEvent", "WyomingExchange", "WyomingParser", "write_event"]

DEFAULT_PORT = 10_200

# Far above what servers send (2 KiB of audio an event); more is not a Wyoming server.
_MAX_LINE_BYTES = 64 * 1024
_MAX_DATA_BYTES = 1024 * 1024
_MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
_FORMATS = MappingProxyType({2: SampleFormat.S16LE, 3: SampleFormat.S24LE})
_FIELDS = MappingProxyType(
    {
        "voice": FieldSpec(source="voice"),
        "language": FieldSpec(source="language"),
        "speaker": FieldSpec(),
    }
)


@dataclass(frozen=True, slots=True)
class WyomingEvent:
    """One event; `data` holds what stood in the line and behind it, the latter winning."""

    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""


def write_event(type_: str, data: Mapping[str, Any] | None = None) -> bytes:
    """An event as bytes, with its data in the line, which every version reads."""
    line: dict[str, Any] = {"type": type_}
    if data:
        line["data"] = dict(data)
    return orjson.dumps(line) + b"\n"


class WyomingParser:
    """Cuts a byte stream into events; holds no more than one of them."""

    __slots__ = ("_buffer", "_line", "_start", "_wanted")

    def __init__(self) -> None:
        self._buffer = bytearray()
        # The line whose data and payload are still awaited.
        self._line: Mapping[str, Any] | None = None
        self._wanted = (0, 0)
        # Where the search for a line end goes on, so that a slow line is not searched again.
        self._start = 0

    def push(self, data: Buffer) -> list[WyomingEvent]:
        """The events that `data` completes.

        Raises:
            ValueError: this is not Wyoming, or an event passed its limit.
        """
        self._buffer += data
        events: list[WyomingEvent] = []
        while (event := self._next()) is not None:
            events.append(event)
        return events

    def _next(self) -> WyomingEvent | None:
        if self._line is None and not self._read_line():
            return None
        assert self._line is not None
        num_data, num_payload = self._wanted
        if len(self._buffer) < num_data + num_payload:
            return None
        data = dict(self._line.get("data") or {})
        if num_data:
            data |= _object(bytes(self._buffer[:num_data]), "data")
        payload = bytes(self._buffer[num_data : num_data + num_payload])
        del self._buffer[: num_data + num_payload]
        event = WyomingEvent(self._line["type"], data, payload)
        self._line = None
        return event

    def _read_line(self) -> bool:
        end = self._buffer.find(b"\n", self._start)
        if end < 0:
            self._start = len(self._buffer)
            if self._start > _MAX_LINE_BYTES:
                raise ValueError(f"a line of more than {_MAX_LINE_BYTES} bytes")
            return False
        line = _object(bytes(self._buffer[:end]), "event")
        del self._buffer[: end + 1]
        self._start = 0
        if not isinstance(line.get("type"), str):
            raise ValueError("an event without a type")
        if not isinstance(line.get("data") or {}, dict):
            raise ValueError("an event whose data is no object")
        self._line = line
        self._wanted = (
            _length(line, "data_length", _MAX_DATA_BYTES),
            _length(line, "payload_length", _MAX_PAYLOAD_BYTES),
        )
        return True


class WyomingExchange(EndsOnce):
    """One request on a connection of its own."""

    __slots__ = ("_format", "_parser", "_request", "_target", "_voice")

    def __init__(
        self, request: SpeechRequest, target: TcpTarget, *, voice: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._request = request
        self._target = target
        self._voice = dict(voice)
        self._parser = WyomingParser()
        self._format: AudioFormat | None = None

    @property
    def target(self) -> TcpTarget:
        """Where to connect."""
        return self._target

    def start(self) -> list[Action]:
        """The whole text, or the announcement that it will come in pieces."""
        if self._request.is_incremental:
            return [Send(write_event("synthesize-start", self._voiced({})))]
        event = write_event("synthesize", self._voiced({"text": self._request.text}))
        return [Send(event, ends_text=True)]

    def _react(self, event: Event) -> Iterable[Action]:
        match event:
            case StreamBytes(data=data):
                return self._read(data)
            case TextDue() if self._request.is_incremental:
                return self._write(event)
            case CancelDue():
                # The protocol has no word for it.
                cancelled = "cancelled by the scenario; the connection is closed"
                return [Close(), Fail(TransportOutcome.CANCELLED, "stream", cancelled)]
            case Closed() | EndOfBody():
                text = "the connection closed before the end event"
                return [Fail(TransportOutcome.TRUNCATED, "stream", text)]
            case _:
                return [protocol_error("order", f"{type(event).__name__} does not belong here")]

    def _write(self, piece: TextDue) -> list[Action]:
        sends = b""
        if piece.text:
            sends += write_event("synthesize-chunk", {"text": piece.text})
        if piece.is_last:
            # Servers that do not stream text act on the whole of it and ignore the rest.
            sends += write_event("synthesize", self._voiced({"text": self._request.text}))
            sends += write_event("synthesize-stop")
        if not sends:
            return []
        return [Send(sends, text_seq=piece.seq, ends_text=piece.is_last)]

    def _voiced(self, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "voice": self._voice} if self._voice else data

    def _read(self, data: Buffer) -> Iterable[Action]:
        try:
            for event in self._parser.push(data):
                yield from self._on_event(event)
        except ValueError as fault:
            yield protocol_error("event", one_line(str(fault)))

    def _on_event(self, event: WyomingEvent) -> list[Action]:
        match event.type:
            case "audio-start":
                return self._hear(event.data)
            case "audio-chunk":
                told = self._hear(event.data) if self._format is None else []
                if told and isinstance(told[0], Fail):
                    return told
                return [*told, Audio(event.payload)] if event.payload else told
            case "audio-stop" if not self._request.is_incremental:
                return [Done()]
            case "synthesize-stopped":
                return [Done()]
            case "error":
                text = one_line(str(event.data.get("text") or event.data)[:1000])
                return [Fail(TransportOutcome.SERVER_ERROR, "event", text)]
            case _:
                return []

    def _hear(self, data: Mapping[str, Any]) -> list[Action]:
        """The format; every group states it again, and it must not change."""
        rate, width, channels = (data.get(key) for key in ("rate", "width", "channels"))
        sample_format = _FORMATS.get(width) if isinstance(width, int) else None
        if sample_format is None or not is_sample_rate(rate) or not is_channel_count(channels):
            said = one_line(f"rate {rate}, width {width}, channels {channels}"[:120])
            return [protocol_error("event", f"{said} is no audio this can read")]
        found = AudioFormat(sample_format, rate, channels, RateSource.MESSAGE)
        if self._format is None:
            self._format = found
            return [Format(found)]
        if found != self._format:
            return [protocol_error("event", "the audio changes its format in mid-stream")]
        return []


class WyomingAdapter(CodedAdapter):
    """A Wyoming server at `tcp://host:port`."""

    # `http` is let pass so that one address can be given for all engines of a scenario.
    SCHEMES = ("tcp", "http")

    @classmethod
    def describe(cls) -> EngineCard:
        """What is known of the engine without talking to it."""
        return EngineCard(
            name="wyoming",
            title="Wyoming (wyoming-piper and others)",
            source="wyoming 1.10.2, wyoming-piper 2.5.2",
            base_url=f"tcp://127.0.0.1:{DEFAULT_PORT}",
            capabilities=Capabilities(
                transport="tcp",
                formats=("s16le", "s24le"),
                has_incremental_text=True,
                can_cancel=False,
                seen_live="wyoming-piper 2.5.2, 2026-11-29",
                note="streamed text needs a server that streams it (wyoming-piper since 2.0 does)",
            ),
            parameters=_FIELDS,
        )

    def open(self, request: SpeechRequest) -> Exchange:
        """Begin one request; see `engines.base.Adapter`."""
        values = self.values_of(request)
        keys = {"voice": "name", "language": "language", "speaker": "speaker"}
        voice = {keys[name]: str(value) for name, value in values.items() if value is not None}
        parts = urlsplit(self.base_url)
        assert parts.hostname is not None
        target = TcpTarget(parts.hostname, parts.port or DEFAULT_PORT)
        return WyomingExchange(request, target, voice=voice)

    def probe(self) -> Probe:
        """No HTTP call: `describe` is part of the TCP protocol, so readiness is not asked."""
        reason = "readiness cannot be asked over HTTP"
        info = EngineInfo(self.name, is_ready=True, reason=reason)
        return Probe(calls=MappingProxyType({}), parse=lambda _replies: info)


def _object(raw: bytes, what: str) -> dict[str, Any]:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise ValueError(f"{what} is not JSON: {one_line(raw[:80])!r}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} is no JSON object: {one_line(raw[:80])!r}")
    return found


def _length(line: Mapping[str, Any], key: str, limit: int) -> int:
    value = line.get(key) or 0
    if not is_whole_number(value, 0, limit):
        raise ValueError(f"{key} {one_line(str(value)[:40])} is not from 0 to {limit}")
    return value
