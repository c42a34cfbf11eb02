"""One `POST /v1/audio/speech`, from its body to its last byte.

The status line waits for the first sound, so whatever goes wrong before is a proper error reply.
After it a failure breaks the connection: a body that ends cleanly is whole.
"""

from __future__ import annotations

import asyncio
import re
from typing import NoReturn

from aiohttp import web

from reference_engine.messages import SAMPLE_RATE_HZ, Audio, End, EndReason, Job
from reference_engine.server.ledger import Entry, Outcome, Transport, stage_times
from reference_engine.server.listener import Listener
from reference_engine.server.preparation import whole_job
from reference_engine.server.replies import ReplyError
from reference_engine.server.schemas import ResponseFormat, SpeechBody, read_body
from reference_engine.server.service import Service
from reference_engine.server.wav import wav_header

__all__ = [
    "ID_HEADER",
    "NARI_ID_HEADER",
    "RECEIVED_NS",
    "is_expected_end",
    "public_id",
    "serve_speech",
]

# Where a request keeps the moment at which its head was read.
RECEIVED_NS = web.RequestKey("received_ns", int)
ID_HEADER = "X-Request-Id"
NARI_ID_HEADER = "X-Nari-Request-ID"
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_CONTENT_TYPES = {ResponseFormat.PCM: "audio/pcm", ResponseFormat.WAV: "audio/wav"}
# Tokenising a longer text would be felt by the streams of others on this loop.
_MAX_CHARACTERS_ON_LOOP = 1_000


def public_id(request: web.Request, prefix: str) -> str:
    """The id that the client gave its request, or a new one.

    Raises:
        ReplyError: 422, it cannot be echoed as it is.
    """
    given = request.headers.get(ID_HEADER)
    if given is None:
        return Service.new_id(prefix)
    if _ID.fullmatch(given) is None:
        raise ReplyError(
            422,
            f"{ID_HEADER}: expected 1 to 128 letters, digits, '.', '_', ':' or '-'",
            code="bad_request_id",
            param=ID_HEADER,
        )
    return given


def is_expected_end(end: End, job: Job) -> bool:
    """Whether the client has what it asked for: an end of speech, or its own limit reached."""
    if end.reason is EndReason.COMPLETE:
        return True
    is_own_limit = job.ignore_eos or end.stats.num_codec_frames >= job.max_new_tokens - 1
    return end.reason is EndReason.LENGTH and is_own_limit


async def serve_speech(request: web.Request, service: Service) -> web.StreamResponse:
    """Answer one request.

    Raises:
        ReplyError, RequestError: it is refused, or failed before its first sound.
        ConnectionResetError: it was cut short after its first sound.
    """
    entry = Entry(public_id(request, "http"), Transport.HTTP, request[RECEIVED_NS])
    service.open(entry)
    reply = _Reply(request, service, entry)
    try:
        return await reply.answer()
    except asyncio.CancelledError:
        entry.fail(Outcome.CANCELLED, "the client went away")
        raise
    except ConnectionError as error:
        entry.fail(Outcome.CANCELLED, str(error))
        raise
    except ReplyError as error:
        entry.fail(Outcome.REFUSED if error.status < 500 else Outcome.FAILED, str(error))
        raise
    except Exception as error:
        status = getattr(error, "status", 500)
        entry.fail(Outcome.REFUSED if status < 500 else Outcome.FAILED, str(error))
        raise
    finally:
        reply.let_go()
        service.close_entry(entry)


class _Reply:
    """What is known of one request while it is answered."""

    def __init__(self, request: web.Request, service: Service, entry: Entry) -> None:
        self._request, self._service, self._entry = request, service, entry
        self._listener = Listener()
        self._job: Job | None = None
        self._is_over = False

    async def answer(self) -> web.StreamResponse:
        """Read, submit, speak."""
        service, entry = self._service, self._entry
        self._check_room()
        body = read_body(SpeechBody, await self._read())
        service.check_model(body.model)
        entry.num_characters = len(body.input)
        job = await self._prepare(body)
        entry.text_ready_ns = service.clock.now_ns()
        entry.stats = service.assembled.engine.submit(job, self._listener)
        self._job = job
        if body.is_streaming:
            return await self._stream(body.response_format)
        return await self._whole(body.response_format)

    def let_go(self) -> None:
        """The handler is leaving: nobody listens any more."""
        if self._job is not None and not self._is_over:
            self._service.assembled.engine.cancel(self._job.request_id)

    def _check_room(self) -> None:
        """Refuse for want of room before anything is spent on reading what is asked."""
        self._service.assembled.engine.check_room()

    async def _read(self) -> bytes:
        request, timeout_s = self._request, self._service.settings.body_s
        if request.content_type != "application/json":
            text = f"Content-Type: {ascii(request.content_type)[:60]}; expected application/json"
            raise ReplyError(415, text, code="bad_content_type")
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise ReplyError(
                415, "Content-Encoding: send the body as it is", code="bad_content_encoding"
            )
        try:
            async with asyncio.timeout(timeout_s):
                return await request.read()
        except TimeoutError:
            text = f"body: not complete after {timeout_s:g} s"
            raise ReplyError(408, text, code="slow_body") from None

    async def _prepare(self, body: SpeechBody) -> Job:
        limit = self._service.settings.max_characters
        if len(body.input) > limit:
            text = f"input: {len(body.input)} characters; at most {limit}, send it in pieces"
            raise ReplyError(413, text, code="too_long", param="input")
        # An id of our own: a client may use one of its ids twice at a time.
        arguments = (self._service.assembled, self._service.new_id("job"), body)
        if len(body.input) <= _MAX_CHARACTERS_ON_LOOP:
            return whole_job(*arguments)
        return await asyncio.to_thread(whole_job, *arguments)

    async def _next(self) -> Audio | End:
        event = await self._listener.next()
        if isinstance(event, End):
            self._is_over = True
        return event

    # -- the whole sound in one body ---------------------------------------------------------------

    async def _whole(self, response_format: ResponseFormat) -> web.Response:
        parts: list[bytes] = []
        while isinstance(event := await self._next(), Audio):
            pcm = event.pcm or b""
            parts.append(pcm)
            # Kept here, so nothing piles up on the way: whoever asks for the whole can't be slow.
            self._listener.taken(len(pcm))
        self._check_end(event)
        body = b"".join(parts)
        if not body:
            raise ReplyError(500, "the speech holds no sound", code="empty_audio")
        self._entry.num_chunks_sent, self._entry.audio_bytes_sent = len(parts), len(body)
        self._note_sent()
        self._entry.end(event.reason, event.text)
        headers = self._headers(response_format) | {"X-Finish-Reason": event.reason.value}
        if response_format is ResponseFormat.WAV:
            body = wav_header(SAMPLE_RATE_HZ, num_audio_bytes=len(body)) + body
        return web.Response(body=body, headers=headers)

    # -- chunk by chunk ----------------------------------------------------------------------------

    async def _stream(self, response_format: ResponseFormat) -> web.StreamResponse:
        event = await self._next()
        if isinstance(event, End):
            self._check_end(event)
            raise ReplyError(500, "the speech holds no sound", code="empty_audio")
        headers = self._headers(response_format) | {"Cache-Control": "no-cache"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(self._request)
        preamble = b""
        if response_format is ResponseFormat.WAV:
            preamble = wav_header(SAMPLE_RATE_HZ, num_audio_bytes=None)
        while isinstance(event, Audio):
            await self._write(response, preamble, event.pcm or b"")
            preamble = b""
            event = await self._next()
        # Noted first: who has the whole body may ask for its entry at once.
        self._entry.end(event.reason, event.text)
        if not is_expected_end(event, self._known_job):
            self._abort(f"{event.reason.value}: {event.text}")
        await response.write_eof()
        return response

    async def _write(self, response: web.StreamResponse, preamble: bytes, pcm: bytes) -> None:
        timeout_s = self._service.settings.write_s
        self._note_sent()
        self._entry.num_chunks_sent += 1
        self._entry.audio_bytes_sent += len(pcm)
        try:
            async with asyncio.timeout(timeout_s):
                await response.write(preamble + pcm if preamble else pcm)
        except TimeoutError:
            self._entry.fail(Outcome.SLOW_READER, f"nothing was read for {timeout_s:g} s")
            self._abort(f"the client read nothing for {timeout_s:g} s")
        self._listener.taken(len(pcm))

    def _note_sent(self) -> None:
        if self._entry.first_sent_ns is None:
            self._entry.first_sent_ns = self._service.clock.now_ns()

    def _headers(self, response_format: ResponseFormat) -> dict[str, str]:
        entry, stats = self._entry, self._entry.stats
        assert stats is not None
        timing = ", ".join(f"{name};dur={value:.3f}" for name, value in stage_times(entry))
        return {
            "Content-Type": _CONTENT_TYPES[response_format],
            ID_HEADER: entry.request_id,
            NARI_ID_HEADER: entry.request_id,
            "X-Sample-Rate": str(SAMPLE_RATE_HZ),
            "X-Channels": "1",
            "X-Trimmed-Ms": f"{stats.trimmed_samples * 1000 / SAMPLE_RATE_HZ:.3f}",
            "X-Profile-Hash": self._service.assembled.engine.profile.hash,
            "Server-Timing": timing,
            "X-Accel-Buffering": "no",
        }

    @property
    def _known_job(self) -> Job:
        assert self._job is not None
        return self._job

    def _check_end(self, end: End) -> None:
        """Raise what a client is told whose speech went wrong before anything was sent."""
        if is_expected_end(end, self._known_job):
            return
        self._entry.end(end.reason, end.text)
        if end.reason is EndReason.SHUTDOWN:
            raise ReplyError(503, end.text, code="shutdown", retry_after_s=1)
        text = end.text or "the request was ended by the server"
        raise ReplyError(500, f"{end.reason.value}: {text}", code=end.reason.value)

    def _abort(self, text: str) -> NoReturn:
        """End a body that can't be completed so that its reader sees it was cut."""
        if self._request.transport is not None:
            self._request.transport.abort()
        raise ConnectionResetError(text)
