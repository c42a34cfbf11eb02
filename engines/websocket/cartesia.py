"""Cartesia: every message repeats the request with the next piece of the transcript.

Source: cartesia-python 4.0.1, git 30f08c7 (2026-08-14); pipecat, LiveKit. Not seen live.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engines.base import (
    Action,
    AudioFormat,
    Done,
    RateSource,
    SampleFormat,
    Send,
    TextDue,
)
from engines.http_contract import AuthSpec, CredentialSpec, FieldSpec, ValueType
from engines.websocket.session import Protocol, Session, SessionAdapter, SessionSetup, compact

__all__ = ["CartesiaSpeech", "CartesiaSpeechAdapter"]

_FORMATS = MappingProxyType(
    {
        "pcm_s16le": SampleFormat.S16LE,
        "pcm_f32le": SampleFormat.F32LE,
        "pcm_mulaw": SampleFormat.MULAW,
        "pcm_alaw": SampleFormat.ALAW,
    }
)


class CartesiaSpeech(Session):
    """One context: every message repeats the request, `continue` says whether more text follows."""

    def __init__(self, setup: SessionSetup) -> None:
        super().__init__(setup)
        self._context_id = setup.request.request_id

    def promised(self) -> AudioFormat | None:
        """By encoding and rate."""
        sample_format = _FORMATS[self.values["encoding"]]
        return AudioFormat(sample_format, self.values["sample_rate"], 1, RateSource.CONTRACT)

    def write_text(self, piece: TextDue) -> list[Send]:
        """The full request with this piece of the transcript."""
        values = self.values
        message = {
            "model_id": values["model_id"],
            "transcript": piece.text,
            "voice": {"mode": "id", "id": values["voice"]},
            "output_format": {
                "container": "raw",
                "encoding": values["encoding"],
                "sample_rate": values["sample_rate"],
            },
            "context_id": self._context_id,
            "continue": not piece.is_last,
            "max_buffer_delay_ms": values["max_buffer_delay_ms"],
            **self.setup.chosen("language"),
        }
        return [Send(compact(message), text_seq=piece.seq, ends_text=piece.is_last)]

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """Messages of this context; times and flushes carry no audio."""
        context_id = message.get("context_id", self._context_id)
        if context_id != self._context_id:
            return []
        kind = message.get("type")
        if kind == "chunk":
            return self.decoded(message.get("data"))
        if kind in ("done", "error") and self.is_cancelled:
            return [self.cancelled()]
        if kind == "error":
            return [self.failed(message, "/message", "/title", "/error")]
        return [Done()] if kind == "done" else []

    def on_cancel(self) -> list[Action]:
        """Its own message; the end of the context follows."""
        return [Send(compact({"context_id": self._context_id, "cancel": True}))]


class CartesiaSpeechAdapter(SessionAdapter):
    """Cartesia, streaming text in and audio out."""

    SESSION = CartesiaSpeech
    PROTOCOL = Protocol(
        name="cartesia-ws",
        title="Cartesia, WebSocket",
        source="cartesia-python 4.0.1, git 30f08c7 (2026-08-14); read in clients only",
        path="/tts/websocket",
        base_url="wss://api.cartesia.ai",
        headers=(("Cartesia-Version", "2026-08-14"),),
        fields=MappingProxyType(
            {
                "voice": FieldSpec(source="voice", required=True),
                "model_id": FieldSpec(default="sonic-2"),
                "language": FieldSpec(source="language"),
                "encoding": FieldSpec(default="pcm_s16le", one_of=tuple(_FORMATS)),
                "sample_rate": FieldSpec(
                    type=ValueType.INTEGER, default=24_000, min=8000, max=48_000
                ),
                # The service's own default holds text back for three seconds.
                "max_buffer_delay_ms": FieldSpec(
                    type=ValueType.INTEGER, default=0, min=0, max=5000
                ),
            }
        ),
        formats=tuple(_FORMATS),
        auth=AuthSpec(
            hosts=("api.cartesia.ai",),
            headers={"X-API-Key": CredentialSpec(env="CARTESIA_API_KEY")},
        ),
        can_cancel=True,
    )
