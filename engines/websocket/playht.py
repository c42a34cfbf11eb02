"""PlayHT's WebSocket: one JSON request, `start`, binary audio, `end`. Legacy: the service is gone.

Source: pyht git cfb2b31 (2026-01-08); the vendor's pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engines.base import (
    Action,
    AudioFormat,
    Buffer,
    Done,
    RateSource,
    SampleFormat,
    Send,
    TextDue,
)
from engines.http_contract import FieldSpec, ValueType
from engines.redact import one_line
from engines.websocket.session import Protocol, Session, SessionAdapter, SessionSetup, compact

__all__ = ["PlayhtSpeech", "PlayhtSpeechAdapter"]

_FORMATS = MappingProxyType(
    {
        "mp3": SampleFormat.MP3,
        "wav": SampleFormat.WAV,
        "flac": SampleFormat.FLAC,
        "mulaw": SampleFormat.MULAW,
    }
)
_FIELDS = MappingProxyType(
    {
        "voice": FieldSpec(source="voice", required=True),
        "output_format": FieldSpec(default="mp3", one_of=tuple(_FORMATS)),
        "voice_engine": FieldSpec(),
        "quality": FieldSpec(),
        "speed": FieldSpec(type=ValueType.NUMBER, min=0),
        "sample_rate": FieldSpec(type=ValueType.INTEGER, default=24_000, min=8000, max=48_000),
        "seed": FieldSpec(type=ValueType.INTEGER),
        "temperature": FieldSpec(type=ValueType.NUMBER, min=0),
    }
)


class PlayhtSpeech(Session):
    """One utterance on a session of its own."""

    def __init__(self, setup: SessionSetup) -> None:
        self._is_started = False
        self._request_id: Any = None
        super().__init__(setup)

    def promised(self) -> AudioFormat | None:
        """By the format that was asked for."""
        sample_format = _FORMATS[self.values["output_format"]]
        is_raw = sample_format.bytes_per_sample is not None
        return AudioFormat(
            sample_format,
            self.values["sample_rate"] if is_raw else None,
            1 if is_raw else None,
            RateSource.CONTRACT if is_raw else RateSource.CONTAINER,
        )

    def write_text(self, piece: TextDue) -> list[Send]:
        """The whole request."""
        request = {"text": piece.text, **self.setup.chosen(*_FIELDS)}
        return [Send(compact(request), text_seq=piece.seq, ends_text=True)]

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """Matched by request id: a session may still carry the rest of an earlier utterance."""
        kind, request_id = message.get("type"), message.get("request_id")
        if kind == "start" and not self._is_started:
            self._is_started, self._request_id = True, request_id
            return []
        if kind == "end" and self._is_started and request_id == self._request_id:
            return [Done({"request_id": one_line(str(request_id)[:100])})]
        if kind == "error" or "error" in message:
            return [self.failed(message, "/message", "/error", "/error_message")]
        return []

    def on_binary(self, data: Buffer) -> list[Action]:
        """Audio of this utterance; what comes before its start belongs to another."""
        return self.audio(data) if self._is_started else []


class PlayhtSpeechAdapter(SessionAdapter):
    """PlayHT over a WebSocket. The address is the `websocket_url` of its sign-in call."""

    SESSION = PlayhtSpeech
    PROTOCOL = Protocol(
        name="playht-ws",
        title="PlayHT, WebSocket (legacy)",
        source="pyht cfb2b31 (2026-01-08)",
        path="",
        base_url=None,
        fields=_FIELDS,
        formats=tuple(_FORMATS),
        has_incremental_text=False,
        note="legacy, the service has ended; tested against a fake only",
    )
