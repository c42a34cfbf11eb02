# SPDX-License-Identifier: GPL-3.0-or-later
"""One speech request from its body to its last byte."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from typing import NoReturn

from aiohttp import web

from engines.embedded.errors import BadRequestError, QueueFullError
from engines.embedded.ledger import Entry, RequestStatus
from engines.embedded.pool import Job, SynthesisPool
from engines.embedded.service import Service
from engines.embedded.speech_body import ResponseFormat, SpeechOrder, parse_speech_body
from engines.embedded.wav import wav_header

__all__ = ["REQUEST_ID_HEADER", "is_request_id", "serve_speech"]

REQUEST_ID_HEADER = "X-Request-Id"

_LOGGER = logging.getLogger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_CONTENT_TYPES = {ResponseFormat.PCM: "audio/pcm", ResponseFormat.WAV: "audio/wav"}


def is_request_id(text: str) -> bool:
    """Whether a client's name for its request can be kept and echoed as it is."""
    return _REQUEST_ID.fullmatch(text) is not None


async def serve_speech(request: web.Request, service: Service) -> web.StreamResponse:
    """Answer `POST /v1/audio/speech`.

    The status line waits for the first audio, so whatever goes wrong before is a proper error
    reply. After it, a failure breaks the connection: a clean end means all audio was sent.

    Raises:
        BadRequestError: the body is wrong.
        NothingToSayError: nothing in the text can be spoken.
        QueueFullError: too many requests are open.
    """
    received_ns = service.clock_ns()
    request_id = _request_id(request)
    body = await _read_body(request, timeout_s=service.config.read_timeout_s)
    order = parse_speech_body(body, max_characters=service.config.max_characters)
    entry = Entry(
        request_id=request_id,
        num_characters=len(order.text),
        response_format=order.response_format.value,
        received_ns=received_ns,
    )
    service.ledger.add(entry)
    pool = service.voice.pool
    try:
        job = pool.submit(service.voice.synthesiser.open(order.text, speed=order.speed))
    except QueueFullError:
        entry.status = RequestStatus.REFUSED
        entry.ended_ns = service.clock_ns()
        raise
    reply = _Reply(request, service, order=order, entry=entry, job=job)
    try:
        return await (reply.stream(pool) if order.is_streaming else reply.whole(pool))
    except BaseException as error:
        if entry.status is not RequestStatus.FAILED:
            is_client = isinstance(error, asyncio.CancelledError | ConnectionError)
            entry.status = RequestStatus.CANCELLED if is_client else RequestStatus.FAILED
        raise
    finally:
        entry.num_steps, entry.inference_ns = job.num_steps, job.inference_ns
        entry.ended_ns = service.clock_ns()
        pool.release(job)


def _request_id(request: web.Request) -> str:
    given = request.headers.get(REQUEST_ID_HEADER)
    if given is None:
        return uuid.uuid4().hex
    if not is_request_id(given):
        raise BadRequestError(
            f"{REQUEST_ID_HEADER}: expected 1 to 128 letters, digits, '.', '_', ':' or '-'",
            code="bad_request_id",
        )
    return given


async def _read_body(request: web.Request, *, timeout_s: float) -> bytes:
    if request.content_type != "application/json":
        raise BadRequestError(
            f"Content-Type: found {ascii(request.content_type)[:60]}; expected application/json",
            status=415,
            code="bad_content_type",
        )
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise BadRequestError(
            "Content-Encoding: send the body as it is", status=415, code="bad_content_encoding"
        )
    try:
        async with asyncio.timeout(timeout_s):
            return await request.read()
    except TimeoutError:
        raise BadRequestError(
            f"body: not complete after {timeout_s:g} s", status=408, code="slow_body"
        ) from None


class _Reply:
    """Sends one order's audio and keeps its entry."""

    def __init__(
        self,
        request: web.Request,
        service: Service,
        *,
        order: SpeechOrder,
        entry: Entry,
        job: Job,
    ) -> None:
        self._request = request
        self._service = service
        self._order = order
        self._entry = entry
        self._job = job

    @property
    def _sample_rate_hz(self) -> int:
        return self._service.voice.synthesiser.sample_rate_hz

    def _headers(self) -> dict[str, str]:
        return {
            "Content-Type": _CONTENT_TYPES[self._order.response_format],
            REQUEST_ID_HEADER: self._entry.request_id,
            "X-Sample-Rate": str(self._sample_rate_hz),
            "X-Channels": "1",
            "X-Accel-Buffering": "no",
            "Cache-Control": "no-cache",
        }

    async def whole(self, pool: SynthesisPool) -> web.Response:
        """All audio in one body of known length."""
        chunks = []
        while (chunk := await pool.next_chunk(self._job)) is not None:
            self._note_chunk(chunk)
            chunks.append(chunk)
        body = b"".join(chunks)
        if self._order.response_format is ResponseFormat.WAV:
            body = wav_header(self._sample_rate_hz, num_data_bytes=len(body)) + body
        self._entry.body_bytes = len(body)
        self._entry.status = RequestStatus.DONE
        return web.Response(body=body, headers=self._headers())

    async def stream(self, pool: SynthesisPool) -> web.StreamResponse:
        """Each chunk as it is made; a WAV header travels with the first."""
        chunk = await pool.next_chunk(self._job)
        response = web.StreamResponse(headers=self._headers())
        await response.prepare(self._request)
        is_wav = self._order.response_format is ResponseFormat.WAV
        preamble = wav_header(self._sample_rate_hz) if is_wav else b""
        try:
            while chunk is not None:
                self._note_chunk(chunk)
                await self._write(response, preamble + chunk)
                preamble = b""
                chunk = await pool.next_chunk(self._job)
        except ConnectionError:
            raise
        except Exception as error:
            self._break(error)
        # Before the last byte: who has the whole body may ask for its count at once.
        self._entry.status = RequestStatus.DONE
        await response.write_eof()
        return response

    def _note_chunk(self, chunk: bytes) -> None:
        if self._entry.first_audio_ns is None:
            self._entry.first_audio_ns = self._service.clock_ns()
        self._entry.num_chunks += 1
        self._entry.audio_bytes += len(chunk)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        # Counted first: a reader may have the bytes, and ask, before `write` comes back.
        self._entry.body_bytes += len(data)
        timeout_s = self._service.config.write_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await response.write(data)
        except TimeoutError:
            self._abort()
            raise ConnectionResetError(f"the client read nothing for {timeout_s:g} s") from None

    def _break(self, error: Exception) -> NoReturn:
        """End a body that can't be completed so that its reader sees it was cut."""
        _LOGGER.error("request %s failed mid-stream", self._entry.request_id, exc_info=error)
        self._entry.status = RequestStatus.FAILED
        self._abort()
        raise ConnectionResetError("synthesis failed") from error

    def _abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()
