"""A fake of OpenAI's speech service for `ScriptedServer`: as strict, as the vendor's client needs.

It refuses what the service refuses, so that a client which passes here sends what it should.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.builders.exchanges import ramp, wav
from tests.builders.servers import Close, Reply, Request, Step, Write, chunk, head, ok

__all__ = ["KEY", "PCM", "openai_service"]

KEY = "sk-test-0123456789abcdef"
PCM = ramp(0, 12_000)

_KEYS = {
    "input",
    "model",
    "voice",
    "instructions",
    "response_format",
    "speed",
    "stream_format",
}
_CUT: tuple[Step, ...] = (Close(),)
_TYPES = {"pcm": "audio/pcm", "wav": "audio/wav", "mp3": "audio/mpeg"}


def openai_service(request: Request) -> Reply:
    """One request, one reply; the input `busy` is refused, `break` fails in mid-stream."""
    if request.path == "/v1/models":
        models = {"object": "list", "data": [{"id": "tts-1", "object": "model", "created": 0,
                                              "owned_by": "openai"}]}  # fmt: skip
        return ok(json.dumps(models).encode(), content_type="application/json")
    if request.path != "/v1/audio/speech" or request.method != "POST":
        return _error(404, f"Unknown request URL: {request.method} {request.path}")
    if request.header("authorization") != f"Bearer {KEY}":
        return _error(401, "Incorrect API key provided", code="invalid_api_key")
    try:
        body = request.json
    except ValueError:
        return _error(400, "We could not parse the JSON body of your request.")
    fault = _fault(body)
    if fault is not None:
        return _error(400, fault)
    if body["input"] == "busy":
        return _error(429, "Rate limit reached", code="rate_limit_exceeded")
    if body.get("stream_format") == "sse":
        return _events(is_broken=body["input"] == "break")
    return _audio(body.get("response_format", "mp3"), is_broken=body["input"] == "break")


def _fault(body: Any) -> str | None:
    for key in ("input", "model", "voice"):
        if not isinstance(body, dict) or not isinstance(body.get(key), str):
            return f"Missing required parameter: '{key}'."
    unknown = set(body) - _KEYS
    if unknown:
        return f"Unrecognized request argument supplied: {min(unknown)}"
    if not 0 < len(body["input"]) <= 4096:
        return "Invalid 'input': string too long or too short."
    if body.get("response_format", "mp3") not in _TYPES:
        return "Invalid value for 'response_format'."
    if body.get("stream_format", "audio") not in ("audio", "sse"):
        return "Invalid value for 'stream_format'."
    if body.get("stream_format") == "sse" and body["model"].startswith("tts-1"):
        return "'stream_format' 'sse' is not supported by this model."
    return None


def _audio(name: str, *, is_broken: bool) -> Reply:
    data = PCM if name == "pcm" else wav(PCM, data_size=0xFFFFFFFF)
    pieces = [data[start : start + 4801] for start in range(0, len(data), 4801)]
    top = head(200, content_type=_TYPES[name], transfer_encoding="chunked", x_request_id="req_1")
    steps: list[Step] = [Write(top), *(Write(chunk(piece)) for piece in pieces)]
    return tuple(steps[:3]) + _CUT if is_broken else (*steps, Write(chunk(b"")))


def _events(*, is_broken: bool) -> Reply:
    pieces = [PCM[start : start + 4800] for start in range(0, len(PCM), 4800)]
    events: list[dict[str, Any]] = [
        {"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()}
        for piece in pieces
    ]
    usage = {"input_tokens": 14, "output_tokens": 101, "total_tokens": 115}
    events.append({"type": "speech.audio.done", "usage": usage})
    top = head(200, content_type="text/event-stream", transfer_encoding="chunked")
    raw = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    steps: list[Step] = [Write(top), *(Write(chunk(event)) for event in raw)]
    return tuple(steps[:3]) + _CUT if is_broken else (*steps, Write(chunk(b"")))


def _error(status: int, message: str, *, code: str | None = None) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    body = json.dumps({"error": error}).encode()
    return ok(body, status=status, content_type="application/json")
