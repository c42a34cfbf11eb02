"""Serve a replay book over HTTP, every piece on its absolute time after the request.

Times count from the moment the request's body is complete. The kernel's timer wakes the loop, so a
piece leaves within a fraction of a millisecond of its time on an idle machine; whoever needs proof
of sending times uses the truth server.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from importlib import metadata

from aiohttp import web

from harness.clock import RunClock
from harness.pacer import Pacer, make_waker
from harness.replay.book import CONTENT_TYPES, Ending, RecordedReply, ReplayBook

__all__ = ["OWNER", "ReplayServer", "build_app"]

OWNER = "earwitness-replay"
_BOOK = web.AppKey("book", ReplayBook)
_MAX_BODY_BYTES = 1024 * 1024
_LOGGER = logging.getLogger(__name__)


class ReplayServer:
    """Chooses the recorded reply for each request and plays it on time."""

    def __init__(self, book: ReplayBook, *, clock: RunClock) -> None:
        """To be made inside a running loop."""
        self._book = book
        self._clock = clock
        self._num_asked: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._waker = make_waker(self._loop, clock)
        self._pacer = Pacer(clock, self._waker, on_error=_log_fault)

    def close(self) -> None:
        """Stop the clockwork."""
        self._waker.close()

    def choose(self, text: str) -> RecordedReply | None:
        """The next recorded reply to this text; after the last, the first again."""
        found = self._book.replies.get(text)
        if not found:
            return None
        place = self._num_asked[text] % len(found)
        self._num_asked[text] += 1
        return found[place]

    async def play(self, request: web.Request, reply: RecordedReply) -> web.StreamResponse:
        """Send one reply as it was recorded."""
        begin_ns = self._clock.now_ns()
        await self._until(begin_ns + reply.head_after_ns)
        if reply.format is None:
            if reply.ending is Ending.NEVER:
                await self._forever()
            return _error(reply.status, reply.message or "refused in the recorded run")
        response = web.StreamResponse(headers=_headers(reply))
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in reply.pieces:
            await self._until(begin_ns + piece.after_ns)
            await response.write(piece.data)
        if reply.ending is Ending.NEVER:
            await self._forever()
        await self._until(begin_ns + reply.end_after_ns)
        if reply.ending is Ending.CLEAN:
            await response.write_eof()
        elif request.transport is not None:
            request.transport.close()
        return response

    async def _until(self, due_ns: int) -> None:
        if due_ns <= self._clock.now_ns():
            return
        reached: asyncio.Future[None] = self._loop.create_future()
        timer = self._pacer.at(due_ns, partial(_resolve, reached))
        try:
            await reached
        finally:
            timer.cancel()

    async def _forever(self) -> None:
        """Until the client gives up, which cancels the handler."""
        await self._loop.create_future()


_SERVER = web.AppKey("server", ReplayServer)


def build_app(book: ReplayBook) -> web.Application:
    """The routes of one server; a client that hangs up ends its reply."""
    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app[_BOOK] = book
    app.cleanup_ctx.append(_with_server)
    app.router.add_get("/health", _health)
    app.router.add_get("/v1/models", _models)
    app.router.add_post("/v1/audio/speech", _speech)
    return app


def _resolve(reached: asyncio.Future[None]) -> None:
    if not reached.done():
        reached.set_result(None)


async def _with_server(app: web.Application) -> AsyncIterator[None]:
    server = app[_SERVER] = ReplayServer(app[_BOOK], clock=RunClock())
    yield
    server.close()


async def _health(request: web.Request) -> web.Response:
    book = request.app[_BOOK]
    facts = {"status": "ok", "run": book.name, "num_replies": book.num_replies}
    return web.json_response({**facts, "num_left_out": dict(book.num_left_out)})


async def _models(request: web.Request) -> web.Response:
    version = metadata.version("earwitness")
    return web.json_response(
        {
            "object": "list",
            "data": [{"id": request.app[_BOOK].name, "object": "model", "owned_by": OWNER}],
            "server": {"name": "earwitness replay", "version": version},
        }
    )


async def _speech(request: web.Request) -> web.StreamResponse:
    try:
        given = json.loads(await request.read())
    except ValueError:
        return _error(400, "body: not JSON")
    text = given.get("input") if isinstance(given, dict) else None
    if not isinstance(text, str):
        return _error(400, "input: expected the text to say")
    server: ReplayServer = request.app[_SERVER]
    reply = server.choose(text)
    if reply is None:
        return _error(404, "this run recorded no reply to this text; use its scenario and prompts")
    return await server.play(request, reply)


def _headers(reply: RecordedReply) -> dict[str, str]:
    fmt = reply.format
    assert fmt is not None
    headers = {
        "Content-Type": CONTENT_TYPES[fmt.sample_format],
        "X-Recorded-Request": reply.request_id,
        "X-Accel-Buffering": "no",
    }
    if fmt.sample_rate_hz is not None:
        headers["X-Sample-Rate"] = str(fmt.sample_rate_hz)
    if fmt.channels is not None:
        headers["X-Channels"] = str(fmt.channels)
    return headers


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


def _log_fault(fault: Exception) -> None:
    _LOGGER.error("a timer failed", exc_info=fault)
