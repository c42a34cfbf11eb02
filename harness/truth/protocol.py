"""What a client asks of the truth server: its own small reading of HTTP and of frames.

A speech request names a script in its JSON field `input`, and how it wants the reply framed in
`stream_format` (`audio` or `sse`). `/health` says who this is, `/truth/log` what was sent so far.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import orjson

from harness.truth.framing import ChunkedFraming, Framing, SseFraming
from harness.truth.websocket import (
    CloseAsked,
    FrameError,
    TextMessage,
    WebSocketFraming,
    accept,
    error_message,
    take_frame,
)

__all__ = ["LOG_PATH", "SERVER_NAME", "SPEECH_PATH", "Answer", "Ask", "Protocol", "ShowLog"]

SERVER_NAME = "earwitness-truth"
SPEECH_PATH = "/v1/audio/speech"
LOG_PATH = "/truth/log"
_MAX_HEAD_BYTES = 64 * 1024
_FRAMINGS: Mapping[str, type[ChunkedFraming | SseFraming]] = MappingProxyType(
    {"audio": ChunkedFraming, "sse": SseFraming}
)


@dataclass(frozen=True, slots=True)
class Ask:
    """Play this script, framed like this."""

    script: str
    framing: Framing


@dataclass(frozen=True, slots=True)
class Answer:
    """Write this at once; it is no part of any truth."""

    data: bytes
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class ShowLog:
    """Answer with the log so far; `answer` wraps it."""

    @staticmethod
    def answer(log: bytes) -> Answer:
        """The whole answer."""
        return _body(200, log)


class Protocol:
    """Cuts requests out of one connection's bytes."""

    def __init__(self, scripts: Collection[str]) -> None:
        self._scripts = scripts
        self._is_websocket = False
        self._text = ""

    def take(self, inbox: bytearray) -> Ask | Answer | ShowLog | None:
        """The next request, removed from `inbox`; None until it is whole."""
        return self._take_message(inbox) if self._is_websocket else self._take_http(inbox)

    def _take_http(self, inbox: bytearray) -> Ask | Answer | ShowLog | None:
        end = inbox.find(b"\r\n\r\n")
        if end < 0:
            return (
                self._error(431, "the head is too long") if len(inbox) > _MAX_HEAD_BYTES else None
            )
        first, *lines = bytes(inbox[:end]).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        size = headers.get("content-length", "0")
        if not size.isdigit() or "transfer-encoding" in headers:
            return self._error(411, "a request needs a Content-Length")
        total = end + 4 + int(size)
        if len(inbox) < total:
            return None
        body = bytes(inbox[end + 4 : total])
        del inbox[:total]
        method, _, rest = first.partition(" ")
        if headers.get("upgrade", "").lower() == "websocket":
            self._is_websocket = True
            return Answer(accept(headers.get("sec-websocket-key", "")))
        return self._route(method, rest.partition(" ")[0], body)

    def _route(self, method: str, path: str, body: bytes) -> Ask | Answer | ShowLog:
        if (method, path) == ("GET", "/health"):
            return _json(200, {"server": SERVER_NAME, "scripts": sorted(self._scripts)})
        if (method, path) == ("GET", LOG_PATH):
            return ShowLog()
        if (method, path) != ("POST", SPEECH_PATH):
            return _json(404, {"error": {"message": f"no {method} {path}; POST {SPEECH_PATH}"}})
        return self._speech(body)

    def _speech(self, body: bytes) -> Ask | Answer:
        try:
            asked: Any = orjson.loads(body)
        except orjson.JSONDecodeError:
            asked = None
        if not isinstance(asked, dict):
            return _json(400, {"error": {"message": "the body is no JSON object"}})
        script, form = asked.get("input"), asked.get("stream_format", "audio")
        if not isinstance(script, str) or script not in self._scripts:
            return _json(
                404, {"error": {"message": f"no script {script!r}; GET /health lists them"}}
            )
        if form not in _FRAMINGS:
            return _json(400, {"error": {"message": f"stream_format {form!r} is not audio or sse"}})
        return Ask(script, _FRAMINGS[form]())

    def _take_message(self, inbox: bytearray) -> Ask | Answer | None:
        """`Speak` names the script, `Flush` asks for it; other messages are heard and forgotten."""
        try:
            frame = take_frame(inbox)
        except FrameError as fault:
            return Answer(error_message(str(fault)), is_last=True)
        if isinstance(frame, CloseAsked):
            return Answer(frame.answer, is_last=True)
        if not isinstance(frame, TextMessage):
            return None if frame is None else Answer(frame)
        if frame.content.get("type") == "Speak":
            self._text += str(frame.content.get("text", ""))
        elif frame.content.get("type") == "Flush":
            script, self._text = self._text, ""
            if script not in self._scripts:
                return Answer(error_message(f"no script {script!r}; GET /health lists them"))
            return Ask(script, WebSocketFraming())
        return Answer(b"")

    @staticmethod
    def _error(status: int, text: str) -> Answer:
        answer = _json(status, {"error": {"message": text}})
        return Answer(answer.data, is_last=True)


def _json(status: int, content: Mapping[str, Any]) -> Answer:
    return _body(status, orjson.dumps(content))


def _body(status: int, body: bytes) -> Answer:
    head = f"HTTP/1.1 {status} Truth\r\nContent-Type: application/json\r\n"
    return Answer(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
