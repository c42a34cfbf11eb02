"""`nari.speech.v1`: Nari's Qwen3-TTS over a WebSocket, every piece of text acknowledged.

The server speaks first; the client names its settings and waits for them to be accepted; then each
append waits for the acknowledgement of the one before. Sequence numbers count appends and the end
of the text alike. After the end the server no longer reads, so a later cancel can only close.

Source: server git e8c5b2b (2026-08-20, v0.1.0).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engines.base import (
    Action,
    AudioFormat,
    Buffer,
    Close,
    Closed,
    Done,
    Fail,
    OddByte,
    RateSource,
    SampleFormat,
    Send,
    TextAccepted,
    TextDue,
)
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

__all__ = ["NariSpeech", "NariSpeechAdapter"]

PROTOCOL_NAME = "nari.speech.v1"

# The server takes 64 KiB of UTF-8 a message; JSON escapes and the other keys need room.
_MAX_APPEND_BYTES = 30_000
_ENCODINGS = MappingProxyType({"pcm_s16le": SampleFormat.S16LE})
_SESSION_FIELDS = MappingProxyType(
    {
        "model": FieldSpec(),
        "voice": FieldSpec(source="voice"),
        "language": FieldSpec(source="language"),
        "instruct": FieldSpec(),
        "seed": FieldSpec(type=ValueType.INTEGER, min=0),
        "do_sample": FieldSpec(type=ValueType.BOOLEAN),
        "temperature": FieldSpec(type=ValueType.NUMBER, min=0),
        "top_k": FieldSpec(type=ValueType.INTEGER, min=0),
        "top_p": FieldSpec(type=ValueType.NUMBER, min=0, max=1),
        "repetition_penalty": FieldSpec(type=ValueType.NUMBER, min=0),
        "subtalker_dosample": FieldSpec(type=ValueType.BOOLEAN),
        "subtalker_temperature": FieldSpec(type=ValueType.NUMBER, min=0),
        "subtalker_top_k": FieldSpec(type=ValueType.INTEGER, min=0),
        "subtalker_top_p": FieldSpec(type=ValueType.NUMBER, min=0, max=1),
        "max_new_tokens": FieldSpec(type=ValueType.INTEGER, min=1, max=32_768),
        "ignore_eos": FieldSpec(type=ValueType.BOOLEAN),
        "skip_fixed_bootstrap_audio": FieldSpec(type=ValueType.BOOLEAN),
        "stream_chunk_schedule": FieldSpec(type=ValueType.LIST),
        "stream_chunk_frames": FieldSpec(type=ValueType.INTEGER, min=1, max=128),
        "stream_first_chunk_frames": FieldSpec(type=ValueType.INTEGER, min=1, max=128),
        "stream_steady_chunk_frames": FieldSpec(type=ValueType.INTEGER, min=1, max=128),
    }
)


class NariSpeech(Session):
    """One session. Wire sequence numbers are ours; pieces of text are the driver's."""

    FORMAT = AudioFormat(SampleFormat.S16LE, 24_000, 1, RateSource.CONTRACT, odd_byte=OddByte.ERROR)

    def __init__(self, setup: SessionSetup) -> None:
        super().__init__(setup)
        self._is_configured = False
        self._waits_for_ack = False
        self._sequence = 0
        # Messages of the current piece that wait for the acknowledgement of the one before.
        self._queued: deque[Send] = deque()
        self._seq_in_flight: int | None = None
        self._has_ended_text = False
        self._num_chunks = 0
        self._facts: dict[str, Any] = {}

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """See the module's page for the order in which these come."""
        match message.get("type"):
            case "session.created":
                return self._on_created(message)
            case "request.configured":
                self._is_configured = True
                return []
            case "input_text.ack":
                return self._on_ack(message)
            case "response.started":
                self._facts["request_id"] = one_line(str(message.get("request_id"))[:100])
                return self._hear(message.get("audio"))
            case "response.done":
                return self._on_done(message)
            case "error":
                return [self.failed(message, "/error/message", "/error/code", "/error")]
            case other:
                return [protocol_error("message", f"unknown message {one_line(str(other)[:80])!r}")]

    def on_binary(self, data: Buffer) -> list[Action]:
        """Audio; counted, since the server says how many it sent."""
        self._num_chunks += 1
        return self.audio(data)

    def may_write(self) -> bool:
        """Settings accepted, and nothing unacknowledged."""
        return self._is_configured and not self._waits_for_ack and not self._queued

    def write_text(self, piece: TextDue) -> list[Send]:
        """The first message of the piece; further ones wait for their acknowledgements."""
        for text in utf8_pieces(piece.text, _MAX_APPEND_BYTES):
            self._queue("input_text.append", piece, text=text)
        if piece.is_last:
            self._queue("input_text.end", piece)
            self._has_ended_text = True
        return self._next_send()

    def on_cancel(self) -> list[Action]:
        """Its own message while the server still reads, else closing."""
        end_is_sent = self._has_ended_text and not self._queued
        if not self._is_configured or end_is_sent:
            return [Close(), self.cancelled()]
        self._queued.clear()
        return [Send(compact({"type": "response.cancel"}))]

    def on_closed(self, closed: Closed) -> list[Action]:
        """Code 1002 right after the upgrade: the server does not know the subprotocol."""
        if closed.code == 1002 and not self._is_configured:
            return [protocol_error("close", f"the server does not speak {PROTOCOL_NAME}")]
        return super().on_closed(closed)

    def pump(self) -> list[Action]:
        """What the last acknowledgement released, then further pieces."""
        released: list[Action] = []
        if not self._waits_for_ack:
            released += self._next_send()
        return [*released, *super().pump()]

    def _on_created(self, message: Mapping[str, Any]) -> list[Action]:
        said = message.get("protocol")
        if said != PROTOCOL_NAME:
            shown = one_line(str(said)[:80])
            return [protocol_error("message", f"protocol {shown!r}, expected {PROTOCOL_NAME}")]
        start = {"type": "request.start", "response_format": "pcm"}
        start.update(self.setup.chosen(*_SESSION_FIELDS))
        return [*self._hear(message.get("audio")), Send(compact(start))]

    def _on_ack(self, message: Mapping[str, Any]) -> list[Action]:
        wanted = self._sequence - 1
        if not self._waits_for_ack or message.get("sequence") != wanted:
            said = one_line(str(message.get("sequence"))[:40])
            return [protocol_error("message", f"acknowledged {said}, sent up to {wanted}")]
        self._waits_for_ack = False
        seq, self._seq_in_flight = self._seq_in_flight, None
        # A long piece is several messages and is accepted with the last of them.
        is_whole = all(send.text_seq != seq for send in self._queued)
        return [TextAccepted(seq)] if seq is not None and is_whole else []

    def _on_done(self, message: Mapping[str, Any]) -> list[Action]:
        said = message.get("audio_chunks")
        reason = message.get("stop_reason")
        self._facts |= {"stop_reason": one_line(str(reason)[:40]), "audio_chunks": said}
        if self.is_cancelled:
            return [self.cancelled()]
        if reason == "cancelled":
            text = "the server cancelled the request"
            return [Fail(TransportOutcome.SERVER_ERROR, "message", text, self._facts)]
        if said != self._num_chunks:
            text = f"the server sent {one_line(str(said)[:40])} chunks, {self._num_chunks} came"
            return [Fail(TransportOutcome.TRUNCATED, "message", text, self._facts)]
        return [Done(self._facts)]

    def _hear(self, audio: Any) -> list[Action]:
        """The shape of the audio, which two of the messages state."""
        if not isinstance(audio, dict):
            return []
        encoding = audio.get("encoding")
        sample_format = _ENCODINGS.get(encoding) if isinstance(encoding, str) else None
        if sample_format is None:
            shown = one_line(str(encoding)[:60])
            return [protocol_error("format", f"encoding {shown!r}, expected pcm_s16le")]
        return self.state(
            sample_format, rate=audio.get("sample_rate"), channels=audio.get("channels", 1)
        )

    def _queue(self, kind: str, piece: TextDue, **more: str) -> None:
        message = {"type": kind, "sequence": self._sequence + len(self._queued), **more}
        is_end = kind == "input_text.end"
        # The end of the text carries none of it, so it is no piece's write, unless it is the piece.
        is_piece = bool(more) or not piece.text
        self._queued.append(
            Send(
                compact(message),
                text_seq=piece.seq if is_piece and piece.seq >= 0 else None,
                ends_text=is_end,
            )
        )

    def _next_send(self) -> list[Send]:
        if not self._queued:
            return []
        send = self._queued.popleft()
        self._sequence += 1
        self._waits_for_ack = True
        self._seq_in_flight = send.text_seq
        return [send]


class NariSpeechAdapter(SessionAdapter):
    """Nari's server, streaming text in and audio out."""

    SESSION = NariSpeech
    PROTOCOL = Protocol(
        name="nari-ws",
        title="Nari Qwen3-TTS, WebSocket nari.speech.v1",
        source="server e8c5b2b (2026-08-20, v0.1.0)",
        path="/v1/audio/speech/ws",
        base_url="ws://127.0.0.1:8000",
        fields=_SESSION_FIELDS,
        formats=("pcm",),
        subprotocols=(PROTOCOL_NAME,),
        probe=ProbeSpec(
            calls={"health": "/health", "ready": "/ready", "models": "/v1/models"},
            ready=ReadySpec(call="ready", pointer="/ready", equals=True),
            models=LookupSpec(call="models", pointer="/data/*/id"),
        ),
        can_cancel=True,
        max_text_chars=65_536,
        note="each append waits for the acknowledgement of the one before",
    )
