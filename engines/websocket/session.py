"""What all WebSocket protocols share: the adapter, the life of a session, gated text, endings.

A protocol is a subclass of `Session`: it says what to send at the start, how a piece of text is
written, when the next may go, and what each message means. Text that falls due while the gate is
closed waits here in order; a late acknowledgement never moves later due times, since those are
the driver's.

Source: engines/README.md, "Add an adapter in code".
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

import orjson

from engines.adapter import CodedAdapter
from engines.base import (
    Action,
    Audio,
    AudioFormat,
    Buffer,
    CancelDue,
    Capabilities,
    Close,
    Closed,
    Event,
    Exchange,
    Fail,
    Format,
    Headers,
    Message,
    PayloadEncoding,
    Probe,
    RateSource,
    SampleFormat,
    Send,
    SpeechRequest,
    TextDue,
    WebSocketTarget,
)
from engines.card import EngineCard
from engines.credentials import Credentials, resolve_credentials
from engines.ending import EndsOnce
from engines.errors import ContractError
from engines.event_stream import decode_payload
from engines.http_body import for_container, protocol_error
from engines.http_contract import AuthSpec, FieldSpec, ProbeSpec
from engines.http_probe import build_probe
from engines.outcomes import TransportOutcome
from engines.pointer import find_first
from engines.redact import one_line, written
from engines.shape import is_channel_count, is_sample_rate

__all__ = ["Protocol", "Session", "SessionAdapter", "SessionSetup", "compact", "utf8_pieces"]

_SWITCHING_PROTOCOLS = 101
_TRY_AGAIN_LATER = 1013
_REFUSED = (429, 503)


@dataclass(frozen=True, slots=True)
class Protocol:
    """What one WebSocket protocol is, beside its behaviour.

    `path` may name parameters in braces; `query` lists parameters that go into the address. The
    rest of `fields` is for the session's own messages.
    """

    name: str
    title: str
    source: str
    path: str
    base_url: str | None
    fields: Mapping[str, FieldSpec]
    formats: tuple[str, ...]
    query: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()
    auth: AuthSpec | None = None
    probe: ProbeSpec = field(default_factory=ProbeSpec)
    has_incremental_text: bool = True
    can_cancel: bool = False
    max_text_chars: int | None = None
    note: str = ""
    seen_live: str | None = None


@dataclass(frozen=True, slots=True)
class SessionSetup:
    """What one session is opened with; `values` are the resolved parameters."""

    target: WebSocketTarget
    request: SpeechRequest
    values: Mapping[str, Any]
    secrets: tuple[str, ...] = ()

    def chosen(self, *names: str) -> dict[str, Any]:
        """Those of the named parameters that have a value."""
        return {name: self.values[name] for name in names if self.values[name] is not None}


class SessionAdapter(CodedAdapter):
    """An engine behind a WebSocket at one address; subclasses name protocol and session."""

    SCHEMES = ("ws", "wss", "http", "https")
    PROTOCOL: ClassVar[Protocol]
    SESSION: ClassVar[type[Session]]

    def __init__(
        self,
        *,
        base_url: str | None = None,
        params: Mapping[str, Any] = MappingProxyType({}),
        environ: Mapping[str, str] = MappingProxyType({}),
        key_hosts: Collection[str] = (),
    ) -> None:
        """Check address, parameters and key at once; see `engines.registry.create`.

        Raises:
            ContractError: one line.
        """
        super().__init__(base_url=base_url, params=params)
        self._credentials: Credentials = resolve_credentials(
            self.name,
            self.PROTOCOL.auth,
            self.base_url,
            environ=environ,
            key_hosts=key_hosts,
        )

    @classmethod
    def describe(cls) -> EngineCard:
        """What is known of the engine without talking to it."""
        protocol = cls.PROTOCOL
        return EngineCard(
            name=protocol.name,
            title=protocol.title,
            source=protocol.source,
            base_url=protocol.base_url,
            capabilities=Capabilities(
                transport="websocket",
                formats=protocol.formats,
                has_incremental_text=protocol.has_incremental_text,
                can_cancel=protocol.can_cancel,
                seen_live=protocol.seen_live,
                note=protocol.note,
            ),
            parameters=protocol.fields,
            auth=protocol.auth,
        )

    def open(self, request: SpeechRequest) -> Exchange:
        """Begin one session; see `engines.base.Adapter`."""
        protocol = self.PROTOCOL
        if request.is_incremental and not protocol.has_incremental_text:
            raise ContractError(f"{protocol.name}: takes whole texts only (text_pacing: whole)")
        values = self.values_of(request, max_text_chars=protocol.max_text_chars)
        setup = SessionSetup(
            target=self._target(values),
            request=request,
            values=values,
            secrets=self._credentials.secrets,
        )
        return self.SESSION(setup)

    def probe(self) -> Probe:
        """The protocol's HTTP calls at the same host."""
        address = self.base_url.replace("ws://", "http://", 1).replace("wss://", "https://", 1)
        return build_probe(
            self.name,
            self.PROTOCOL.probe,
            base_url=address,
            route=self.PROTOCOL.path,
            credentials=self._credentials,
        )

    def _target(self, values: Mapping[str, Any]) -> WebSocketTarget:
        protocol = self.PROTOCOL
        address = self.base_url.replace("http://", "ws://", 1).replace("https://", "wss://", 1)
        parts = {name: quote(str(value), safe="") for name, value in values.items()}
        query = urlencode(
            [(name, _plain(values[name])) for name in protocol.query if values[name] is not None]
        )
        return WebSocketTarget(
            url=address + protocol.path.format_map(parts) + (f"?{query}" if query else ""),
            headers=(*protocol.headers, *self._credentials.headers),
            subprotocols=protocol.subprotocols,
            secret_headers=frozenset(name for name, _ in self._credentials.headers),
        )


class Session(EndsOnce):
    """One request over one WebSocket session, as a state machine."""

    # What the binary messages are unless the server says otherwise; None: it depends on parameters.
    FORMAT: ClassVar[AudioFormat | None] = None

    def __init__(self, setup: SessionSetup) -> None:
        super().__init__()
        self.setup = setup
        self.values = setup.values
        self.is_cancelled = False
        self._pieces: deque[TextDue] = deque()
        self._format: AudioFormat | None = self.promised()
        self._is_accepted = False
        self._is_told = False

    # -- what a protocol says ----------------------------------------------------------------

    def promised(self) -> AudioFormat | None:
        """The format that the protocol promises for these parameters."""
        return self.FORMAT

    def on_open(self) -> list[Action]:
        """The session was accepted: nothing to say before the text, or before the server speaks."""
        return []

    @abstractmethod
    def on_message(self, message: Mapping[str, Any]) -> list[Action]:
        """A JSON object came."""

    def on_binary(self, data: Buffer) -> list[Action]:
        """A binary message came: audio, unless the protocol says otherwise."""
        return self.audio(data)

    @abstractmethod
    def write_text(self, piece: TextDue) -> list[Send]:
        """The messages for one piece of text, the end of the text included if it is the last."""

    def may_write(self) -> bool:
        """Whether the next piece of text may go now."""
        return True

    def on_cancel(self) -> list[Action]:
        """The scenario wants it to stop; closing is what every server understands."""
        return [Close(), self.cancelled()]

    def on_closed(self, closed: Closed) -> list[Action]:
        """The session is gone before its end event."""
        if self.is_cancelled:
            return [self.cancelled()]
        outcome = TransportOutcome.TRUNCATED
        if closed.code == _TRY_AGAIN_LATER:
            outcome = TransportOutcome.REFUSED
        code = "without a code" if closed.code is None else f"with code {closed.code}"
        reason = one_line(closed.reason, secrets=self.setup.secrets)
        text = f"the session closed {code} before its end event" + (f": {reason}" if reason else "")
        return [Fail(outcome, "close", text)]

    # -- the contract of exchanges -----------------------------------------------------------

    @property
    def target(self) -> WebSocketTarget:
        """Where to connect."""
        return self.setup.target

    def start(self) -> list[Action]:
        """Nothing: the session begins when it is accepted."""
        return []

    def _react(self, event: Event) -> list[Action]:
        match event:
            case Headers(status=status) if status == _SWITCHING_PROTOCOLS:
                self._is_accepted = True
                return [*self.on_open(), *self._whole_text(), *self.pump()]
            case Headers(status=status):
                refused = status in _REFUSED
                outcome = TransportOutcome.REFUSED if refused else TransportOutcome.HTTP_ERROR
                return [Fail(outcome, "headers", f"HTTP {status} to the upgrade")]
            case Message(data=data):
                if isinstance(data, str):
                    return self._on_text_message(data)
                return self.on_binary(data) if len(data) else []
            case TextDue():
                if not self.is_cancelled:
                    self._pieces.append(event)
                return self.pump()
            case CancelDue():
                self.is_cancelled = True
                self._pieces.clear()
                return self.on_cancel()
            case Closed():
                return self.on_closed(event)
            case _:
                return [protocol_error("order", f"{type(event).__name__} does not belong here")]

    def _on_text_message(self, text: str) -> list[Action]:
        try:
            message = orjson.loads(text)
        except (orjson.JSONDecodeError, UnicodeEncodeError):
            return [protocol_error("message", f"not JSON: {one_line(text[:80])!r}")]
        if not isinstance(message, dict):
            return [protocol_error("message", f"not a JSON object: {one_line(text[:80])!r}")]
        return [*self.on_message(message), *self.pump()]

    def _whole_text(self) -> list[Action]:
        """A request whose text is known is one piece, and the last."""
        if not self.setup.request.is_incremental:
            self._pieces.append(TextDue(_WHOLE, self.setup.request.text, True))
        return []

    # -- tools of a protocol -----------------------------------------------------------------

    def pump(self) -> list[Action]:
        """Write waiting pieces for as long as the gate is open."""
        actions: list[Action] = []
        while self._is_accepted and self._pieces and self.may_write():
            piece = self._pieces.popleft()
            for send in self.write_text(piece):
                # A text that is there from the start has no pieces to stamp.
                is_whole = piece.seq == _WHOLE
                actions.append(replace(send, text_seq=None) if is_whole else send)
        return actions

    def piece_and_end(
        self, piece: TextDue, messages: Iterable[Mapping[str, Any]], end: Mapping[str, Any]
    ) -> list[Send]:
        """The messages of a piece, and behind the last piece the one that ends the text.

        That one is the write of the piece only where the piece has no message of its own.
        """
        sends = [Send(compact(message), text_seq=piece.seq) for message in messages]
        if piece.is_last:
            seq = None if sends else piece.seq
            sends.append(Send(compact(end), text_seq=seq, ends_text=True))
        return sends

    def hear(self, found: AudioFormat) -> None:
        """The server states the format; it counts until the first audio."""
        if not self._is_told:
            self._format = for_container(found, found.sample_format)

    def audio(self, data: Buffer) -> list[Action]:
        """A chunk, with the format before the first one."""
        told: list[Action] = []
        if not self._is_told:
            if self._format is None:
                return [protocol_error("audio", "audio came before its format was said")]
            self._is_told = True
            told = [Format(self._format, self.promised())]
        return [*told, Audio(data)] if len(data) else told

    def decoded(
        self, text: object, encoding: PayloadEncoding = PayloadEncoding.BASE64
    ) -> list[Action]:
        """A chunk out of the text inside a message; null and empty text are none."""
        if text is None or text == "":
            return []
        if not isinstance(text, str):
            return [protocol_error("message", f"the audio is {type(text).__name__}, not text")]
        try:
            return self.audio(decode_payload(text, encoding))
        except ValueError:
            return [protocol_error("message", f"the audio is not {encoding}")]

    def state(self, sample_format: SampleFormat, *, rate: Any, channels: Any = 1) -> list[Action]:
        """Take over a format from a message; a rate that is none is a protocol error."""
        if not is_sample_rate(rate) or not is_channel_count(channels):
            said = one_line(f"{rate} Hz, {channels} channels"[:80])
            return [protocol_error("format", f"{said} is no shape of audio")]
        self.hear(AudioFormat(sample_format, rate, channels, RateSource.MESSAGE))
        return []

    def failed(self, message: Mapping[str, Any], *pointers: str) -> Fail:
        """The server's own error as a failure; a code of 429 or 503 is a refusal."""
        said = find_first(message, pointers)
        text = said if isinstance(said, str) else written(message)
        code = find_first(message, ("/code", "/error/code", "/status_code"))
        refused = code in _REFUSED or str(code) in ("429", "503")
        outcome = TransportOutcome.REFUSED if refused else TransportOutcome.SERVER_ERROR
        return Fail(outcome, "message", one_line(text, secrets=self.setup.secrets))

    def cancelled(self) -> Fail:
        """The ending of a request that the scenario cancelled."""
        return Fail(TransportOutcome.CANCELLED, "session", "cancelled by the scenario")


# The number of the one piece that a whole text is; never seen outside this module.
_WHOLE = -1


def utf8_pieces(text: str, max_bytes: int) -> list[str]:
    """`text` cut into pieces of at most `max_bytes` of UTF-8, never inside a character."""
    raw = text.encode("utf-8", "replace")
    pieces: list[str] = []
    start = 0
    while start < len(raw):
        end = min(start + max_bytes, len(raw))
        while end < len(raw) and raw[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(raw[start:end].decode())
        start = end
    return pieces


def compact(document: Mapping[str, Any]) -> str:
    """JSON as it goes over the wire."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
