"""`/openapi.json`: the HTTP half of the service, from the schemas that check it."""

from __future__ import annotations

from typing import Any

from reference_engine.server.schemas import SpeechBody

__all__ = ["openapi_document"]

_ERROR = {
    "type": "object",
    "required": ["detail", "error"],
    "properties": {
        "detail": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        },
    },
}
_REFUSALS = {
    400: "The request line or headers are malformed.",
    401: "The key is missing or wrong.",
    404: "There is no such thing.",
    405: "The method is not one of this path.",
    408: "The body did not arrive in time.",
    413: "The body or the text is too long.",
    415: "The body is not JSON.",
    422: "The request can never be served; says why.",
    426: "This path is for WebSocket clients.",
    429: "No room now; Retry-After says when to come back.",
    503: "Not ready, or shutting down; Retry-After says when to come back.",
}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _refusals(*statuses: int) -> dict[str, Any]:
    error = {"$ref": "#/components/schemas/Error"}
    return {
        str(status): {"description": _REFUSALS[status], "content": _json(error)}
        for status in statuses
    }


def _get(summary: str, *statuses: int, **more: Any) -> dict[str, Any]:
    answer = {"description": "As asked.", "content": _json({"type": "object"})}
    return {
        "get": {
            "summary": summary,
            "responses": {"200": answer, **_refusals(*statuses)},
            **more,
        }
    }


def _status(summary: str) -> dict[str, Any]:
    said = _json({"type": "object"})
    return {
        "get": {
            "summary": summary,
            "security": [],
            "responses": {
                "200": {"description": "Ready.", "content": said},
                "503": {"description": "Not ready; says the reason.", "content": said},
            },
        }
    }


def _speech() -> dict[str, Any]:
    sound = {"schema": {"type": "string", "format": "binary"}}
    headers = {
        name: {"description": text, "schema": {"type": "string"}}
        for name, text in {
            "X-Request-Id": "The client's id, or one made here.",
            "X-Sample-Rate": "Hz.",
            "X-Channels": "1.",
            "X-Trimmed-Ms": "Leading silence that was cut.",
            "X-Profile-Hash": "Settings behind the figures: /v1/profile.",
            "Server-Timing": "Milliseconds by stage until the first sound.",
        }.items()
    }
    answer = {
        "description": "Mono s16le at 24 kHz. A stream that fails is cut, never ended cleanly.",
        "headers": headers,
        "content": {"audio/wav": sound, "audio/pcm": sound},
    }
    return {
        "post": {
            "summary": "Speak a text.",
            "requestBody": {
                "required": True,
                "content": _json({"$ref": "#/components/schemas/SpeechBody"}),
            },
            "responses": {
                "200": answer,
                **_refusals(400, 401, 408, 413, 415, 422, 429, 503),
            },
        }
    }


def openapi_document(*, version: str, has_key: bool) -> dict[str, Any]:
    """OpenAPI 3.1. The WebSocket is described in the README; OpenAPI has no words for it."""
    model = SpeechBody.model_json_schema(ref_template="#/components/schemas/{model}")
    inner = model.pop("$defs", {})
    requests = _get(
        "How one request went: timings by stage, chunks, slack, how it ended.",
        401, 404, 503,
        parameters=[
            {"name": "request_id", "in": "path", "required": True, "schema": {"type": "string"}}
        ],
    )  # fmt: skip
    metrics = _get("Prometheus metrics.", 401)
    metrics["get"]["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "earwitness reference engine", "version": version},
        "paths": {
            "/health": _status("Whether the process is alive, and its phase."),
            "/ready": _status("Whether speech is served now."),
            "/v1/models": _get("The model.", 401, 503),
            "/v1/voices": _get("Voices and languages.", 401, 503),
            "/v1/profile": _get("The settings behind the figures, and their hash.", 401, 503),
            "/v1/requests/{request_id}": requests,
            "/metrics": metrics,
            "/v1/audio/speech": _speech(),
        },
        "components": {"schemas": {"SpeechBody": model, "Error": _ERROR, **inner}},
    }
    if has_key:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document
