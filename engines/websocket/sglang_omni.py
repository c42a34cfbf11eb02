"""SGLang-Omni's streaming text input: the path of vLLM-Omni, another protocol.

The server cuts text at sentence marks and makes nothing before one. While it speaks a sentence it
lets at most 16 messages wait and closes the session over one more. So words are gathered here and
sent when a mark completes a sentence, which costs no time since the server would have waited too,
and no more than a few sentences are ahead of what it has finished.

Source: wheel 0.1.9 (2026-10).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engines.base import (
    Action,
    AudioFormat,
    Buffer,
    Done,
    Fail,
    RateSource,
    SampleFormat,
    Send,
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

__all__ = ["SglangOmniSpeech", "SglangOmniSpeechAdapter"]

# The server takes 128 KiB a message and lets 16 wait; some room is left for the end of the text.
_MAX_TEXT_BYTES = 100_000
_MAX_WAITING = 12
_MARKS = MappingProxyType(
    {
        "sentence": re.compile("[.!?。！？]+"),
        "clause": re.compile("[.!?,;:。！？，；：、]+"),
    }
)
_FIELDS = MappingProxyType(
    {
        "model": FieldSpec(),
        "voice": FieldSpec(source="voice"),
        "language": FieldSpec(source="language"),
        "instructions": FieldSpec(),
        "task_type": FieldSpec(),
        "split_granularity": FieldSpec(default="sentence", one_of=("sentence", "clause")),
        "suppress_bootstrap_silence": FieldSpec(type=ValueType.BOOLEAN),
        "initial_codec_chunk_frames": FieldSpec(type=ValueType.INTEGER, min=0),
        "max_new_tokens": FieldSpec(type=ValueType.INTEGER, min=1),
        "temperature": FieldSpec(type=ValueType.NUMBER, min=0),
        "top_p": FieldSpec(type=ValueType.NUMBER, min=0, max=1),
        "top_k": FieldSpec(type=ValueType.INTEGER),
        "repetition_penalty": FieldSpec(type=ValueType.NUMBER, min=0),
        "seed": FieldSpec(type=ValueType.INTEGER),
        "ref_audio": FieldSpec(),
        "ref_text": FieldSpec(),
        "x_vector_only_mode": FieldSpec(type=ValueType.BOOLEAN),
    }
)


class SglangOmniSpeech(Session):
    """One session: `session.configured`, sentences of audio, `session.done`."""

    FORMAT = AudioFormat(SampleFormat.S16LE, 24_000, 1, RateSource.CONTRACT)

    def __init__(self, setup: SessionSetup) -> None:
        super().__init__(setup)
        self._marks = _MARKS[str(setup.values["split_granularity"])]
        self._is_configured = False
        self._gathered = ""
        self._num_sentences = 0
        # For every message that may still wait at the server: the sentences sent up to its end.
        self._waiting: deque[int] = deque()
        self._is_in_sentence = False
        self._sentence_bytes = 0

    def on_open(self) -> list[Action]:
        """The settings; text waits for the answer."""
        config = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
        config.update(self.setup.chosen(*_FIELDS))
        return [Send(compact(config))]

    def may_write(self) -> bool:
        """Settings accepted, and not too far ahead of what has been spoken."""
        return self._is_configured and len(self._waiting) < _MAX_WAITING

    def write_text(self, piece: TextDue) -> list[Send]:
        """Nothing until a sentence is complete; then all that was gathered, as one message.

        The message carries the number of its last piece; the pieces before it went with it.
        """
        self._gathered += piece.text
        sends: list[Send] = []
        if self._gathered and (piece.is_last or self._marks.search(piece.text)):
            for text in utf8_pieces(self._gathered, _MAX_TEXT_BYTES):
                self._num_sentences += len(self._marks.findall(text))
                self._waiting.append(self._num_sentences)
                message = compact({"type": "input.text", "text": text})
                sends.append(Send(message, text_seq=piece.seq))
            self._gathered = ""
        if piece.is_last:
            seq = None if sends else piece.seq
            sends.append(Send(compact({"type": "input.done"}), text_seq=seq, ends_text=True))
        return sends

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """Sentences and their ends; kinds that carry no audio are let pass."""
        match message.get("type"):
            case "session.configured":
                self._is_configured = True
                return []
            case "audio.start":
                return self._on_start(message)
            case "audio.done":
                return self._on_sentence_done(message)
            case "session.done":
                return [Done({"total_sentences": message.get("total_sentences")})]
            case "error":
                return [self.failed(message, "/message", "/error_type")]
            case _:
                return []

    def on_binary(self, data: Buffer) -> list[Action]:
        """Audio of the sentence that is spoken."""
        if not self._is_in_sentence:
            return [protocol_error("message", "audio outside audio.start and audio.done")]
        self._sentence_bytes += len(data)
        return self.audio(data)

    def _on_start(self, message: Mapping[str, Any]) -> list[Action]:
        self._is_in_sentence = True
        self._sentence_bytes = 0
        said = message.get("format", "pcm")
        if said != "pcm":
            return [protocol_error("format", f"format {one_line(str(said)[:40])!r}, expected pcm")]
        rate = message.get("sample_rate")
        return [] if rate is None else self.state(SampleFormat.S16LE, rate=rate)

    def _on_sentence_done(self, message: Mapping[str, Any]) -> list[Action]:
        if message.get("error"):
            text = f"sentence {one_line(str(message.get('sentence_index'))[:20])} failed"
            return [Fail(TransportOutcome.SERVER_ERROR, "message", f"{text} at the server")]
        total = message.get("total_bytes")
        if isinstance(total, int) and total != self._sentence_bytes:
            text = f"the server sent {total} bytes in a sentence, {self._sentence_bytes} came"
            return [Fail(TransportOutcome.TRUNCATED, "message", text)]
        self._is_in_sentence = False
        index = message.get("sentence_index")
        num_done = index + 1 if isinstance(index, int) else 0
        while self._waiting and self._waiting[0] <= num_done:
            self._waiting.popleft()
        return []


class SglangOmniSpeechAdapter(SessionAdapter):
    """SGLang-Omni, streaming text in and audio out."""

    SESSION = SglangOmniSpeech
    PROTOCOL = Protocol(
        name="sglang-omni-ws",
        title="SGLang-Omni, WebSocket",
        source="wheel 0.1.9 (2026-10)",
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
        note="words are sent a sentence at a time: the server makes nothing sooner and closes "
        "over more than 16 waiting messages",
    )
