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
    Closed,
    Done,
    Send,
    TextDue,
)
from engines.http_contract import FieldSpec, ValueType
from engines.websocket.omni import (
    OMNI_FIELDS,
    OMNI_MAX_TEXT_BYTES,
    OMNI_PATH,
    OMNI_PROBE,
    OmniSession,
)
from engines.websocket.session import (
    Protocol,
    SessionAdapter,
    SessionSetup,
    compact,
    utf8_pieces,
)

__all__ = ["VllmOmniSpeech", "VllmOmniSpeechAdapter"]

_NORMAL_CLOSURE = 1000
_FIELDS = MappingProxyType(
    {
        **OMNI_FIELDS,
        "task_type": FieldSpec(one_of=("CustomVoice", "VoiceDesign", "Base")),
        "split_granularity": FieldSpec(default="none", one_of=("none", "sentence", "clause")),
        "non_streaming_mode": FieldSpec(type=ValueType.BOOLEAN),
        "word_timestamps": FieldSpec(type=ValueType.BOOLEAN),
    }
)


class VllmOmniSpeech(OmniSession):
    """One session: units of audio between `audio.start` and `audio.done`, then `session.done`."""

    def __init__(self, setup: SessionSetup) -> None:
        super().__init__(setup)
        self._has_ended_text = False
        self._num_units = 0

    def on_open(self) -> list[Action]:
        """The settings; there is no answer to wait for."""
        config = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
        config.update(self.setup.chosen(*_FIELDS))
        return [Send(compact(config))]

    def write_text(self, piece: TextDue) -> list[Send]:
        """Text, and the flush after the last of it."""
        self._has_ended_text = piece.is_last
        texts = utf8_pieces(piece.text, OMNI_MAX_TEXT_BYTES)
        messages = [{"type": "input.text", "text": text} for text in texts]
        return self.piece_and_end(piece, messages, {"type": "input.done"})

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """Units and their ends; kinds that carry no audio are let pass."""
        match message.get("type"):
            case "audio.start":
                return self.on_unit_start(message)
            case "audio.chunk":
                # With word times audio comes as base64; the last chunk of a unit is empty.
                return self.decoded(message.get("audio_b64"))
            case "audio.done":
                return self._on_unit_done(message)
            case "session.done":
                return [Done({"num_units": self._num_units})]
            case "error":
                return [self.failed(message, "/message", "/error/message", "/error")]
            case _:
                return []

    def on_closed(self, closed: Closed) -> list[Action]:
        """Older servers close in order after the last unit instead of saying `session.done`."""
        is_whole = self._has_ended_text and self._num_units > 0 and not self.is_in_unit
        if closed.code == _NORMAL_CLOSURE and is_whole and not self.is_cancelled:
            return [Done({"num_units": self._num_units})]
        return super().on_closed(closed)

    def _on_unit_done(self, message: Mapping[str, Any]) -> list[Action]:
        # What came as base64 was not counted.
        is_counted = self.unit_bytes > 0
        failure = self.end_unit(message, f"unit {self._num_units}", is_counted=is_counted)
        self._num_units += 1
        return [] if failure is None else [failure]


class VllmOmniSpeechAdapter(SessionAdapter):
    """vLLM-Omni, streaming text in and audio out."""

    SESSION = VllmOmniSpeech
    PROTOCOL = Protocol(
        name="vllm-omni-ws",
        title="vLLM-Omni, WebSocket",
        source="wheel 0.30.0 (2026-09)",
        path=OMNI_PATH,
        base_url="ws://127.0.0.1:8000",
        fields=_FIELDS,
        formats=("pcm",),
        probe=OMNI_PROBE,
        can_cancel=True,
        note="with split_granularity none nothing is made before the end of the text",
    )
