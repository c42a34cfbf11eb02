"""Read text events with encoded audio inside: server-sent events and newline-delimited JSON.

An event is complete with the byte that ends it, and that byte's stamp is the event's. So a lone
CR ends a line at once and a following LF is swallowed, whichever read brings it. Only CR, LF and
CRLF end lines: the other Unicode line breaks are text, which is why lines are cut as bytes.

Source: the event stream grammar of the HTML standard; engines/README.md, "Events".
"""

from __future__ import annotations

import binascii
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import pybase64

from engines.base import (
    Action,
    Audio,
    AudioFormat,
    Buffer,
    Done,
    Fail,
    Format,
    PayloadEncoding,
    RateSource,
    SampleFormat,
)
from engines.http_body import for_container, protocol_error
from engines.http_contract import EventsSpec, MatchSpec
from engines.outcomes import TransportOutcome
from engines.pointer import find, find_first
from engines.redact import one_line, written
from engines.shape import is_sample_rate

__all__ = [
    "EventBody",
    "LineSplitter",
    "NdjsonParser",
    "SseParser",
    "TooLongError",
    "decode_payload",
]

# Two minutes of 24 kHz s16le as base64. A longer event ends the request.
MAX_EVENT_BYTES = 8 * 1024 * 1024
# What keeping one short line costs beside its bytes; without it a flood of them would get past.
_LINE_OVERHEAD_BYTES = 64


class TooLongError(ValueError):
    """A line or an event passed its limit."""


class LineSplitter:
    """Cuts bytes into lines at CR, LF or CRLF (or at LF alone), keeping what is not yet a line."""

    __slots__ = ("_is_after_cr", "_lf_only", "_max_bytes", "_partial")

    def __init__(self, *, lf_only: bool = False, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._partial = bytearray()
        self._is_after_cr = False
        self._lf_only = lf_only
        self._max_bytes = max_bytes

    def push(self, data: Buffer) -> list[bytes]:
        """The lines that `data` completes, without their ends.

        Raises:
            TooLongError: a line passed the limit.
        """
        fresh = bytes(data)
        if not fresh:
            return []
        if not self._lf_only:
            fresh = self._unify(fresh)
        *lines, rest = fresh.split(b"\n")
        if len(self._partial) + len(lines[0] if lines else rest) > self._max_bytes:
            raise TooLongError(f"a line of more than {self._max_bytes} bytes")
        if lines and self._partial:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
        self._partial += rest
        return lines

    def finish(self) -> bytes:
        """What stands after the last line end; the splitter is then empty."""
        rest = bytes(self._partial)
        self._partial.clear()
        return rest

    def _unify(self, fresh: bytes) -> bytes:
        """The same bytes with LF for every line end; a CR counts at once."""
        if self._is_after_cr and fresh.startswith(b"\n"):
            fresh = fresh[1:]
            if not fresh:
                self._is_after_cr = False
                return b""
        self._is_after_cr = fresh.endswith(b"\r")
        if b"\r" not in fresh:
            return fresh
        return fresh.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class SseParser:
    """Server-sent events: hands out the data of each; names, ids and comments are not needed."""

    __slots__ = ("_data", "_is_first", "_num_bytes", "_splitter")

    def __init__(self) -> None:
        self._splitter = LineSplitter()
        self._data: list[bytes] = []
        self._num_bytes = 0
        self._is_first = True

    def push(self, data: Buffer) -> list[bytes]:
        """The data of every event that `data` completes.

        Raises:
            TooLongError: an event passed the limit.
        """
        return [event for line in self._splitter.push(data) for event in self._take(line)]

    def finish(self) -> list[bytes]:
        """An event that the end of the body completes: its last blank line is often left out."""
        rest = self._splitter.finish()
        return [*(self._take(rest) if rest else []), *self._take(b"")]

    def _take(self, line: bytes) -> list[bytes]:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if not self._data:
                return []
            event = b"\n".join(self._data)
            self._data.clear()
            self._num_bytes = 0
            return [event]
        name, _, value = line.partition(b":")
        if name == b"data":
            self._num_bytes += len(value) + _LINE_OVERHEAD_BYTES
            if self._num_bytes > MAX_EVENT_BYTES:
                raise TooLongError(f"an event of more than {MAX_EVENT_BYTES} bytes")
            self._data.append(value.removeprefix(b" "))
        return []


class NdjsonParser:
    """One JSON document a line; blank lines are nothing."""

    __slots__ = ("_splitter",)

    def __init__(self) -> None:
        self._splitter = LineSplitter(lf_only=True)

    def push(self, data: Buffer) -> list[bytes]:
        """The documents that `data` completes.

        Raises:
            TooLongError: a line passed the limit.
        """
        return [line for line in self._splitter.push(data) if line.strip()]

    def finish(self) -> list[bytes]:
        """A last document without a line end."""
        rest = self._splitter.finish()
        return [rest] if rest.strip() else []


def decode_payload(text: str, encoding: PayloadEncoding) -> bytes:
    """The bytes behind base64 or hex text.

    Raises:
        ValueError: it is neither.
    """
    if encoding is PayloadEncoding.HEX:
        return bytes.fromhex(text)
    try:
        return pybase64.b64decode(text, validate=True)
    except binascii.Error as fault:
        raise ValueError(str(fault)) from None


class EventBody:
    """A body of events, read by a contract's `events`. A `BodyReader`."""

    __slots__ = (
        "_done_texts",
        "_expected",
        "_facts",
        "_format",
        "_is_told",
        "_max_done_bytes",
        "_num_events",
        "_parser",
        "_secrets",
        "_spec",
    )

    def __init__(
        self,
        spec: EventsSpec,
        parser: SseParser | NdjsonParser,
        *,
        found: AudioFormat,
        expected: AudioFormat | None,
        facts: Mapping[str, Any],
        secrets: Sequence[str] = (),
    ) -> None:
        self._spec = spec
        self._parser = parser
        self._format = found
        self._expected = expected
        self._facts = dict(facts)
        self._secrets = secrets
        self._is_told = False
        self._num_events = 0
        self._done_texts = frozenset(text.encode() for text in spec.done_texts)
        # Audio events are long; only a short one is worth comparing.
        self._max_done_bytes = 2 + max((len(text) for text in self._done_texts), default=-2)

    def push(self, data: Buffer) -> list[Action]:
        """Read the events that `data` completes, up to the one that ends the reply."""
        return self._read(lambda: self._parser.push(data))

    def finish(self) -> list[Action]:
        """The framing ended: fine after the end event, or where the protocol has none."""
        actions = self._read(self._parser.finish, is_last=True)
        if actions and isinstance(actions[-1], (Done, Fail)):
            return actions
        if self._spec.needs_done:
            text = f"the body ended after {self._num_events} events without an end event"
            return [*actions, Fail(TransportOutcome.TRUNCATED, "body", text, self._facts)]
        return [*actions, Done(self._facts)]

    def _read(self, take: Callable[[], list[bytes]], *, is_last: bool = False) -> list[Action]:
        actions: list[Action] = []
        try:
            for event in take():
                self._num_events += 1
                actions += self._event(event, is_last=is_last)
                if actions and isinstance(actions[-1], (Done, Fail)):
                    break
        except TooLongError as fault:
            actions.append(protocol_error(f"event {self._num_events + 1}", str(fault)))
        return actions

    def _event(self, raw: bytes, *, is_last: bool) -> list[Action]:
        where = f"event {self._num_events}"
        if len(raw) <= self._max_done_bytes and raw.strip() in self._done_texts:
            return [Done(self._facts)]
        try:
            document = orjson.loads(raw)
        except orjson.JSONDecodeError:
            if is_last:
                text = f"the body ended inside {where}"
                return [Fail(TransportOutcome.TRUNCATED, "body", text, self._facts)]
            return [protocol_error(where, f"not JSON: {one_line(raw[:80])!r}")]
        spec = self._spec
        if _matches(document, spec.errors):
            said = find_first(document, spec.error_text)
            text = said if isinstance(said, str) else written(said or document)
            text = one_line(text, secrets=self._secrets)
            return [Fail(TransportOutcome.SERVER_ERROR, where, text, self._facts)]
        for name, pointer in spec.facts.items():
            if (value := find_first(document, (pointer,))) is not None:
                self._facts[name] = value
        actions = [] if _matches(document, spec.skip) else self._audio(document, where)
        if _matches(document, spec.done) and not any(isinstance(a, Fail) for a in actions):
            actions.append(Done(self._facts))
        return actions

    def _audio(self, document: Any, where: str) -> list[Action]:
        value = find_first(document, self._spec.audio)
        if value is None or value == "":
            return []
        if not isinstance(value, str):
            return [protocol_error(where, f"the audio is {type(value).__name__}, not text")]
        try:
            payload = decode_payload(value, self._spec.encoding)
        except ValueError as fault:
            text = f"the audio is not {self._spec.encoding}: {one_line(str(fault))}"
            return [protocol_error(where, text)]
        told = [] if self._is_told else self._tell(document, where)
        if told and isinstance(told[0], Fail):
            return told
        return [*told, Audio(payload)] if payload else told

    def _tell(self, document: Any, where: str) -> list[Action]:
        """The format, which an event may state."""
        found, spec = self._format, self._spec
        rate = find_first(document, (spec.sample_rate,)) if spec.sample_rate is not None else None
        if rate is not None:
            if not is_sample_rate(rate):
                return [protocol_error(where, f"sample rate {one_line(str(rate)[:60])} is none")]
            found = dataclasses.replace(found, sample_rate_hz=rate, rate_source=RateSource.MESSAGE)
        name = find_first(document, (spec.format,)) if spec.format is not None else None
        if name is not None:
            said = spec.formats.get(name) if isinstance(name, str) else None
            if said is None:
                known = ", ".join(spec.formats)
                shown = one_line(str(name)[:60])
                return [protocol_error(where, f"audio format {shown!r} is not one of {known}")]
            found = dataclasses.replace(found, sample_format=SampleFormat(said))
        found = for_container(found, found.sample_format)
        if found.sample_format.bytes_per_sample and not (found.sample_rate_hz and found.channels):
            text = f"headerless {found.sample_format} audio without a sample rate or channels"
            return [protocol_error(where, text)]
        self._is_told = True
        return [Format(found, self._expected)]


def _matches(document: Any, rules: Sequence[MatchSpec]) -> bool:
    """Whether any rule holds."""
    for rule in rules:
        found = [value for value in find(document, rule.pointer) if value is not None]
        if rule.tests_value:
            if rule.equals in found:
                return True
        elif found and (not rule.tests_difference or rule.differs_from not in found):
            return True
    return False
