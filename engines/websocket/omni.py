"""What vLLM-Omni's and SGLang-Omni's protocols share: one path, one shape of audio, units of it.

Both announce a unit (a sentence, or all of the text) by `audio.start`, send it as binary messages
and end it by `audio.done` with the number of bytes. What goes the other way differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engines.base import Action, AudioFormat, Buffer, Fail, RateSource, SampleFormat
from engines.http_body import protocol_error
from engines.http_contract import FieldSpec, LookupSpec, ProbeSpec, ReadySpec, ValueType
from engines.outcomes import TransportOutcome
from engines.redact import one_line
from engines.websocket.session import Session, SessionSetup

__all__ = ["OMNI_FIELDS", "OMNI_MAX_TEXT_BYTES", "OMNI_PATH", "OMNI_PROBE", "OmniSession"]

OMNI_PATH = "/v1/audio/speech/stream"
# The servers take 128 KiB a message; JSON escapes and the other keys need room.
OMNI_MAX_TEXT_BYTES = 100_000
OMNI_FIELDS: Mapping[str, FieldSpec] = MappingProxyType(
    {
        "model": FieldSpec(),
        "voice": FieldSpec(source="voice"),
        "language": FieldSpec(source="language"),
        "instructions": FieldSpec(),
        "initial_codec_chunk_frames": FieldSpec(type=ValueType.INTEGER, min=0),
        "max_new_tokens": FieldSpec(type=ValueType.INTEGER, min=1),
        "seed": FieldSpec(type=ValueType.INTEGER),
        "ref_audio": FieldSpec(),
        "ref_text": FieldSpec(),
        "x_vector_only_mode": FieldSpec(type=ValueType.BOOLEAN),
    }
)
OMNI_PROBE = ProbeSpec(
    calls={"health": "/health", "models": "/v1/models", "voices": "/v1/audio/voices"},
    ready=ReadySpec(call="health"),
    models=LookupSpec(call="models", pointer="/data/*/id"),
    voices=LookupSpec(call="voices", pointer="/voices/*"),
)


class OmniSession(Session):
    """A session whose audio comes in units."""

    FORMAT = AudioFormat(SampleFormat.S16LE, 24_000, 1, RateSource.CONTRACT)

    def __init__(self, setup: SessionSetup) -> None:
        super().__init__(setup)
        self.is_in_unit = False
        self.unit_bytes = 0

    def on_binary(self, data: Buffer) -> list[Action]:
        """Audio of the unit that is open."""
        if not self.is_in_unit:
            return [protocol_error("message", "audio outside audio.start and audio.done")]
        self.unit_bytes += len(data)
        return self.audio(data)

    def on_unit_start(self, message: Mapping[str, Any]) -> list[Action]:
        """A unit begins; it may state its shape."""
        self.is_in_unit = True
        self.unit_bytes = 0
        said = message.get("format", "pcm")
        if said != "pcm":
            return [protocol_error("format", f"format {one_line(str(said)[:40])!r}, expected pcm")]
        rate = message.get("sample_rate")
        return [] if rate is None else self.state(SampleFormat.S16LE, rate=rate)

    def end_unit(
        self, message: Mapping[str, Any], name: str, *, is_counted: bool = True
    ) -> Fail | None:
        """A unit called `name` is over; None where it is whole, or where nobody could count."""
        self.is_in_unit = False
        if message.get("error"):
            text = f"{name} failed at the server"
            return Fail(TransportOutcome.SERVER_ERROR, "message", text)
        total = message.get("total_bytes")
        if is_counted and isinstance(total, int) and total != self.unit_bytes:
            text = f"the server sent {total} bytes in {name}, {self.unit_bytes} came"
            return Fail(TransportOutcome.TRUNCATED, "message", text)
        return None
