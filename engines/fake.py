"""A scripted engine that implements the real contract: for tests, demos of tests, and dry runs.

A `FakeScript` is the life of one reply on a timeline: which event happens how long after the
request. `FakeAdapter` opens exchanges that read those events like any raw HTTP engine does, and
hands out the timeline, so that a driver with a fake clock can play it, or a fake server can send
it for real.

    script = FakeScript.paced(pcm, chunk_ms=80, first_ms=120)
    adapter = FakeAdapter(lambda request: script)
"""

from __future__ import annotations

import array
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

from engines.base import (
    Action,
    Audio,
    AudioFormat,
    CancelDue,
    Capabilities,
    Close,
    Closed,
    Done,
    EndOfBody,
    EngineInfo,
    Event,
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
    TextAccepted,
    TextDue,
)
from engines.ending import EndsOnce
from engines.outcomes import TransportOutcome

__all__ = ["PCM_24K", "FakeAdapter", "FakeExchange", "FakeScript", "FakeStep", "tone"]

PCM_24K = AudioFormat(SampleFormat.S16LE, 24_000, 1, RateSource.CONTRACT)

_FULL_SCALE = 32_767


@dataclass(frozen=True, slots=True)
class FakeStep:
    """One event, so long after the request was sent."""

    at_ms: float
    event: Event


@dataclass(frozen=True, slots=True)
class FakeScript:
    """The reply to one request. Steps are in order of time."""

    steps: tuple[FakeStep, ...]
    format: AudioFormat = PCM_24K
    expected: AudioFormat | None = PCM_24K

    def __post_init__(self) -> None:
        times = [step.at_ms for step in self.steps]
        if times != sorted(times):
            raise ValueError("steps go backwards in time")

    @classmethod
    def paced(
        cls,
        pcm: bytes,
        *,
        chunk_ms: float,
        first_ms: float = 0.0,
        gap_ms: float | None = None,
        format: AudioFormat = PCM_24K,
    ) -> Self:
        """`pcm` in chunks of `chunk_ms` of audio, the first at `first_ms`, then every `gap_ms`.

        Without `gap_ms` chunks come in real time. Headers come at 0, the end with the last chunk.
        """
        per_sample = format.sample_format.bytes_per_sample
        if per_sample is None or format.sample_rate_hz is None or format.channels is None:
            raise ValueError("a paced script needs headerless audio of a known shape")
        size = max(1, round(format.sample_rate_hz * chunk_ms / 1000)) * per_sample * format.channels
        pieces = [pcm[start : start + size] for start in range(0, len(pcm), size)]
        gap = chunk_ms if gap_ms is None else gap_ms
        times = [first_ms + index * gap for index in range(len(pieces))]
        chunks = [FakeStep(at, StreamBytes(piece)) for at, piece in zip(times, pieces, strict=True)]
        end_ms = times[-1] if times else first_ms
        steps = (FakeStep(0.0, Headers(200)), *chunks, FakeStep(end_ms, EndOfBody()))
        return cls(steps, format=format, expected=format)

    @classmethod
    def failing(cls, status: int, *, at_ms: float = 0.0) -> Self:
        """A reply with this status and no audio."""
        return cls((FakeStep(at_ms, Headers(status)), FakeStep(at_ms, EndOfBody())))

    def cut_off(self, at_ms: float) -> Self:
        """The same reply, but the connection closes at `at_ms`."""
        kept = tuple(step for step in self.steps if step.at_ms < at_ms)
        return replace(self, steps=(*kept, FakeStep(at_ms, Closed())))


class FakeExchange(EndsOnce):
    """Reads a script's events as a raw HTTP engine would."""

    __slots__ = ("_is_open", "request", "script", "target")

    def __init__(self, request: SpeechRequest, script: FakeScript, target: HttpTarget) -> None:
        super().__init__()
        self.request = request
        self.script = script
        self.target = target
        self._is_open = False

    def start(self) -> list[Action]:
        """Send the text as the body; with incremental text, pieces follow as they fall due."""
        if self.request.is_incremental:
            return []
        return [Send(self.request.text.encode(), ends_text=True)]

    def _react(self, event: Event) -> list[Action]:
        match event:
            case Headers(status=200):
                self._is_open = True
                return [Format(self.script.format, self.script.expected)]
            case Headers(status=status):
                refused = status in (429, 503)
                outcome = TransportOutcome.REFUSED if refused else TransportOutcome.HTTP_ERROR
                return [Fail(outcome, "headers", f"HTTP {status}", {"status": status})]
            case StreamBytes(data=data) if self._is_open:
                return [Audio(data)] if len(data) else []
            case EndOfBody() if self._is_open:
                return [Done()]
            case TextDue(seq=seq, text=text, is_last=is_last):
                return [Send(text.encode(), text_seq=seq, ends_text=is_last), TextAccepted(seq)]
            case CancelDue():
                return [Close(), Fail(TransportOutcome.CANCELLED, "body", "cancelled")]
            case Closed():
                return [Fail(TransportOutcome.TRUNCATED, "body", "closed before the end")]
            case _:
                what = f"{type(event).__name__} does not belong here"
                return [Fail(TransportOutcome.PROTOCOL_ERROR, "order", what)]


class FakeAdapter:
    """An engine whose replies are scripts. `script_for` is called once a request."""

    __slots__ = ("_script_for", "base_url", "info", "name")

    def __init__(
        self,
        script_for: Callable[[SpeechRequest], FakeScript],
        *,
        name: str = "fake",
        base_url: str = "http://127.0.0.1:9",
        info: EngineInfo | None = None,
    ) -> None:
        self._script_for = script_for
        self.name = name
        self.base_url = base_url
        self.info = info or EngineInfo(name, is_ready=True, is_match=True)

    @property
    def capabilities(self) -> Capabilities:
        """Everything an adapter may claim."""
        return Capabilities(
            transport="fake", formats=("s16le",), has_incremental_text=True, can_cancel=True
        )

    def open(self, request: SpeechRequest) -> FakeExchange:
        """An exchange over the script for this request."""
        target = HttpTarget(f"{self.base_url}/fake/{request.request_id}")
        return FakeExchange(request, self._script_for(request), target)

    def probe(self) -> Probe:
        """No calls: the answer is `info`."""
        calls: Mapping[str, Any] = MappingProxyType({})
        return Probe(calls=calls, parse=lambda _replies: self.info)


def tone(
    duration_ms: float,
    *,
    frequency_hz: float = 1000.0,
    level_dbfs: float = -20.0,
    sample_rate_hz: int = 24_000,
    lead_ms: float = 0.0,
) -> bytes:
    """A sine as mono s16le after `lead_ms` of zeros; `level_dbfs` is its RMS."""
    peak = min(1.0, math.sqrt(2) * 10 ** (level_dbfs / 20))
    step = 2 * math.pi * frequency_hz / sample_rate_hz
    num_samples = round(duration_ms * sample_rate_hz / 1000)
    samples = array.array("h", [0] * round(lead_ms * sample_rate_hz / 1000))
    samples.extend(round(_FULL_SCALE * peak * math.sin(step * n)) for n in range(num_samples))
    # `array` is in machine order; samples on the wire are little-endian.
    if samples.itemsize > 1 and array.array("H", [1]).tobytes() != b"\x01\x00":
        samples.byteswap()
    return samples.tobytes()
