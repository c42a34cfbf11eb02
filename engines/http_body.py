"""Read the body of an HTTP reply: audio as it is, or the words of an error.

Event streams with audio inside are read by `event_stream`; both are `BodyReader`s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from engines.base import (
    Action,
    Audio,
    AudioFormat,
    Buffer,
    Done,
    Fail,
    Format,
    RateSource,
    SampleFormat,
    WavSize,
)
from engines.http_contract import Sniff
from engines.outcomes import TransportOutcome
from engines.pointer import find_first
from engines.redact import one_line, written
from engines.sniff import NUM_SNIFF_BYTES, WavLength, sniff_format

__all__ = [
    "BodyReader",
    "ErrorBody",
    "RawBody",
    "error_text",
    "for_container",
    "protocol_error",
]

# An error page is read no further than this; it becomes one line anyway.
_MAX_ERROR_BODY_BYTES = 64 * 1024


class BodyReader(Protocol):
    """Turns the bytes of one body into actions; one life, `push`* then `finish`."""

    def push(self, data: Buffer) -> list[Action]:
        """The next bytes."""
        ...

    def finish(self) -> list[Action]:
        """The body ended as its framing said; the last action is `Done` or `Fail`."""
        ...


class RawBody:
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
                return [protocol_error("body", f"begins with {shown!r}, which is not {wanted}")]
            self._format = dataclasses.replace(self._format, sample_format=seen or wanted)
        fmt = self._format = for_container(self._format, self._format.sample_format)
        if fmt.sample_format.bytes_per_sample and not (fmt.sample_rate_hz and fmt.channels):
            text = f"headerless {fmt.sample_format} audio without a sample rate or channels"
            return [protocol_error("headers", text)]
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
class ErrorBody:
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
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")
    found = find_first(document, pointers)
    return found if isinstance(found, str) else written(document if found is None else found)


def for_container(found: AudioFormat, sample_format: SampleFormat) -> AudioFormat:
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


def protocol_error(where: str, text: str) -> Fail:
    """The ending of a request whose server did not keep to its protocol."""
    return Fail(TransportOutcome.PROTOCOL_ERROR, where, text)
