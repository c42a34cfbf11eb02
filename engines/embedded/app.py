# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP face: OpenAI-shaped speech, readiness, identity, and counts to check against."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from engines.embedded.config import MODEL_ID, OWNER, SERVER_NAME, VOICE_ID
from engines.embedded.errors import BadRequestError, NothingToSayError, QueueFullError
from engines.embedded.service import Service, State
from engines.embedded.speech import REQUEST_ID_HEADER, is_request_id, serve_speech

__all__ = ["build_app", "error_reply"]

NOT_READY_RETRY_S = 1

_SERVICE = web.AppKey("service", Service)
# Asked before a key can matter: load balancers and probes hold none.
_OPEN_ROUTES = frozenset({"/health", "/ready"})
_LOGGER = logging.getLogger(__name__)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(service: Service) -> web.Application:
    """The routes of one server."""
    app = web.Application(
        middlewares=[_errors_as_json, _check_key, _refuse_until_ready],
        client_max_size=service.config.max_body_bytes,
    )
    app[_SERVICE] = service
    app.on_response_prepare.append(_say_who)
    app.router.add_get("/health", _health)
    app.router.add_get("/ready", _health)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/v1/audio/voices", _voices)
    app.router.add_get("/v1/stats", _stats)
    app.router.add_get("/v1/requests/{request_id}", _one_request)
    app.router.add_post("/v1/audio/speech", _speech)
    return app


def error_reply(
    status: int, message: str, *, code: str, param: str | None = None, retry_s: int | None = None
) -> web.Response:
    """One line of JSON in OpenAI's error shape."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    headers = {} if retry_s is None else {"Retry-After": str(retry_s)}
    return web.json_response(body, status=status, headers=headers)


async def _say_who(request: web.Request, reply: web.StreamResponse) -> None:
    """Name the server on every reply, and echo the request's id where there is one."""
    reply.headers["Server"] = f"{SERVER_NAME}/{request.app[_SERVICE].version}"
    given = request.headers.get(REQUEST_ID_HEADER, "")
    if REQUEST_ID_HEADER not in reply.headers and is_request_id(given):
        reply.headers[REQUEST_ID_HEADER] = given


@web.middleware
async def _errors_as_json(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every refusal is one line of JSON; an unforeseen error is a 500 and a log entry."""
    try:
        return await handler(request)
    except BadRequestError as error:
        return error_reply(error.status, str(error), code=error.code, param=error.param)
    except NothingToSayError as error:
        return error_reply(422, str(error), code="nothing_to_say", param="input")
    except QueueFullError as error:
        return error_reply(429, str(error), code="queue_full", retry_s=error.retry_after_s)
    except web.HTTPRequestEntityTooLarge:
        limit = request.app[_SERVICE].config.max_body_bytes
        return error_reply(413, f"body: more than {limit} bytes", code="too_large")
    except web.HTTPException as error:
        reply = error_reply(
            error.status, f"{request.method} {request.path}: {error.reason}", code="http_error"
        )
        if "Allow" in error.headers:
            reply.headers["Allow"] = error.headers["Allow"]
        return reply
    except (ConnectionError, TimeoutError):
        raise
    except Exception:
        _LOGGER.exception("%s %s failed", request.method, request.path)
        return error_reply(500, "the server failed on this request; see its log", code="internal")


@web.middleware
async def _check_key(request: web.Request, handler: _Handler) -> web.StreamResponse:
    key = request.app[_SERVICE].config.api_key
    if key is not None and request.path not in _OPEN_ROUTES:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {key}".encode()):
            reply = error_reply(
                401, "Authorization: expected 'Bearer' and the server's key", code="bad_key"
            )
            reply.headers["WWW-Authenticate"] = "Bearer"
            return reply
    return await handler(request)


@web.middleware
async def _refuse_until_ready(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """No route says yes before the voice has spoken once, nor after draining began.

    Counts stay readable while draining: the last requests are checked against them.
    """
    service = request.app[_SERVICE]
    is_count = request.path.startswith(("/v1/stats", "/v1/requests/"))
    if service.state is State.READY or (service.state is State.DRAINING and is_count):
        return await handler(request)
    message = f"not ready ({service.state}): {service.reason}"
    return error_reply(503, message, code=str(service.state), retry_s=NOT_READY_RETRY_S)


async def _health(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    config = service.config
    return web.json_response(
        {
            "status": "ready",
            "server": _identity(service),
            "mode": config.mode,
            "policy": config.policy,
            "workers": config.num_workers,
            "noise": config.noise,
            "max_queue": config.max_queue,
            "sample_rate_hz": service.voice.synthesiser.sample_rate_hz,
            "num_open": service.num_open,
        }
    )


async def _models(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    model = {"id": MODEL_ID, "object": "model", "created": 0, "owned_by": OWNER}
    return web.json_response({"object": "list", "data": [model], "server": _identity(service)})


async def _voices(_request: web.Request) -> web.Response:
    return web.json_response({"voices": [VOICE_ID]})


async def _stats(request: web.Request) -> web.Response:
    return web.json_response(request.app[_SERVICE].ledger.as_json())


async def _one_request(request: web.Request) -> web.Response:
    request_id = request.match_info["request_id"]
    entry = request.app[_SERVICE].ledger.get(request_id)
    if entry is None:
        raise BadRequestError(
            "request_id: unknown, or older than the requests still remembered",
            status=404,
            param="request_id",
            code="unknown_request",
        )
    return web.json_response(entry.as_json())


async def _speech(request: web.Request) -> web.StreamResponse:
    return await serve_speech(request, request.app[_SERVICE])


def _identity(service: Service) -> dict[str, Any]:
    return {"name": SERVER_NAME, "version": service.version}
