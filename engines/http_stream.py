"""Every engine that answers one HTTP request with audio in the body, driven by its contract.

The body is read by what the response says it is, never by what was asked for: servers differ in
what `stream` and `response_format` mean, and a contract that meets another type has met another
server. Servers that put encoded audio into text events are read by `event_stream`.

Source: engines/README.md, "A contract, key by key".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.base import (
    Action,
    AudioFormat,
    CancelDue,
    Capabilities,
    Close,
    Closed,
    EndOfBody,
    Event,
    Exchange,
    Fail,
    Headers,
    HttpTarget,
    Probe,
    RateSource,
    Send,
    SpeechRequest,
    StreamBytes,
)
from engines.credentials import Credentials
from engines.ending import EndsOnce
from engines.errors import ContractError
from engines.event_stream import EventBody, NdjsonParser, SseParser
from engines.http_body import BodyReader, ErrorBody, RawBody, protocol_error
from engines.http_contract import AcceptSpec, HttpContract, ReadBody, load_contract
from engines.http_probe import build_probe
from engines.http_request import assumed_format, build_body, build_target, expected_format
from engines.outcomes import TransportOutcome
from engines.params import check_base_url, check_params, check_text, resolve_values
from engines.redact import one_line
from engines.shape import MAX_CHANNELS, MAX_RATE_HZ, MIN_RATE_HZ

__all__ = ["HttpContract", "HttpStreamAdapter", "HttpStreamExchange", "load_contract"]

# `chunked` is the framing, which the wire has taken off.
_OWN_CODINGS = ("", "identity", "chunked")
_TEXT_TYPES = ("application/json", "application/problem+json", "text/plain", "text/html")


class HttpStreamAdapter:
    """An engine at one address, as one contract describes it."""

    __slots__ = ("_credentials", "_known", "_params", "base_url", "contract")

    def __init__(
        self,
        contract: HttpContract,
        base_url: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        credentials: Credentials | None = None,
    ) -> None:
        """Check address and parameters at once, so that a run never starts with wrong ones.

        Raises:
            ContractError: one line.
        """
        address = base_url or contract.base_url
        if address is None:
            raise ContractError(f"{contract.name}: base_url: is required; this engine has no usual")
        self.contract = contract
        self.base_url = check_base_url(address, engine=contract.name)
        self._known = contract.parameters()
        self._params = check_params(contract.name, self._known, params or {})
        self._credentials = credentials or Credentials()

    @property
    def name(self) -> str:
        """The contract's name."""
        return self.contract.name

    @property
    def capabilities(self) -> Capabilities:
        """What the contract says this engine can do."""
        contract = self.contract
        reads = {accept.read for accept in contract.response.accept.values()}
        events = sorted(read.value for read in reads - {ReadBody.BODY})
        by = contract.response.expect_by
        promised = tuple(by.formats) if by else ()
        accepted = (a.sample_format for a in contract.response.accept.values())
        single = contract.response.expect or contract.response.assume
        formats = promised or tuple(
            dict.fromkeys(str(name) for name in accepted if name is not None)
        )
        return Capabilities(
            transport="+".join(["http", *events]),
            formats=formats or ((str(single.sample_format),) if single else ()),
            is_streaming=contract.is_streaming,
            has_incremental_text=False,
            can_cancel=bool(contract.stops_on_disconnect),
            seen_live=contract.seen_live,
            note=contract.note,
        )

    def open(self, request: SpeechRequest) -> Exchange:
        """Write the request down; see `engines.base.Adapter`."""
        contract = self.contract
        if request.is_incremental:
            raise ContractError(
                f"{contract.name}: takes whole texts only; use text_pacing mode 'whole' or an "
                "engine with incremental text (earwitness engines)"
            )
        check_text(contract.name, request.text, max_chars=contract.request.max_text_chars)
        params = self._params
        if request.params:
            params = {**params, **check_params(contract.name, self._known, request.params)}
        values = resolve_values(contract.name, self._known, params, request)
        return HttpStreamExchange(
            contract,
            build_target(
                contract,
                self.base_url,
                values=values,
                text=request.text,
                credentials=self._credentials,
                request_id=request.request_id,
            ),
            body=build_body(contract, values=values, text=request.text),
            expected=expected_format(contract, values),
            assumed=assumed_format(contract, values),
            secrets=self._credentials.secrets,
        )

    def probe(self) -> Probe:
        """The contract's calls, below this base URL."""
        return build_probe(
            self.name,
            self.contract.probe,
            base_url=self.base_url,
            route=self.contract.request.path,
            credentials=self._credentials,
        )


class HttpStreamExchange(EndsOnce):
    """One request and its reply. States: headers, then a body or an error body, then over."""

    __slots__ = (
        "_assumed",
        "_body",
        "_contract",
        "_error",
        "_expected",
        "_facts",
        "_reader",
        "_secrets",
        "_target",
    )

    def __init__(
        self,
        contract: HttpContract,
        target: HttpTarget,
        *,
        body: bytes,
        expected: AudioFormat | None,
        assumed: AudioFormat | None = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self._contract = contract
        self._target = target
        self._body = body
        self._expected = expected
        self._assumed = expected or assumed
        self._secrets = secrets
        self._facts: dict[str, Any] = {}
        self._reader: BodyReader | None = None
        self._error: ErrorBody | None = None

    @property
    def target(self) -> HttpTarget:
        """Where to connect."""
        return self._target

    def start(self) -> list[Action]:
        """Send the body; for an HTTP request that is also the end of the text."""
        return [Send(self._body, ends_text=True)]

    def _react(self, event: Event) -> list[Action]:
        match event:
            case Headers():
                return self._on_headers(event)
            case StreamBytes(data=data):
                if self._error is not None:
                    return self._error.push(data)
                return self._reader.push(data) if self._reader else _out_of_order("body")
            case EndOfBody():
                if self._error is not None:
                    return [self._error.fail()]
                return self._reader.finish() if self._reader else _out_of_order("end")
            case CancelDue():
                said = "cancelled by the scenario; the connection is closed"
                return [Close(), Fail(TransportOutcome.CANCELLED, "body", said, self._facts)]
            case Closed():
                return [self._cut_off()]
            case _:
                return _out_of_order(type(event).__name__)

    def _on_headers(self, headers: Headers) -> list[Action]:
        if self._reader is not None or self._error is not None:
            return _out_of_order("a second head")
        response = self._contract.response
        self._facts = {
            name: one_line(value, secrets=self._secrets)
            for name, header in response.facts.items()
            if (value := headers.get(header)) is not None
        }
        if headers.status not in response.ok:
            self._error = self._bad_status(headers)
            return []
        said = headers.get("content-type") or ""
        kind = said.partition(";")[0].strip().lower()
        accept = response.accept.get(kind)
        if accept is None:
            return self._wrong_type(said, kind)
        for name in ("content-encoding", "transfer-encoding"):
            if (coding := _foreign_coding(headers.get(name))) is not None:
                return [protocol_error("headers", f"{name} {one_line(coding)} was not asked")]
        try:
            found = self._format(headers, accept)
        except ValueError as fault:
            return [protocol_error("headers", str(fault))]
        self._reader = self._make_reader(accept, found)
        return []

    def _bad_status(self, headers: Headers) -> ErrorBody:
        status = headers.status
        is_refusal = status in self._contract.response.refused
        facts: dict[str, Any] = {"status": status, **self._facts}
        if (wait := headers.get("retry-after")) is not None:
            facts["retry_after"] = one_line(wait)
        return ErrorBody(
            TransportOutcome.REFUSED if is_refusal else TransportOutcome.HTTP_ERROR,
            f"HTTP {status}",
            pointers=self._contract.response.errors,
            secrets=self._secrets,
            facts=facts,
        )

    def _wrong_type(self, said: str, kind: str) -> list[Action]:
        wanted = " or ".join(self._contract.response.accept)
        text = f"content type {one_line(said) or 'missing'!r}, expected {wanted}"
        if kind not in _TEXT_TYPES:
            return [protocol_error("headers", text)]
        # Words under a 200 usually say what went wrong; they are worth waiting for.
        self._error = ErrorBody(
            TransportOutcome.PROTOCOL_ERROR,
            text,
            pointers=self._contract.response.errors,
            secrets=self._secrets,
            facts=self._facts,
        )
        return []

    def _format(self, headers: Headers, accept: AcceptSpec) -> AudioFormat:
        """What the wire says of the audio, with the contract's word where it says nothing.

        The shape is kept beside a container's name until the body shows that it is one.

        Raises:
            ValueError: a header that should hold a number does not.
        """
        response = self._contract.response
        rate = _number(headers, response.rate_header, MIN_RATE_HZ, MAX_RATE_HZ)
        channels = _number(headers, response.channels_header, 1, MAX_CHANNELS)
        fallback = self._assumed
        source = RateSource.CONTRACT if rate is None else RateSource.HEADER
        if fallback is not None:
            rate = rate or fallback.sample_rate_hz
            channels = channels or fallback.channels
        sample_format = accept.sample_format or (fallback.sample_format if fallback else None)
        if sample_format is None:
            raise ValueError("neither the content type nor the contract tells the audio's format")
        return AudioFormat(
            sample_format=sample_format,
            sample_rate_hz=rate,
            channels=channels,
            rate_source=source,
            odd_byte=response.odd_byte,
            wav_size=response.wav_size,
        )

    def _make_reader(self, accept: AcceptSpec, found: AudioFormat) -> BodyReader:
        events = self._contract.response.events
        if accept.read is not ReadBody.BODY:
            assert events is not None
            return EventBody(
                events,
                SseParser() if accept.read is ReadBody.SSE else NdjsonParser(),
                found=found,
                expected=self._expected,
                facts=self._facts,
                secrets=self._secrets,
            )
        return RawBody(found, self._expected, sniff=accept.sniff, facts=self._facts)

    def _cut_off(self) -> Fail:
        if self._error is not None:
            return self._error.fail()
        if self._reader is None:
            text = "the connection closed before the response"
            return Fail(TransportOutcome.TRUNCATED, "headers", text)
        text = "the connection closed before the body's end"
        return Fail(TransportOutcome.TRUNCATED, "body", text, self._facts)


def _number(headers: Headers, name: str | None, low: int, high: int) -> int | None:
    value = headers.get(name) if name else None
    if value is None:
        return None
    word = value.strip()
    if not (word.isascii() and word.isdigit() and len(word) < 10 and low <= int(word) <= high):
        raise ValueError(f"{name}: {one_line(value)!r} is not a number from {low} to {high}")
    return int(word)


def _foreign_coding(value: str | None) -> str | None:
    """The first coding of a header that nobody here would undo; its bytes are no audio."""
    codings = (word.strip().lower() for word in (value or "").split(","))
    return next((word for word in codings if word not in _OWN_CODINGS), None)


def _out_of_order(what: str) -> list[Action]:
    return [protocol_error("order", f"{what} does not belong here")]
