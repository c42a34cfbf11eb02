"""ElevenLabs `stream-input`: text in pieces, base64 audio in JSON, one voice in the address.

Short texts wait at the service until the end, unless `auto_mode` or `chunk_length_schedule` says
otherwise: that setting, not the model, then makes the first audio late.

Source: elevenlabs-python 2.59.0, git 54e5899 (2026-07-23); pipecat, LiveKit. Not seen live.
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

__all__ = ["ElevenLabsSpeech", "ElevenLabsSpeechAdapter"]

_FRACTION = FieldSpec(type=ValueType.NUMBER, min=0, max=1)
_FORMATS = MappingProxyType(
    {
        **{f"pcm_{rate}": (SampleFormat.S16LE, rate) for rate in (8000, 16_000, 22_050, 24_000)},
        "pcm_44100": (SampleFormat.S16LE, 44_100),
        "ulaw_8000": (SampleFormat.MULAW, 8000),
        "alaw_8000": (SampleFormat.ALAW, 8000),
    }
)


class ElevenLabsSpeech(Session):
    """`stream-input`: a space opens, pieces end in a space, an empty text ends."""

    def promised(self) -> AudioFormat | None:
        """By the format in the address."""
        return AudioFormat(*_FORMATS[self.values["output_format"]], 1, RateSource.CONTRACT)

    def on_open(self) -> list[Action]:
        """A single space, with the settings."""
        first: dict[str, Any] = {"text": " "}
        settings = self.setup.chosen("stability", "similarity_boost", "style", "speed")
        if settings:
            first["voice_settings"] = settings
        schedule = self.values["chunk_length_schedule"]
        if schedule is not None:
            first["generation_config"] = {"chunk_length_schedule": list(schedule)}
        return [Send(compact(first))]

    def write_text(self, piece: TextDue) -> list[Send]:
        """Each piece with a trailing space; the end is an empty text."""
        text = piece.text if piece.text.endswith(" ") else f"{piece.text} "
        spoken = [{"text": text}] if piece.text.strip() else []
        return self.piece_and_end(piece, spoken, {"text": ""})

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """Audio, and `isFinal` with the last (empty) one."""
        if message.get("error") or ("message" in message and "audio" not in message):
            return [self.failed(message, "/message", "/error")]
        actions = self.decoded(message.get("audio"))
        if message.get("isFinal") is True:
            actions.append(Done())
        return actions


class ElevenLabsSpeechAdapter(SessionAdapter):
    """ElevenLabs, streaming text in and audio out."""

    SESSION = ElevenLabsSpeech
    PROTOCOL = Protocol(
        name="elevenlabs-ws",
        title="ElevenLabs, WebSocket stream-input",
        source="elevenlabs-python 2.59.0, git 54e5899 (2026-07-23); read in clients only",
        path="/v1/text-to-speech/{voice}/stream-input",
        base_url="wss://api.elevenlabs.io",
        query=("model_id", "output_format", "auto_mode", "language_code", "inactivity_timeout"),
        fields=MappingProxyType(
            {
                "voice": FieldSpec(source="voice", required=True),
                "model_id": FieldSpec(default="eleven_flash_v2_5"),
                "output_format": FieldSpec(default="pcm_24000", one_of=tuple(_FORMATS)),
                "auto_mode": FieldSpec(type=ValueType.BOOLEAN),
                "language_code": FieldSpec(),
                "inactivity_timeout": FieldSpec(type=ValueType.INTEGER, min=1),
                "stability": _FRACTION,
                "similarity_boost": _FRACTION,
                "style": _FRACTION,
                "speed": FieldSpec(type=ValueType.NUMBER, min=0),
                "chunk_length_schedule": FieldSpec(type=ValueType.LIST),
            }
        ),
        formats=tuple(_FORMATS),
        auth=AuthSpec(
            hosts=("api.elevenlabs.io",),
            headers={"xi-api-key": CredentialSpec(env="ELEVENLABS_API_KEY")},
        ),
        note="short texts wait for the end unless auto_mode or chunk_length_schedule says so",
    )
