"""One WebSocket session: text in, acknowledgements and audio out.

Two tasks share the connection. The reader takes the client's messages in order and answers each
before the next; the speaker sends what the engine makes. Whoever learns of the end first closes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

from aiohttp import WSMsgType, web

from reference_engine.clock import NS_PER_S
from reference_engine.errors import RefusedError, RequestError, UnsayableError
from reference_engine.messages import (
    SAMPLE_RATE_HZ,
    AppendText,
    Audio,
    End,
    EndReason,
    RequestStats,
)
from reference_engine.server.ledger import Entry, Outcome
from reference_engine.server.listener import Listener
from reference_engine.server.live_protocol import (
    PROTOCOL_NAME,
    CloseCode,
    LiveCode,
    LiveError,
    LiveProtocol,
)
from reference_engine.server.live_text import LiveText
from reference_engine.server.preparation import live_job
from reference_engine.server.replies import ReplyError
from reference_engine.server.schemas import AppendMessage, CancelMessage, EndMessage, StartMessage
from reference_engine.server.service import Service

__all__ = ["LiveSession"]

_AUDIO = {"encoding": "pcm_s16le", "sample_rate": SAMPLE_RATE_HZ, "channels": 1}
_STOP_REASONS = {
    EndReason.COMPLETE: "stop",
    EndReason.LENGTH: "length",
    EndReason.CANCELLED: "cancelled",
}


class LiveSession:
    """Serves one connection; `run` returns when it is closed and the engine has let go."""

    def __init__(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        *,
        service: Service,
        entry: Entry,
    ) -> None:
        self._request, self._socket = request, socket
        self._service, self._entry = service, entry
        self._engine = service.assembled.engine
        self._protocol = LiveProtocol(service.settings.live)
        self._start: StartMessage | None = None
        self._text: LiveText | None = None
        self._speaker: asyncio.Task[None] | None = None
        self._job_id = service.new_id("job")
        self._stats: RequestStats | None = None
        self._is_cancelled = False
        self._is_over = False
        self._heard_ns = service.clock.now_ns()

    async def run(self) -> None:
        """Talk until somebody closes."""
        try:
            await self._send(type="session.created", protocol=PROTOCOL_NAME, audio=_AUDIO)
            await self._read_all()
        except LiveError as error:
            await self._fail(error)
        except (ConnectionError, asyncio.CancelledError) as error:
            self._entry.fail(Outcome.CANCELLED, str(error) or "the client went away")
            raise
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Nobody listens any more: stop the engine's work and the speaker."""
        if self._stats is not None and not self._is_over:
            self._engine.cancel(self._job_id)
        if self._speaker is not None:
            self._speaker.cancel()
        self._entry.fail(Outcome.CANCELLED, "the client closed the connection")

    # -- the reader --------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        while not self._socket.closed:
            try:
                message = await self._socket.receive(timeout=self._patience_s())
            except TimeoutError:
                await self._on_silence()
                continue
            self._heard_ns = self._now_ns()
            if message.type is WSMsgType.TEXT or message.type is WSMsgType.BINARY:
                await self._on_message(message.data)
            else:
                return  # closed, closing, or broken

    def _patience_s(self) -> float | None:
        """How long to wait for a message: until speech must begin, or the session is idle."""
        if self._protocol.has_ended or self._is_cancelled:
            return None  # the end of speech ends the session
        now_ns = self._now_ns()
        idle_s = self._service.settings.live.idle_s
        left_s = max(0.0, idle_s - (now_ns - self._heard_ns) / NS_PER_S)
        start_s = None
        if self._text is not None and self._stats is None:
            start_s = self._text.start_in_s(now_ns)
        return left_s if start_s is None else min(left_s, start_s)

    async def _on_silence(self) -> None:
        """Nothing came: begin with what there is, or give up on the client."""
        now_ns, text = self._now_ns(), self._text
        idle_s = self._service.settings.live.idle_s
        if now_ns - self._heard_ns >= int(idle_s * NS_PER_S):
            raise LiveError(LiveCode.INPUT_TIMEOUT, f"no message for {idle_s:g} s")
        if text is not None and self._stats is None and text.may_start(now_ns):
            await self._begin(text)

    async def _on_message(self, data: str | bytes) -> None:
        match self._protocol.read(data):
            case StartMessage() as start:
                self._configure(start)
                await self._send(type="request.configured")
            case AppendMessage() as append:
                await self._take(append)
                await self._acknowledge(append)
            case EndMessage() as end:
                await self._end_text()
                await self._acknowledge(end)
            case CancelMessage():
                await self._cancel()
            case None:
                return

    def _configure(self, start: StartMessage) -> None:
        """Find out now what could never be spoken: voice, language, settings, chunks."""
        assembled = self._service.assembled
        try:
            self._service.check_model(start.model)
            # As it will be submitted, but for its text.
            job = live_job(
                assembled, self._job_id, start, tokens=(), num_characters=0, is_text_complete=False
            )
            self._engine.admission.check(job)
        except (UnsayableError, ReplyError) as error:
            raise LiveError(LiveCode.INVALID_REQUEST, str(error)) from None
        self._start = start
        self._text = LiveText(
            assembled.tokenizer,
            self._service.settings.start,
            closing=assembled.prompts.tts_eos,
        )

    async def _take(self, append: AppendMessage) -> None:
        text = self._known_text
        try:
            text.push(append.text, now_ns=self._now_ns())
        except UnsayableError as error:
            raise LiveError(LiveCode.INVALID_TEXT, str(error)) from None
        self._entry.num_characters += len(append.text)
        limit = self._service.settings.live.max_tokens
        if text.num_tokens > limit:
            raise LiveError(LiveCode.INPUT_TOO_LARGE, f"more than {limit} tokens of text")
        if self._stats is not None:
            self._extend(text, num_characters=len(append.text))
        elif text.may_start(self._now_ns()):
            await self._begin(text)

    async def _end_text(self) -> None:
        text = self._known_text
        try:
            text.finish()
        except UnsayableError as error:
            raise LiveError(LiveCode.EMPTY_INPUT, str(error)) from None
        if self._stats is not None:
            self._extend(text, num_characters=0)
        else:
            await self._begin(text)

    async def _begin(self, text: LiveText) -> None:
        """Submit what there is, and say so before the append that caused it is acknowledged."""
        assert self._start is not None
        assembled, tokens = self._service.assembled, text.take()
        listener = Listener()
        self._entry.text_ready_ns = self._now_ns()
        try:
            job = live_job(
                assembled,
                self._job_id,
                self._start,
                tokens=tokens,
                num_characters=text.num_characters,
                is_text_complete=text.is_complete,
            )
            self._stats = self._entry.stats = self._engine.submit(job, listener)
        except RefusedError as error:
            self._entry.fail(Outcome.REFUSED, str(error))
            raise LiveError(LiveCode.BACKPRESSURE, str(error)) from None
        except RequestError as error:
            raise LiveError(LiveCode.INVALID_REQUEST, str(error)) from None
        await self._send(type="response.started", request_id=self._entry.request_id, audio=_AUDIO)
        self._speaker = asyncio.create_task(self._speak(listener))

    def _extend(self, text: LiveText, *, num_characters: int) -> None:
        tokens = text.take()
        command = AppendText(self._job_id, tokens, len(tokens), num_characters, text.is_complete)
        try:
            self._engine.append_text(command)
        except RefusedError as error:
            raise LiveError(LiveCode.BACKPRESSURE, str(error)) from None

    async def _cancel(self) -> None:
        self._is_cancelled = True
        if self._stats is not None:
            self._engine.cancel(self._job_id)  # its last event ends the session
            return
        self._entry.fail(Outcome.CANCELLED, "response.cancel")
        await self._done("cancelled")

    async def _acknowledge(self, message: AppendMessage | EndMessage) -> None:
        await self._send(
            type="input_text.ack",
            event=message.type,
            sequence=message.sequence,
            request_id=self._request_id,
        )

    # -- the speaker -------------------------------------------------------------------------------

    async def _speak(self, listener: Listener) -> None:
        try:
            while isinstance(event := await listener.next(), Audio):
                pcm = event.pcm or b""
                if not self._is_cancelled:
                    await self._send_audio(pcm)
                listener.taken(len(pcm))
            self._is_over = True
            await self._on_end(event)
        except LiveError as error:
            await self._fail(error)
        except ConnectionError as error:
            self._entry.fail(Outcome.CANCELLED, str(error))

    async def _send_audio(self, pcm: bytes) -> None:
        entry = self._entry
        if entry.first_sent_ns is None:
            entry.first_sent_ns = self._now_ns()
        entry.num_chunks_sent += 1
        entry.audio_bytes_sent += len(pcm)
        await self._within_limit(self._socket.send_bytes(pcm))

    async def _on_end(self, end: End) -> None:
        self._entry.end(end.reason, end.text)
        stop_reason = _STOP_REASONS.get(end.reason)
        if end.reason is EndReason.LENGTH and not self._protocol.has_ended:
            text = "the limit of codec frames was reached before the text ended"
            raise LiveError(LiveCode.LIVE_INPUT_CLOSED, text)
        if stop_reason is not None:
            await self._done(stop_reason)
            return
        is_slow = end.reason is EndReason.SLOW_READER
        code = LiveCode.BACKPRESSURE if is_slow else LiveCode.GENERATION_FAILED
        raise LiveError(code, end.text or end.reason.value)

    # -- sending -----------------------------------------------------------------------------------

    async def _done(self, stop_reason: str) -> None:
        await self._send(
            type="response.done",
            request_id=self._request_id,
            stop_reason=stop_reason,
            audio_chunks=self._entry.num_chunks_sent,
        )
        await self._close(CloseCode.NORMAL)

    async def _fail(self, error: LiveError) -> None:
        """Say what went wrong and close; the first reason is the one that counts."""
        is_ours = error.code is LiveCode.GENERATION_FAILED
        self._entry.fail(Outcome.FAILED if is_ours else Outcome.REFUSED, str(error))
        if self._socket.closed:
            return
        try:
            await self._send_json(error.as_json(self._request_id))
            await self._close(error.close_code)
        except (LiveError, ConnectionError):
            # Whoever does not read can't be told; the connection is all that is left to end.
            self._abort()

    async def _send(self, **message: Any) -> None:
        await self._send_json(message)

    async def _send_json(self, message: dict[str, Any]) -> None:
        await self._within_limit(self._socket.send_str(json.dumps(message)))

    async def _close(self, code: CloseCode) -> None:
        limit_s = self._service.settings.live.send_s
        try:
            async with asyncio.timeout(limit_s):
                await self._socket.close(code=code)
        except TimeoutError:
            self._abort()

    async def _within_limit(self, sending: Awaitable[None]) -> None:
        limit_s = self._service.settings.live.send_s
        try:
            async with asyncio.timeout(limit_s):
                await sending
        except TimeoutError:
            self._entry.fail(Outcome.SLOW_READER, f"nothing was read for {limit_s:g} s")
            self._abort()
            raise ConnectionResetError(f"nothing was read for {limit_s:g} s") from None

    def _abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    # -- what is known -----------------------------------------------------------------------------

    @property
    def _request_id(self) -> str | None:
        """Null until the engine was asked."""
        return self._entry.request_id if self._stats is not None else None

    @property
    def _known_text(self) -> LiveText:
        assert self._text is not None, "the protocol starts with request.start"
        return self._text

    def _now_ns(self) -> int:
        return self._service.clock.now_ns()
