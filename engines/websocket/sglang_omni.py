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
    Done,
    Send,
    TextDue,
)
from engines.http_contract import FieldSpec, ValueType
from engines.redact import one_line
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

__all__ = ["SglangOmniSpeech", "SglangOmniSpeechAdapter"]

# The server lets 16 messages wait; some room is left for the end of the text.
_MAX_WAITING = 12
_MARKS = MappingProxyType(
    {
        "sentence": re.compile("[.!?。！？]+"),
        "clause": re.compile("[.!?,;:。！？，；：、]+"),
    }
)
_FIELDS = MappingProxyType(
    {
        **OMNI_FIELDS,
        "task_type": FieldSpec(),
        "split_granularity": FieldSpec(default="sentence", one_of=("sentence", "clause")),
        "suppress_bootstrap_silence": FieldSpec(type=ValueType.BOOLEAN),
        "temperature": FieldSpec(type=ValueType.NUMBER, min=0),
        "top_p": FieldSpec(type=ValueType.NUMBER, min=0, max=1),
        "top_k": FieldSpec(type=ValueType.INTEGER),
        "repetition_penalty": FieldSpec(type=ValueType.NUMBER, min=0),
    }
)


class SglangOmniSpeech(OmniSession):
    """One session: `session.configured`, sentences of audio, `session.done`."""

    def __init__(self, setup: SessionSetup) -> None:
        super().__init__(setup)
        self._marks = _MARKS[str(setup.values["split_granularity"])]
        self._is_configured = False
        self._gathered = ""
        self._num_sentences = 0
        # For every message that may still wait at the server: the sentences sent up to its end.
        self._waiting: deque[int] = deque()

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
        messages = []
        if self._gathered and (piece.is_last or self._marks.search(piece.text)):
            for text in utf8_pieces(self._gathered, OMNI_MAX_TEXT_BYTES):
                self._num_sentences += len(self._marks.findall(text))
                self._waiting.append(self._num_sentences)
                messages.append({"type": "input.text", "text": text})
            self._gathered = ""
        return self.piece_and_end(piece, messages, {"type": "input.done"})

    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """Sentences and their ends; kinds that carry no audio are let pass."""
        match message.get("type"):
            case "session.configured":
                self._is_configured = True
                return []
            case "audio.start":
                return self.on_unit_start(message)
            case "audio.done":
                return self._on_sentence_done(message)
            case "session.done":
                return [Done({"total_sentences": message.get("total_sentences")})]
            case "error":
                return [self.failed(message, "/message", "/error_type")]
            case _:
                return []

    def _on_sentence_done(self, message: Mapping[str, Any]) -> list[Action]:
        index = message.get("sentence_index")
        failure = self.end_unit(message, f"sentence {one_line(str(index)[:20])}")
        if failure is not None:
            return [failure]
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
        path=OMNI_PATH,
        base_url="ws://127.0.0.1:8000",
        fields=_FIELDS,
        formats=("pcm",),
        probe=OMNI_PROBE,
        can_cancel=True,
        note="words are sent a sentence at a time: the server makes nothing sooner and closes "
        "over more than 16 waiting messages",
    )
