"""Canned conversations with WebSocket servers: what comes, and what must be sent in answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engines import registry
from engines.base import Event, Exchange, Headers, Message, SpeechRequest
from tests.builders.exchanges import ramp

__all__ = ["CONVERSATIONS", "Conversation", "Turn"]

ACCEPTED = Headers(101)
FIRST, SECOND = ramp(0, 240), ramp(240, 1000)
TEXT = "Hello there."


@dataclass(frozen=True, slots=True)
class Turn:
    """One event from the server and the messages it must bring about."""

    event: Event
    sends: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A whole request, text known from the start. `error` is the protocol's own error message."""

    engine: str
    turns: tuple[Turn, ...]
    error: Message
    says: str
    format: Mapping[str, Any]
    params: Mapping[str, Any] = field(default_factory=dict)
    audio: bytes = FIRST + SECOND
    voice: str | None = None
    # Whether an end without its end event is complete at the end of the last-but-one turn.
    may_end_early: bool = False

    def open(self, *, is_incremental: bool = False, text: str = TEXT) -> Exchange:
        """A fresh exchange."""
        adapter = registry.create(
            self.engine, base_url="ws://127.0.0.1:9", params=self.params, environ={}
        )
        return adapter.open(
            SpeechRequest("canned", text, voice=self.voice, is_incremental=is_incremental)
        )

    @property
    def events(self) -> list[Event]:
        """What the server says, in order."""
        return [turn.event for turn in self.turns]


def _json(**message: Any) -> Message:
    return Message(json.dumps(message))


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _pcm(rate: int = 24_000, source: str = "message") -> Mapping[str, Any]:
    return {
        "sample_format": "s16le",
        "sample_rate_hz": rate,
        "channels": 1,
        "rate_source": source,
    }


_NARI_AUDIO = {"encoding": "pcm_s16le", "sample_rate": 24_000, "channels": 1}

NARI = Conversation(
    "nari-ws",
    (
        Turn(ACCEPTED),
        Turn(
            _json(type="session.created", protocol="nari.speech.v1", audio=_NARI_AUDIO),
            ({"type": "request.start", "response_format": "pcm", "voice": "aiden", "seed": 3},),
        ),
        Turn(
            _json(type="request.configured"),
            ({"type": "input_text.append", "sequence": 0, "text": TEXT},),
        ),
        # The start of the answer comes before the acknowledgement that caused it.
        Turn(_json(type="response.started", request_id="r", audio=_NARI_AUDIO)),
        Turn(
            _json(type="input_text.ack", event="input_text.append", sequence=0, request_id=None),
            ({"type": "input_text.end", "sequence": 1},),
        ),
        Turn(Message(FIRST)),
        Turn(_json(type="input_text.ack", event="input_text.end", sequence=1, request_id="r")),
        Turn(Message(SECOND)),
        Turn(_json(type="response.done", request_id="r", stop_reason="stop", audio_chunks=2)),
    ),
    error=_json(
        type="error",
        request_id="r",
        error={"type": "generation_error", "code": "generation_failed", "message": "it broke"},
    ),
    says="it broke",
    format=_pcm(),
    params={"seed": 3},
    voice="aiden",
)

_CONFIG = {"type": "session.config", "response_format": "pcm", "stream_audio": True}

VLLM = Conversation(
    "vllm-omni-ws",
    (
        Turn(
            ACCEPTED,
            (
                {**_CONFIG, "voice": "vivian", "split_granularity": "none"},
                {"type": "input.text", "text": TEXT},
                {"type": "input.done"},
            ),
        ),
        Turn(_json(type="audio.start", utterance_index=0, format="pcm", sample_rate=24_000)),
        Turn(Message(FIRST)),
        Turn(Message(SECOND)),
        Turn(_json(type="audio.done", utterance_index=0, total_bytes=2000, error=False)),
        Turn(_json(type="session.done", utterance_index=0, total_sentences=1)),
    ),
    error=_json(type="error", message="it broke", partial_audio=True, action="discard"),
    says="it broke",
    format=_pcm(),
    voice="vivian",
    may_end_early=True,
)

VLLM_TIMES = Conversation(
    "vllm-omni-ws",
    (
        Turn(
            ACCEPTED,
            (
                {**_CONFIG, "split_granularity": "none", "word_timestamps": True},
                {"type": "input.text", "text": TEXT},
                {"type": "input.done"},
            ),
        ),
        Turn(_json(type="audio.start", utterance_index=0, format="pcm", sample_rate=24_000)),
        Turn(_json(type="audio.chunk", chunk_id=0, audio_b64=_b64(FIRST), timestamps=[])),
        Turn(_json(type="audio.chunk", chunk_id=1, audio_b64=_b64(SECOND), timestamps=[])),
        Turn(_json(type="audio.chunk", chunk_id=2, audio_b64="", timestamps=[])),
        Turn(_json(type="audio.done", utterance_index=0, total_bytes=2000, error=False)),
        Turn(_json(type="session.done", utterance_index=0, total_sentences=1)),
    ),
    error=_json(type="audio.done", utterance_index=0, total_bytes=0, error=True),
    says="unit 0 failed at the server",
    format=_pcm(),
    params={"word_timestamps": True},
    may_end_early=True,
)

SGLANG = Conversation(
    "sglang-omni-ws",
    (
        Turn(ACCEPTED, ({**_CONFIG, "split_granularity": "sentence"},)),
        Turn(
            _json(type="session.configured", session_id="s", response_format="pcm"),
            ({"type": "input.text", "text": TEXT}, {"type": "input.done"}),
        ),
        Turn(_json(type="audio.start", id="a", sentence_index=0, format="pcm", sample_rate=16_000)),
        Turn(Message(FIRST)),
        Turn(Message(SECOND)),
        Turn(_json(type="audio.done", id="a", sentence_index=0, total_bytes=2000, error=False)),
        Turn(_json(type="session.done", total_sentences=1)),
    ),
    error=_json(type="error", message="it broke", error_type="server_error"),
    says="it broke",
    format=_pcm(16_000),
)

PLAYHT = Conversation(
    "playht-ws",
    (
        Turn(
            ACCEPTED,
            ({"text": TEXT, "voice": "v", "output_format": "mp3", "sample_rate": 24_000},),
        ),
        Turn(Message(b"the rest of an earlier utterance")),
        Turn(_json(type="end", request_id="earlier")),
        Turn(_json(type="start", request_id="mine")),
        Turn(Message(FIRST)),
        Turn(Message(SECOND)),
        Turn(_json(type="end", request_id="mine")),
    ),
    error=_json(type="error", message="it broke"),
    says="it broke",
    format={
        "sample_format": "mp3",
        "sample_rate_hz": None,
        "channels": None,
        "rate_source": "container",
    },
    voice="v",
)

ELEVENLABS = Conversation(
    "elevenlabs-ws",
    (
        Turn(
            ACCEPTED,
            (
                {"text": " ", "voice_settings": {"stability": 0.5}},
                {"text": f"{TEXT} "},
                {"text": ""},
            ),
        ),
        Turn(_json(audio=_b64(FIRST), isFinal=None, alignment={"chars": ["H"]})),
        Turn(_json(audio=_b64(SECOND), isFinal=None, alignment=None)),
        Turn(_json(audio=None, isFinal=True)),
    ),
    error=_json(message="it broke", error="quota_exceeded", code=1008),
    says="it broke",
    format=_pcm(source="contract"),
    params={"stability": 0.5},
    voice="v",
)

CARTESIA = Conversation(
    "cartesia-ws",
    (
        Turn(
            ACCEPTED,
            (
                {
                    "model_id": "sonic-2",
                    "transcript": TEXT,
                    "voice": {"mode": "id", "id": "v"},
                    "output_format": {
                        "container": "raw",
                        "encoding": "pcm_s16le",
                        "sample_rate": 24_000,
                    },
                    "context_id": "canned",
                    "continue": False,
                    "max_buffer_delay_ms": 0,
                },
            ),
        ),
        Turn(_json(type="chunk", context_id="another", data=_b64(b"no"), done=False)),
        Turn(_json(type="chunk", context_id="canned", data=_b64(FIRST), done=False)),
        Turn(_json(type="timestamps", context_id="canned", word_timestamps={})),
        Turn(_json(type="chunk", context_id="canned", data=_b64(SECOND), done=False)),
        Turn(_json(type="flush_done", context_id="canned", flush_id=1)),
        Turn(_json(type="done", context_id="canned", done=True)),
    ),
    error=_json(type="error", context_id="canned", title="Bad", message="it broke"),
    says="it broke",
    format=_pcm(source="contract"),
    voice="v",
)

DEEPGRAM = Conversation(
    "deepgram-ws",
    (
        Turn(ACCEPTED, ({"type": "Speak", "text": TEXT}, {"type": "Flush"})),
        Turn(_json(type="Metadata", request_id="d", model_name="aura")),
        Turn(Message(FIRST)),
        Turn(_json(type="Warning", code="W", description="slow down")),
        Turn(Message(SECOND)),
        Turn(_json(type="Flushed", sequence_id=0)),
    ),
    error=_json(type="Error", description="it broke"),
    says="it broke",
    format=_pcm(source="contract"),
)

MINIMAX = Conversation(
    "minimax-ws",
    (
        Turn(ACCEPTED),
        Turn(
            _json(event="connected_success"),
            (
                {
                    "event": "task_start",
                    "model": "speech-2.6-turbo",
                    "voice_setting": {"voice_id": "v"},
                    "audio_setting": {"format": "pcm", "sample_rate": 24_000, "channel": 1},
                },
            ),
        ),
        Turn(
            _json(event="task_started"),
            ({"event": "task_continue", "text": TEXT}, {"event": "task_finish"}),
        ),
        Turn(_json(event="task_continued", data={"audio": FIRST.hex()}, is_final=False)),
        Turn(_json(event="task_continued", data={"audio": SECOND.hex()}, is_final=True)),
        Turn(_json(event="task_finished")),
    ),
    error=_json(event="task_failed", base_resp={"status_code": 1008, "status_msg": "it broke"}),
    says="it broke",
    format=_pcm(source="contract"),
    voice="v",
)

CONVERSATIONS = {
    "nari": NARI,
    "vllm-omni": VLLM,
    "vllm-omni-times": VLLM_TIMES,
    "sglang-omni": SGLANG,
    "playht": PLAYHT,
    "elevenlabs": ELEVENLABS,
    "cartesia": CARTESIA,
    "deepgram": DEEPGRAM,
    "minimax": MINIMAX,
}
