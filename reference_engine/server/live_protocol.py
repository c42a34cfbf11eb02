"""`nari.speech.v1`, the client's half: which message may come when, and what is wrong with it.

Pure: messages in, checked commands out. One request per connection. The difference to the server
that the protocol comes from: a cancel is heard at any time, also after the end of the text.

Source: Nari's server, git e8c5b2b (2026-08-20, v0.1.0).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from reference_engine.server.replies import ReplyError
from reference_engine.server.schemas import (
    AppendMessage,
    CancelMessage,
    EndMessage,
    StartMessage,
    read_body,
)
from reference_engine.server.settings import LiveLimits

__all__ = ["PROTOCOL_NAME", "CloseCode", "Command", "LiveCode", "LiveError", "LiveProtocol"]

PROTOCOL_NAME = "nari.speech.v1"

Command = StartMessage | AppendMessage | EndMessage | CancelMessage


class CloseCode(IntEnum):
    """WebSocket close codes that are used here (RFC 6455, 7.4.1)."""

    NORMAL = 1000
    PROTOCOL = 1002
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL = 1011


class LiveCode(StrEnum):
    """What an error message names."""

    INVALID_SEQUENCE = "invalid_sequence"
    UNKNOWN_EVENT = "unknown_event"
    INVALID_REQUEST = "invalid_request"
    INVALID_TEXT = "invalid_text"
    EMPTY_INPUT = "empty_input"
    TOO_MANY_INPUT_EVENTS = "too_many_input_events"
    INPUT_TIMEOUT = "input_timeout"
    INPUT_TOO_LARGE = "input_too_large"
    BACKPRESSURE = "backpressure"
    GENERATION_FAILED = "generation_failed"
    LIVE_INPUT_CLOSED = "live_input_closed"


_CLOSE_CODES = {
    LiveCode.INPUT_TOO_LARGE: CloseCode.TOO_BIG,
    LiveCode.BACKPRESSURE: CloseCode.INTERNAL,
    LiveCode.GENERATION_FAILED: CloseCode.INTERNAL,
    LiveCode.LIVE_INPUT_CLOSED: CloseCode.NORMAL,
}
_OF_GENERATION = (LiveCode.GENERATION_FAILED, LiveCode.LIVE_INPUT_CLOSED)


class LiveError(Exception):
    """Ends a session with an error message and a close code."""

    def __init__(self, code: LiveCode, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def close_code(self) -> CloseCode:
        """The code that the connection closes with."""
        return _CLOSE_CODES.get(self.code, CloseCode.POLICY)

    def as_json(self, request_id: str | None) -> dict[str, Any]:
        """The message that comes before closing."""
        kind = "generation_error" if self.code in _OF_GENERATION else "invalid_request_error"
        error = {"type": kind, "code": self.code.value, "message": str(self)}
        return {"type": "error", "request_id": request_id, "error": error}


_MESSAGES: dict[str, type[Command]] = {
    "request.start": StartMessage,
    "input_text.append": AppendMessage,
    "input_text.end": EndMessage,
    "response.cancel": CancelMessage,
}


@dataclass(slots=True)
class LiveProtocol:
    """What has been said so far in one session."""

    limits: LiveLimits
    has_started: bool = field(default=False, init=False)
    has_ended: bool = field(default=False, init=False)
    num_appends: int = field(default=0, init=False)
    num_characters: int = field(default=0, init=False)

    def read(self, data: str | bytes) -> Command | None:
        """Check one message; None where it comes after the text's end and says nothing new.

        Raises:
            LiveError: the message is wrong, or too much.
        """
        if isinstance(data, bytes):
            raise LiveError(LiveCode.INVALID_REQUEST, "messages are JSON text, not binary")
        size = len(data.encode("utf-8", "surrogatepass"))
        if size > self.limits.max_message_bytes:
            text = f"a message of {size} bytes; at most {self.limits.max_message_bytes}"
            raise LiveError(LiveCode.INPUT_TOO_LARGE, text)
        kind = _kind(data)
        if self.has_ended and kind is not CancelMessage:
            return None
        try:
            message = read_body(kind, data, root="message")
        except ReplyError as error:
            raise LiveError(LiveCode.INVALID_REQUEST, str(error)) from None
        assert isinstance(message, Command)
        self._check_turn(message)
        return message

    def _check_turn(self, message: Command) -> None:
        if isinstance(message, CancelMessage):
            return
        if isinstance(message, StartMessage):
            if self.has_started:
                raise LiveError(LiveCode.INVALID_REQUEST, "request.start came twice")
            self.has_started = True
            return
        if not self.has_started:
            raise LiveError(LiveCode.INVALID_REQUEST, f"{message.type} came before request.start")
        if message.sequence != self.num_appends:
            text = f"sequence {message.sequence}, expected {self.num_appends}"
            raise LiveError(LiveCode.INVALID_SEQUENCE, text)
        if isinstance(message, EndMessage):
            self.has_ended = True
            return
        self._count(message)

    def _count(self, message: AppendMessage) -> None:
        limits = self.limits
        self.num_appends += 1
        self.num_characters += len(message.text)
        if self.num_appends > limits.max_appends:
            text = f"more than {limits.max_appends} appends"
            raise LiveError(LiveCode.TOO_MANY_INPUT_EVENTS, text)
        if self.num_characters > limits.max_characters:
            text = f"more than {limits.max_characters} characters of text"
            raise LiveError(LiveCode.INPUT_TOO_LARGE, text)


def _kind(data: str) -> type[Command]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise LiveError(LiveCode.INVALID_REQUEST, "a message that is not JSON") from None
    if not isinstance(value, dict):
        raise LiveError(LiveCode.INVALID_REQUEST, "a message that is not a JSON object")
    name = value.get("type")
    kind = _MESSAGES.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(_MESSAGES)
        raise LiveError(LiveCode.UNKNOWN_EVENT, f"type {ascii(name)[:60]} is not one of {known}")
    return kind
