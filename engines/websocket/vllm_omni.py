"""vLLM-Omni's streaming text input: settings, pieces of text, one flush, units of audio.

A good `session.config` is not answered, so nothing waits for it. Without splitting nothing is made
before `input.done`. While it generates the server does not read: only a dropped session stops it.

Source: wheel 0.30.0 (2026-09).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engines.base import (
    Action,
    AudioFormat,
    Buffer,
    Closed,
    Done,
    Fail,
    PayloadEncoding,
    RateSource,
    SampleFormat,
    Send,
    TextDue,
)
from engines.event_stream import decode_payload
from engines.http_body import protocol_error
from engines.http_contract import FieldSpec, LookupSpec, ProbeSpec, ReadySpec, ValueType
from engines.outcomes import TransportOutcome
from engines.redact import one_line
from engines.websocket.session import (
    Protocol,
    Session,
    SessionAdapter,
    SessionSetup,
    compact,
    utf8_pieces,
)

__all__ = ["VllmOmniSpeech", "VllmOmniSpeechAdapter"]

# The server takes 128 KiB a message.
_MAX_TEXT_BYTES = 100_000
_NORMAL_CLOSURE = 1000
_FIELDS = MappingProxyType(
    {
        "model": FieldSpec(),
        "voice": FieldSpec(source="voice"),
        "language": FieldSpec(source="language"),
        "instructions": FieldSpec(),
        "task_type": FieldSpec(one_of=("CustomVoice", "VoiceDesign", "Base")),
        "split_granularity": FieldSpec(default="none", one_of=("none", "sentence", "clause")),
        "max_new_tokens": FieldSpec(type=ValueType.INTEGER, min=1),
        "seed": FieldSpec(type=ValueType.INTEGER),
        "initial_codec_chunk_frames": FieldSpec(type=ValueType.INTEGER, min=0),
        "non_streaming_mode": FieldSpec(type=ValueType.BOOLEAN),
        "word_timestamps": FieldSpec(type=ValueType.BOOLEAN),
        "ref_audio": FieldSpec(),
        "ref_text": FieldSpec(),
        "x_vector_only_mode": FieldSpec(type=ValueType.BOOLEAN),
    }
)


class VllmOmniSpeech(Session):
    """One session: units of audio between `audio.start` and `audio.done`, then `session.done`."""

    FORMAT = AudioFormat(SampleFormat.S16LE, 24_000, 1, RateSource.CONTRACT)

    def __init__(self, setup: SessionSetup) -> None:
        super().__init__(setup)
        self._has_ended_text = False
        self._num_units = 0
        self._is_in_unit = False
        self._unit_bytes = 0

    def on_open(self) -> list[Action]:
        """The settings; there is no answer to wait for."""
        config = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
        config.update(self.setup.chosen(*_FIELDS))
        return [Send(compact(config))]

    def write_text(self, piece: TextDue) -> list[Send]:
        """Text, and the flush after the last of it."""
        texts = utf8_pieces(piece.text, _MAX_TEXT_BYTES)
        sends = [
            Send(compact({"type": "input.text", "text": text}), text_seq=piece.seq)
            for text in texts
        ]
        if piece.is_last:
            self._has_ended_text = True
            seq = None if texts else piece.seq
            sends.append(Send(compact({"type": "input.done"}), text_seq=seq, ends_text=True))
        return sends

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """Units and their ends; kinds that carry no audio are let pass."""
        match message.get("type"):
            case "audio.start":
                return self._on_start(message)
            case "audio.chunk":
                return self._on_chunk(message)
            case "audio.done":
                return self._on_unit_done(message)
            case "session.done":
                return [Done({"num_units": self._num_units})]
            case "error":
                return [self.failed(message, "/message", "/error/message", "/error")]
            case _:
                return []

    def on_binary(self, data: Buffer) -> list[Action]:
        """Audio of the unit that is open."""
        if not self._is_in_unit:
            return [protocol_error("message", "audio outside audio.start and audio.done")]
        self._unit_bytes += len(data)
        return self.audio(data)

    def on_closed(self, closed: Closed) -> list[Action]:
        """Older servers close in order after the last unit instead of saying `session.done`."""
        is_whole = self._has_ended_text and self._num_units > 0 and not self._is_in_unit
        if closed.code == _NORMAL_CLOSURE and is_whole and not self.is_cancelled:
            return [Done({"num_units": self._num_units})]
        return super().on_closed(closed)

    def _on_start(self, message: Mapping[str, Any]) -> list[Action]:
        self._is_in_unit = True
        self._unit_bytes = 0
        said = message.get("format", "pcm")
        if said != "pcm":
            return [protocol_error("format", f"format {one_line(str(said)[:40])!r}, expected pcm")]
        rate = message.get("sample_rate")
        return [] if rate is None else self.state(SampleFormat.S16LE, rate=rate)

    def _on_chunk(self, message: Mapping[str, Any]) -> list[Action]:
        """Audio with word times comes as base64; the last chunk of a unit is empty."""
        text = message.get("audio_b64", "")
        try:
            data = decode_payload(text, PayloadEncoding.BASE64) if isinstance(text, str) else None
        except ValueError:
            data = None
        if data is None:
            return [protocol_error("message", "audio.chunk holds no base64 audio")]
        return self.audio(data) if data else []

    def _on_unit_done(self, message: Mapping[str, Any]) -> list[Action]:
        if message.get("error"):
            text = f"unit {self._num_units} failed at the server"
            return [Fail(TransportOutcome.SERVER_ERROR, "message", text)]
        total = message.get("total_bytes")
        if isinstance(total, int) and self._unit_bytes and total != self._unit_bytes:
            text = f"the server sent {total} bytes in a unit, {self._unit_bytes} came"
            return [Fail(TransportOutcome.TRUNCATED, "message", text)]
        self._is_in_unit = False
        self._num_units += 1
        return []


class VllmOmniSpeechAdapter(SessionAdapter):
    """vLLM-Omni, streaming text in and audio out."""

    SESSION = VllmOmniSpeech
    PROTOCOL = Protocol(
        name="vllm-omni-ws",
        title="vLLM-Omni, WebSocket",
        source="wheel 0.30.0 (2026-09)",
        path="/v1/audio/speech/stream",
        base_url="ws://127.0.0.1:8000",
        fields=_FIELDS,
        formats=("pcm",),
        probe=ProbeSpec(
            calls={"health": "/health", "models": "/v1/models", "voices": "/v1/audio/voices"},
            ready=ReadySpec(call="health"),
            models=LookupSpec(call="models", pointer="/data/*/id"),
            voices=LookupSpec(call="voices", pointer="/voices/*"),
        ),
        can_cancel=True,
        note="with split_granularity none nothing is made before the end of the text",
    )
