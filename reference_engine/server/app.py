"""The routes: speech over HTTP and WebSocket, readiness, identity, metrics, one request's story."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from reference_engine.errors import EngineClosedError, RefusedError, RequestError
from reference_engine.server.ledger import Entry, Transport
from reference_engine.server.live_protocol import PROTOCOL_NAME, CloseCode
from reference_engine.server.live_session import LiveSession
from reference_engine.server.openapi import openapi_document
from reference_engine.server.preparation import SAMPLING_FIELDS
from reference_engine.server.replies import ReplyError, error_reply
from reference_engine.server.schemas import SpeechBody
from reference_engine.server.service import Service, State
from reference_engine.server.speech import ID_HEADER, RECEIVED_NS, public_id, serve_speech

__all__ = ["OWNER", "SERVER_NAME", "build_app"]

SERVER_NAME = "earwitness-reference"
OWNER = "earwitness"

_SERVICE = web.AppKey("service", Service)
_LOG = logging.getLogger(__name__)
# Asked by load balancers and probes, which hold no key.
_OPEN_ROUTES = frozenset({"/health", "/ready"})
# What may be asked while the server is not ready: these say so themselves, or hold no speech.
_ALWAYS = frozenset({"/health", "/ready", "/metrics", "/openapi.json"})
_PING_S = 20.0  # as the servers do whose protocol this is; a peer that vanished is found out
# Room for one message too large to be told so by us instead of a bare close.
_MESSAGE_HEADROOM = 4

_FIELD_OF = {
    "instruction": "instruct",
    **{ours: theirs for theirs, ours in SAMPLING_FIELDS.items()},
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(service: Service) -> web.Application:
    """The routes of one server."""
    app = web.Application(
        middlewares=[_errors_as_json, _check_key, _refuse_until_ready],
        client_max_size=service.settings.max_body_bytes,
    )
    app[_SERVICE] = service
    app.on_response_prepare.append(_say_who)
    app.router.add_get("/health", _health)
    app.router.add_get("/ready", _ready)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/v1/voices", _voices)
    app.router.add_get("/v1/profile", _profile)
    app.router.add_get("/v1/requests/{request_id}", _one_request)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/openapi.json", _openapi)
    app.router.add_post("/v1/audio/speech", _speech)
    app.router.add_get("/v1/audio/speech/ws", _live)
    return app


async def _say_who(request: web.Request, reply: web.StreamResponse) -> None:
    reply.headers["Server"] = f"{SERVER_NAME}/{request.app[_SERVICE].version}"


def _as_reply_error(error: RequestError | EngineClosedError) -> ReplyError:
    if isinstance(error, RefusedError):
        retry_s = error.retry_after_s
        return ReplyError(429, str(error), code="over_capacity", retry_after_s=retry_s)
    if isinstance(error, EngineClosedError):
        return ReplyError(503, str(error), code="engine_closed", retry_after_s=1.0)
    # Such errors name the place first, by the engine's word for it where there is no field.
    named = str(error).split(":", 1)[0]
    param = named if named in SpeechBody.model_fields else _FIELD_OF.get(named, "input")
    return ReplyError(error.status, str(error), code="unsayable", param=param)


@web.middleware
async def _errors_as_json(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every refusal is JSON of one shape; an unforeseen error is a 500 and a log entry."""
    request[RECEIVED_NS] = request.app[_SERVICE].clock.now_ns()  # the first that we hear of it
    try:
        return await handler(request)
    except ReplyError as error:
        return error_reply(error)
    except (RequestError, EngineClosedError) as error:
        return error_reply(_as_reply_error(error))
    except web.HTTPRequestEntityTooLarge:
        limit = request.app[_SERVICE].settings.max_body_bytes
        return error_reply(ReplyError(413, f"body: more than {limit} bytes", code="too_large"))
    except web.HTTPException as error:
        text = f"{request.method} {ascii(request.path)[:200]}: {error.reason}"
        reply = error_reply(ReplyError(error.status, text, code="http_error"))
        if "Allow" in error.headers:
            reply.headers["Allow"] = error.headers["Allow"]
        return reply
    except (ConnectionError, TimeoutError):
        raise
    except Exception:
        _LOG.exception("%s %s failed", request.method, ascii(request.path)[:200])
        text = "the server failed on this request; see its log"
        return error_reply(ReplyError(500, text, code="internal"))


@web.middleware
async def _check_key(request: web.Request, handler: _Handler) -> web.StreamResponse:
    key = request.app[_SERVICE].settings.api_key
    if key is not None and request.path not in _OPEN_ROUTES:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, f"Bearer {key}".encode()):
            text = "Authorization: expected 'Bearer' and the server's key"
            raise ReplyError(401, text, code="bad_key")
    return await handler(request)


@web.middleware
async def _refuse_until_ready(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """No route says yes before one real request was served, nor to a newcomer while draining."""
    service = request.app[_SERVICE]
    is_story = request.path.startswith("/v1/requests/") and service.state is State.DRAINING
    if request.path not in _ALWAYS and not is_story:
        service.check_ready()
    return await handler(request)


def _status_reply(service: Service, said: dict[str, Any]) -> web.Response:
    is_ready = service.state is State.READY
    headers = {} if is_ready else {"Retry-After": "1"}
    return web.json_response(said, status=200 if is_ready else 503, headers=headers)


async def _health(request: web.Request) -> web.Response:
    """503 until ready as well: a yes before the first speech misleads whoever waits for one."""
    service = request.app[_SERVICE]
    state = service.state
    return _status_reply(
        service,
        {
            "alive": state is not State.FAILED,
            "phase": state.value,
            "reason": service.reason,
            "server": {"name": SERVER_NAME, "version": service.version},
        },
    )


async def _ready(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    state = service.state
    said = {"ready": state is State.READY, "phase": state.value, "reason": service.reason}
    return _status_reply(service, said)


async def _models(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    model = {
        "id": service.settings.model_id,
        "object": "model",
        "created": 0,
        "owned_by": OWNER,
        "random_weights": service.assembled.model.config.random_weights or None,
    }
    return web.json_response({"object": "list", "data": [model]})


async def _voices(request: web.Request) -> web.Response:
    config = request.app[_SERVICE].assembled.model.config
    voices = [
        {"id": name, "dialect": config.dialects.get(name)} for name in sorted(config.speakers)
    ]
    return web.json_response({"voices": voices, "languages": list(config.public_languages)})


async def _profile(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    assembled, start = service.assembled, service.settings.start
    profile = assembled.engine.profile
    return web.json_response(
        {
            "name": profile.name,
            "hash": profile.hash,
            "settings": profile.resolved(),
            "device": str(assembled.model.device),
            "dtype": str(assembled.model.dtype).removeprefix("torch."),
            "start": {
                "rule": start.rule.value,
                "max_tokens": start.max_tokens,
                "max_wait_s": start.max_wait_s,
            },
        }
    )


async def _one_request(request: web.Request) -> web.Response:
    entry = request.app[_SERVICE].ledger.get(request.match_info["request_id"])
    if entry is None:
        text = "request_id: unknown, or older than the requests still remembered"
        raise ReplyError(404, text, code="unknown_request", param="request_id")
    return web.json_response(entry.as_json())


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(
        body=request.app[_SERVICE].metrics.text(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


async def _openapi(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    return web.json_response(
        openapi_document(version=service.version, has_key=service.settings.api_key is not None)
    )


async def _speech(request: web.Request) -> web.StreamResponse:
    return await serve_speech(request, request.app[_SERVICE])


async def _live(request: web.Request) -> web.StreamResponse:
    """Upgrade, and serve the session; a client of another protocol is closed at once."""
    service = request.app[_SERVICE]
    settings = service.settings
    request_id = public_id(request, "ws")
    _check_room(service)
    socket = web.WebSocketResponse(
        protocols=(PROTOCOL_NAME,),
        heartbeat=_PING_S,
        compress=False,
        max_msg_size=_MESSAGE_HEADROOM * settings.live.max_message_bytes,
    )
    socket.headers[ID_HEADER] = request_id
    if not socket.can_prepare(request):
        raise ReplyError(426, "expected a WebSocket upgrade", code="upgrade_required")
    await socket.prepare(request)
    if socket.ws_protocol != PROTOCOL_NAME:
        await socket.close(code=CloseCode.PROTOCOL, message=PROTOCOL_NAME.encode())
        return socket
    entry = Entry(request_id, Transport.WEBSOCKET, service.clock.now_ns())
    service.open(entry)
    try:
        await LiveSession(request, socket, service=service, entry=entry).run()
    finally:
        service.close_entry(entry)
    return socket


def _check_room(service: Service) -> None:
    """A session that has said nothing yet counts as a request: connections are bounded too."""
    profile = service.assembled.engine.profile
    limit = profile.slots + profile.max_waiting
    if service.num_open >= limit:
        text = f"{limit} requests and sessions are open; try again later"
        raise ReplyError(429, text, code="over_capacity", retry_after_s=1.0)
