"""Every engine that answers one HTTP request with audio in the body, driven by its contract.

The body is read by what the response says it is, never by what was asked for: servers differ in
what `stream` and `response_format` mean, and a contract that meets another type has met another
server. Servers that put encoded audio into text events are read by `event_stream`.

Source: engines/README.md, "A contract, key by key".
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engines.base import (
    Action,
    Audio,
    AudioFormat,
    Buffer,
    CancelDue,
    Capabilities,
    Close,
    Closed,
    Done,
    EndOfBody,
    Event,
    Exchange,
    Fail,
    Format,
    Headers,
    HttpTarget,
    Probe,
    RateSource,
    SampleFormat,
    Send,
    SpeechRequest,
    StreamBytes,
    WavSize,
)
from engines.errors import ContractError
from engines.http_contract import AcceptSpec, HttpContract, ReadBody, Sniff, load_contract
from engines.http_probe import build_probe
from engines.http_request import (
    Credentials,
    assumed_format,
    build_body,
    build_target,
    check_base_url,
    check_params,
    expected_format,
    resolve_values,
)
from engines.outcomes import TransportOutcome
from engines.pointer import find_first
from engines.redact import one_line
from engines.sniff import NUM_SNIFF_BYTES, WavLength, sniff_format

__all__ = ["HttpContract", "HttpStreamAdapter", "HttpStreamExchange", "load_contract"]

# An error page is read no further than this; it becomes one line anyway.
_MAX_ERROR_BODY_BYTES = 64 * 1024
_TEXT_TYPES = ("application/json", "application/problem+json", "text/plain", "text/html")


class BodyReader(Protocol):
    """Turns the bytes of one body into actions; one life, `push`* then `finish`."""

    def push(self, data: Buffer) -> list[Action]:
        """The next bytes."""
        ...

    def finish(self) -> list[Action]:
        """The body ended as its framing said; the last action is `Done` or `Fail`."""
        ...


class HttpStreamAdapter:
    """An engine at one address, as one contract describes it."""

    __slots__ = ("_credentials", "_params", "base_url", "contract")

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
        self.base_url = check_base_url(address, contract=contract.name)
        self._params = check_params(contract, params or {})
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
        accepted = tuple(dict.fromkeys(a.sample_format for a in contract.response.accept.values()))
        return Capabilities(
            transport="+".join(["http", *events]),
            formats=promised or tuple(str(name) for name in accepted),
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
        limit = contract.request.max_text_chars
        if limit is not None and len(request.text) > limit:
            raise ContractError(
                f"{contract.name}: a text of {len(request.text)} characters is longer than the "
                f"{limit} that this engine takes"
            )
        params = self._params
        if request.params:
            params = {**params, **check_params(contract, request.params)}
        values = resolve_values(contract, params, request)
        return HttpStreamExchange(
            contract,
            build_target(
                contract,
                self.base_url,
                values=values,
                text=request.text,
                credentials=self._credentials,
            ),
            body=build_body(contract, values=values, text=request.text),
            expected=expected_format(contract, values),
            assumed=assumed_format(contract, values),
            secrets=self._credentials.secrets,
        )

    def probe(self) -> Probe:
        """The contract's calls, below this base URL."""
        return build_probe(self.contract, self.base_url, self._credentials)


class HttpStreamExchange:
    """One request and its reply. States: headers, then a body or an error body, then over."""

    __slots__ = (
        "_assumed",
        "_body",
        "_contract",
        "_error",
        "_expected",
        "_facts",
        "_is_over",
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
        self._contract = contract
        self._target = target
        self._body = body
        self._expected = expected
        self._assumed = expected or assumed
        self._secrets = secrets
        self._facts: dict[str, Any] = {}
        self._reader: BodyReader | None = None
        self._error: _ErrorBody | None = None
        self._is_over = False

    @property
    def target(self) -> HttpTarget:
        """Where to connect."""
        return self._target

    def start(self) -> list[Action]:
        """Send the body; for an HTTP request that is also the end of the text."""
        return [Send(self._body, ends_text=True)]

    def feed(self, event: Event) -> list[Action]:
        """See `engines.base.Exchange`."""
        if self._is_over:
            return []
        actions = self._react(event)
        if any(isinstance(action, (Done, Fail)) for action in actions):
            self._is_over = True
        return actions

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
        coding = (headers.get("content-encoding") or "identity").strip().lower()
        if coding != "identity":
            return [
                _protocol_error("headers", f"content-encoding {one_line(coding)} was not asked")
            ]
        try:
            found = self._format(headers, accept)
        except ValueError as fault:
            return [_protocol_error("headers", str(fault))]
        self._reader = self._make_reader(accept, found)
        return []

    def _bad_status(self, headers: Headers) -> _ErrorBody:
        status = headers.status
        is_refusal = status in self._contract.response.refused
        facts: dict[str, Any] = {"status": status, **self._facts}
        if (wait := headers.get("retry-after")) is not None:
            facts["retry_after"] = one_line(wait)
        return _ErrorBody(
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
            return [_protocol_error("headers", text)]
        # Words under a 200 usually say what went wrong; they are worth waiting for.
        self._error = _ErrorBody(
            TransportOutcome.PROTOCOL_ERROR,
            text,
            pointers=self._contract.response.errors,
            secrets=self._secrets,
            facts=self._facts,
        )
        return []

    def _format(self, headers: Headers, accept: AcceptSpec) -> AudioFormat:
        """What the wire says of the audio, with the contract's word where it says nothing.

        Raises:
            ValueError: a header that should hold a number does not.
        """
        response = self._contract.response
        rate = _number(headers, response.rate_header, 1000, 768_000)
        channels = _number(headers, response.channels_header, 1, 16)
        fallback = self._assumed
        source = RateSource.CONTRACT if rate is None else RateSource.HEADER
        if fallback is not None:
            rate = rate or fallback.sample_rate_hz
            channels = channels or fallback.channels
        found = AudioFormat(
            sample_format=accept.sample_format,
            sample_rate_hz=rate,
            channels=channels,
            rate_source=source,
            odd_byte=response.odd_byte,
            wav_size=response.wav_size,
        )
        return _for_container(found, accept.sample_format)

    def _make_reader(self, accept: AcceptSpec, found: AudioFormat) -> BodyReader:
        if accept.read is not ReadBody.BODY:
            raise ContractError(f"{self._contract.name}: {accept.read} is not read here")
        return _RawBody(found, self._expected, sniff=accept.sniff, facts=self._facts)

    def _cut_off(self) -> Fail:
        if self._error is not None:
            return self._error.fail()
        if self._reader is None:
            text = "the connection closed before the response"
            return Fail(TransportOutcome.TRUNCATED, "headers", text)
        text = "the connection closed before the body's end"
        return Fail(TransportOutcome.TRUNCATED, "body", text, self._facts)


class _RawBody:
    """A body that is audio: every delivery is a chunk, untouched."""

    __slots__ = ("_expected", "_facts", "_format", "_head", "_is_told", "_length", "_sniff")

    def __init__(
        self,
        found: AudioFormat,
        expected: AudioFormat | None,
        *,
        sniff: Sniff,
        facts: Mapping[str, Any],
    ) -> None:
        self._format = found
        self._expected = expected
        self._sniff = sniff
        self._facts = facts
        self._is_told = False
        self._head = bytearray()
        self._length: WavLength | None = None

    def push(self, data: Buffer) -> list[Action]:
        if not len(data):
            return []
        if not self._is_told and self._sniff is not Sniff.NONE:
            self._head += data
            return [] if len(self._head) < NUM_SNIFF_BYTES else self._open(bytes(self._head))
        return self._audio(data) if self._is_told else self._open(data)

    def finish(self) -> list[Action]:
        actions = [] if self._is_told else self._open(bytes(self._head))
        if any(isinstance(action, Fail) for action in actions):
            return actions
        if self._length is not None and self._length.is_complete is False:
            text = (
                f"the WAV declares {self._length.num_expected_bytes} bytes, "
                f"{self._length.num_bytes} came"
            )
            return [*actions, Fail(TransportOutcome.TRUNCATED, "body", text, self._facts)]
        return [*actions, Done(self._facts)]

    def _open(self, data: Buffer) -> list[Action]:
        """Say the format, now that the first bytes are here, and hand them on."""
        if self._sniff is not Sniff.NONE and len(data):
            seen = sniff_format(bytes(data[:NUM_SNIFF_BYTES]))
            wanted = self._format.sample_format
            if self._sniff is Sniff.CHECK and seen is not wanted:
                shown = one_line(bytes(data[:NUM_SNIFF_BYTES]))
                return [_protocol_error("body", f"begins with {shown!r}, which is not {wanted}")]
            if seen is not None:
                self._format = _for_container(self._format, seen)
        fmt = self._format
        if fmt.sample_format.bytes_per_sample and not (fmt.sample_rate_hz and fmt.channels):
            text = f"headerless {fmt.sample_format} audio without a sample rate or channels"
            return [_protocol_error("headers", text)]
        self._is_told = True
        self._head.clear()
        if fmt.sample_format is SampleFormat.WAV and fmt.wav_size is WavSize.EXACT:
            self._length = WavLength()
        told: Action = Format(fmt, self._expected)
        return [told, *self._audio(data)]

    def _audio(self, data: Buffer) -> list[Action]:
        if self._length is not None:
            self._length.push(data)
        return [Audio(data)] if len(data) else []


@dataclass(slots=True)
class _ErrorBody:
    """Collects what a server says about a failure, up to a limit, and makes one line of it."""

    outcome: TransportOutcome
    said: str
    pointers: tuple[str, ...]
    secrets: tuple[str, ...]
    facts: Mapping[str, Any]
    body: bytearray = dataclasses.field(default_factory=bytearray)

    def push(self, data: Buffer) -> list[Action]:
        room = _MAX_ERROR_BODY_BYTES - len(self.body)
        self.body += data[:room]
        return [self.fail()] if len(data) >= room else []

    def fail(self) -> Fail:
        reason = one_line(error_text(bytes(self.body), self.pointers), secrets=self.secrets)
        text = one_line(f"{self.said}: {reason}") if reason else self.said
        return Fail(self.outcome, "headers", text, self.facts)


def error_text(body: bytes, pointers: tuple[str, ...]) -> str:
    """The human part of an error body: what `pointers` name if it is JSON, else all of it."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    found = find_first(document, pointers)
    return found if isinstance(found, str) else json.dumps(document if found is None else found)


def _number(headers: Headers, name: str | None, low: int, high: int) -> int | None:
    value = headers.get(name) if name else None
    if value is None:
        return None
    word = value.strip()
    if not (word.isascii() and word.isdigit() and len(word) < 10 and low <= int(word) <= high):
        raise ValueError(f"{name}: {one_line(value)!r} is not a number from {low} to {high}")
    return int(word)


def _for_container(found: AudioFormat, sample_format: SampleFormat) -> AudioFormat:
    """`found` as `sample_format`: a container speaks for itself, so the contract's rate goes."""
    if sample_format.bytes_per_sample is not None:
        return dataclasses.replace(found, sample_format=sample_format)
    return dataclasses.replace(
        found,
        sample_format=sample_format,
        sample_rate_hz=None,
        channels=None,
        rate_source=RateSource.CONTAINER,
    )


def _protocol_error(where: str, text: str) -> Fail:
    return Fail(TransportOutcome.PROTOCOL_ERROR, where, text)


def _out_of_order(what: str) -> list[Action]:
    return [_protocol_error("order", f"{what} does not belong here")]
