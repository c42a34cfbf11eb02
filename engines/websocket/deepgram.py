"""Deepgram v1: `Speak` for every piece of text, `Flush` after the last, binary audio.

Source: deepgram-python-sdk 7.6.0, git 7da415d (2026-07-22); the vendor's pages. Not seen live.
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
from engines.websocket.session import Protocol, Session, SessionAdapter, compact

__all__ = ["DeepgramSpeech", "DeepgramSpeechAdapter"]

_FORMATS = MappingProxyType(
    {
        "linear16": SampleFormat.S16LE,
        "mulaw": SampleFormat.MULAW,
        "alaw": SampleFormat.ALAW,
    }
)


class DeepgramSpeech(Session):
    """`Speak` for every piece, `Flush` after the last, `Flushed` is the end of the audio."""

    def promised(self) -> AudioFormat | None:
        """By the encoding and rate in the address."""
        sample_format = _FORMATS[self.values["encoding"]]
        return AudioFormat(sample_format, self.values["sample_rate"], 1, RateSource.CONTRACT)

    def write_text(self, piece: TextDue) -> list[Send]:
        """Text, and the flush after the last of it."""
        speak = [{"type": "Speak", "text": piece.text}] if piece.text else []
        return self.piece_and_end(piece, speak, {"type": "Flush"})

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """The end, an error, or something that is neither."""
        match message.get("type"):
            case "Flushed":
                return [self.cancelled() if self.is_cancelled else Done()]
            case "Cleared":
                return [self.cancelled()] if self.is_cancelled else []
            case "Error":
                return [self.failed(message, "/description", "/err_msg", "/message")]
            case _:
                return []

    def on_cancel(self) -> list[Action]:
        """Its own message; `Cleared` follows."""
        return [Send(compact({"type": "Clear"}))]


class DeepgramSpeechAdapter(SessionAdapter):
    """Deepgram, streaming text in and audio out."""

    SESSION = DeepgramSpeech
    PROTOCOL = Protocol(
        name="deepgram-ws",
        title="Deepgram, WebSocket v1",
        source="deepgram-python-sdk 7.6.0, git 7da415d (2026-07-22); read in clients only",
        path="/v1/speak",
        base_url="wss://api.deepgram.com",
        query=("model", "encoding", "sample_rate"),
        fields=MappingProxyType(
            {
                "model": FieldSpec(default="aura-2-thalia-en"),
                "encoding": FieldSpec(default="linear16", one_of=tuple(_FORMATS)),
                "sample_rate": FieldSpec(
                    type=ValueType.INTEGER, default=24_000, min=8000, max=48_000
                ),
            }
        ),
        formats=tuple(_FORMATS),
        auth=AuthSpec(
            hosts=("api.deepgram.com",),
            headers={"Authorization": CredentialSpec(env="DEEPGRAM_API_KEY", prefix="Token ")},
        ),
        can_cancel=True,
    )
