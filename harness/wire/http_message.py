"""HTTP/1.1 as bytes: write a request head, cut a response into engine events. No socket, no clock.

The response parser is httptools; what it says is cut so that one event is one delivery: the body
bytes of one read, divided at transfer-chunk borders. Nothing waits for a block to fill.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlsplit

import httptools

from engines.base import EndOfBody, Event, Headers, HttpTarget, StreamBytes
from harness.settings import WireLimits

__all__ = [
    "FramingError",
    "Origin",
    "ResponseParser",
    "ResponseStage",
    "origin_of",
    "request_head",
]

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_TLS_SCHEMES = ("https", "wss")
_BODILESS_METHODS = ("GET", "DELETE", "OPTIONS")
# Characters that may stand in a request target as they are, `%` included: it is encoded already.
_TARGET_SAFE = "/?:@!$&'()*+,;=%-._~[]"
_SWITCHING_PROTOCOLS = 101
_NO_BODY = (204, 304)


class FramingError(ValueError):
    """Bytes that are no HTTP response, or one beyond the limits; `kind` is one word."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Origin:
    """What connections can be shared between: scheme, host and port."""

    scheme: str
    host: str
    port: int

    @property
    def is_tls(self) -> bool:
        """Whether bytes are encrypted."""
        return self.scheme in _TLS_SCHEMES

    @property
    def authority(self) -> str:
        """As the Host header says it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_default = self.port == _DEFAULT_PORTS[self.scheme]
        return host if is_default else f"{host}:{self.port}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def origin_of(url: str) -> Origin:
    """Scheme, host and port of an absolute URL.

    Raises:
        ValueError: another scheme, no host, a port out of range, or a user name in it.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"URL scheme {parts.scheme!r} is not one of {', '.join(_DEFAULT_PORTS)}")
    if not parts.hostname:
        raise ValueError("URL has no host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("URL holds a user name or password; use the contract's auth instead")
    host = parts.hostname
    if not host.isascii():
        host = host.encode("idna").decode("ascii")
    return Origin(parts.scheme, host, parts.port or _DEFAULT_PORTS[parts.scheme])


def _request_target(url: str) -> str:
    parts = urlsplit(url)
    path = quote(parts.path or "/", safe=_TARGET_SAFE)
    return f"{path}?{quote(parts.query, safe=_TARGET_SAFE)}" if parts.query else path


def _header_line(name: str, value: str) -> str:
    if not name or not name.isascii() or any(c in name for c in " \t\r\n:"):
        raise ValueError(f"header name {name!r} is not a token")
    if any(c in value for c in "\r\n\0"):
        raise ValueError(f"header {name} holds a line break")
    return f"{name}: {value}\r\n"


def request_head(
    target: HttpTarget,
    origin: Origin,
    *,
    num_body_bytes: int,
    user_agent: str,
    keep_alive: bool = True,
    extra: Iterable[tuple[str, str]] = (),
) -> bytes:
    """Request line and headers, up to the empty line.

    Raises:
        ValueError: a header that would break the framing, or a method that is none.
    """
    method = target.method.upper()
    if not method.isascii() or not method.isalpha() or method in ("HEAD", "CONNECT"):
        raise ValueError(f"HTTP method {target.method!r} is not one this wire can send")
    given = {name.lower() for name, _ in target.headers}
    lines = [f"{method} {_request_target(target.url)} HTTP/1.1\r\n"]
    lines.append(_header_line("Host", origin.authority))
    if "user-agent" not in given:
        lines.append(_header_line("User-Agent", user_agent))
    if "accept-encoding" not in given:
        # Compressed audio would arrive in blocks of the compressor's choosing.
        lines.append("Accept-Encoding: identity\r\n")
    lines += [_header_line(name, value) for name, value in target.headers]
    lines += [_header_line(name, value) for name, value in extra]
    if num_body_bytes or method not in _BODILESS_METHODS:
        lines.append(f"Content-Length: {num_body_bytes}\r\n")
    if not keep_alive:
        lines.append("Connection: close\r\n")
    return ("".join(lines) + "\r\n").encode("latin-1")


class ResponseStage(StrEnum):
    """How far a response has come."""

    NOTHING = "before the first byte of the response"
    HEADERS = "inside the response headers"
    BODY = "inside the response body"
    COMPLETE = "after the response"


class ResponseParser:
    """One response, fed read by read.

    `feed` gives the events of one read in order: `Headers` once, `StreamBytes` for every piece of
    body, `EndOfBody` when the framing says so. Bytes after the end are counted, not parsed.
    """

    __slots__ = (
        "_events",
        "_headers",
        "_is_informational",
        "_keeps_alive",
        "_limits",
        "_num_body",
        "_num_overhead",
        "_parser",
        "_until_close",
        "error",
        "has_extra",
        "stage",
    )  # fmt: skip

    def __init__(self, limits: WireLimits) -> None:
        self._limits = limits
        self._parser: Any = None
        self._events: list[Event] = []
        self._headers: list[tuple[str, str]] = []
        self._is_informational = False
        self._keeps_alive = False
        self._until_close = False
        self._num_body = 0
        self._num_overhead = 0
        self.has_extra = False
        self.error: FramingError | None = None
        self.stage = ResponseStage.NOTHING

    @property
    def can_reuse(self) -> bool:
        """Whether the connection may carry another request."""
        is_complete = self.stage is ResponseStage.COMPLETE
        return is_complete and self._keeps_alive and not self.has_extra

    def feed(self, data: bytes) -> list[Event]:
        """Events of one read, as far as it is HTTP; then `error` says what was wrong, if anything.

        The events before a fault are given: audio that came before broken framing did come.
        """
        if self.stage is ResponseStage.COMPLETE or self.error is not None:
            self.has_extra = True
            return []
        if self.stage is ResponseStage.NOTHING:
            self.stage = ResponseStage.HEADERS
            self._parser = httptools.HttpResponseParser(self)
        events: list[Event] = []
        self._events = events
        num_body_before = self._num_body
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.stage is ResponseStage.COMPLETE:
                self.has_extra = True
            else:
                self.error = self._framing_error(error)
        if self.error is None:
            self._check_overhead(len(data), self._num_body - num_body_before)
        self._events = []
        if self.error is not None or self.stage is ResponseStage.COMPLETE:
            self.drop()
        return events

    def drop(self) -> None:
        """Nothing more will be fed. Parser and callbacks hold each other; leave no cycle behind."""
        self._parser = None

    @staticmethod
    def owner(events: list[Event], data: bytes) -> int:
        """From which event of a read on the last byte's stamp is their own (index; else earlier).

        That is the last event, and a body before it that ended with the same byte. A chunk's
        closing CRLF counts as its own; the zero chunk behind it does not. Earlier bodies never
        are: two chunks of silence look alike, so only the last is compared with the read's end.
        """
        last = len(events) - 1
        body = last - 1 if last > 0 and isinstance(events[last], EndOfBody) else last
        event = events[body] if events else None
        if not isinstance(event, StreamBytes):
            return last
        piece = bytes(event.data)
        is_tail = data.endswith(piece) or (
            data.endswith(b"\r\n") and data.endswith(piece, 0, len(data) - 2)
        )
        return body if is_tail else body + 1

    def feed_eof(self) -> list[Event] | None:
        """Events when the peer closed: the end of a body without a length, or None: too early."""
        if self.stage is ResponseStage.BODY and self._until_close:
            self.stage = ResponseStage.COMPLETE
            self._keeps_alive = False
            return [EndOfBody()]
        return None

    def _framing_error(self, error: Exception) -> FramingError:
        if isinstance(error, httptools.HttpParserUpgrade):
            return FramingError("upgrade", "the server switched protocols unasked")
        return FramingError("http_framing", f"not HTTP/1.1 {self.stage}: {error}")

    def _check_overhead(self, num_bytes: int, num_body: int) -> None:
        limits = self._limits
        # Headers, chunk extensions and trailers without any body between them must not grow on.
        self._num_overhead = 0 if num_body else self._num_overhead + num_bytes
        is_over = self.stage is ResponseStage.COMPLETE
        if self._num_overhead > limits.max_header_bytes and not is_over:
            text = f"more than {limits.max_header_bytes} bytes of headers {self.stage}"
            self.error = FramingError("headers_too_large", text)

    # -- called by httptools -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A second message in one read is not ours."""
        if self.stage is ResponseStage.COMPLETE:
            self.has_extra = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer, which nobody asked for."""
        if self.stage is ResponseStage.HEADERS:
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1").strip()))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self.stage is not ResponseStage.HEADERS:
            return
        status = self._parser.get_status_code()
        headers, self._headers = tuple(self._headers), []
        self._is_informational = status < 200 and status != _SWITCHING_PROTOCOLS
        if self._is_informational:
            return
        if status == _SWITCHING_PROTOCOLS:
            return  # httptools raises it as an upgrade once the head is done
        event = Headers(status, headers)
        encoding = (event.get("transfer-encoding") or "").lower()
        is_chunked = encoding.split(",")[-1].strip() == "chunked"
        has_length = event.get("content-length") is not None
        self._until_close = not (is_chunked or has_length or status in _NO_BODY)
        self._keeps_alive = self._parser.should_keep_alive()
        self.stage = ResponseStage.BODY
        self._events.append(event)

    def on_body(self, data: bytes) -> None:
        """Body bytes of this read within one transfer chunk."""
        if self.stage is ResponseStage.BODY:
            self._num_body += len(data)
            self._events.append(StreamBytes(data))

    def on_message_complete(self) -> None:
        """The framing says that this was all; after an interim response the real one follows."""
        if self._is_informational:
            self._is_informational = False
        elif self.stage is ResponseStage.BODY:
            self.stage = ResponseStage.COMPLETE
            self._events.append(EndOfBody())
