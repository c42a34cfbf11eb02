"""The sections of a scenario file, each strict, frozen, with its defaults.

Part of the scenario's schema: see `harness.scenario`, which puts them together.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from harness.settings import CancelFrom, ConnectionMode
from harness.text_source import TextMode

__all__ = [
    "ArrivalCount",
    "ArrivalProcess",
    "Arrivals",
    "Authorization",
    "Behaviour",
    "Cancel",
    "Connections",
    "EngineSpec",
    "Limits",
    "NotNegative",
    "Phases",
    "Positive",
    "PromptOrder",
    "Prompts",
    "Recording",
    "Retries",
    "Section",
    "SlowReader",
    "SomeEngines",
    "TextPacing",
    "Timeouts",
    "Tls",
]


def _finite(value: float) -> float:
    if value in (float("inf"), float("-inf")) or value != value:
        raise ValueError(f"{value} is not a finite number")
    return value


def _not_empty(values: tuple[Any, ...]) -> tuple[Any, ...]:
    # Not by min_length: pydantic then calls a list with one bad item empty as well.
    if not values:
        raise ValueError("is empty; give at least one")
    return values


def _without_repeats(values: tuple[Any, ...]) -> tuple[Any, ...]:
    repeated = [value for n, value in enumerate(values) if value in values[:n]]
    if repeated:
        raise ValueError(f"{repeated[0]} is given twice")
    return values


_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#]+")


def _address(value: str) -> str:
    if _ADDRESS.match(value) is None:
        is_bare = re.fullmatch(r"[^\s/:]+(:\d+)?(/\S*)?", value) is not None
        likely = value if is_bare else "127.0.0.1:8000"
        raise ValueError(
            f"{value!r} starts with no http://, ws:// or the like and a host; "
            f"write an address such as http://{likely}"
        )
    return value


Finite = Annotated[float, AfterValidator(_finite)]
Positive = Annotated[Finite, Field(gt=0)]
NotNegative = Annotated[Finite, Field(ge=0)]
Share = Annotated[Finite, Field(ge=0, le=1)]
# Longer than any run, and far below where nanoseconds leave 64 bits.
_MAX_SECONDS = 1e8
Seconds = Annotated[NotNegative, Field(le=_MAX_SECONDS)]
SomeSeconds = Annotated[Positive, Field(le=_MAX_SECONDS)]
SomePositive = Annotated[
    tuple[Positive, ...], AfterValidator(_not_empty), AfterValidator(_without_repeats)
]
SomeSeeds = Annotated[
    # Seeds are stored as 64-bit numbers.
    tuple[Annotated[int, Field(ge=0, lt=2**63)], ...],
    AfterValidator(_not_empty),
    AfterValidator(_without_repeats),
]


class Section(BaseModel):
    """A part of the file: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ArrivalProcess(StrEnum):
    """How arrivals are spread over time."""

    CONSTANT = "constant"
    POISSON = "poisson"
    TRACE = "trace"


class ArrivalCount(StrEnum):
    """How many Poisson arrivals a phase holds: a random number, or rate x seconds, rounded."""

    RANDOM = "random"
    EXPECTED = "expected"


class PromptOrder(StrEnum):
    """In which order prompts are used: each round shuffled by the seed, or as in the file."""

    SHUFFLED = "shuffled"
    SEQUENTIAL = "sequential"


class EngineSpec(Section):
    """One server under test. `name` tells two servers of the same contract apart."""

    contract: Annotated[str, Field(min_length=1)]
    base_url: Annotated[str, AfterValidator(_address)] | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] | None = None

    @property
    def label(self) -> str:
        """What points and reports call it: `name`, else the contract's name.

        A scenario that is loaded has the name of every contract file filled in.
        """
        return self.name or Path(self.contract).stem


SomeEngines = Annotated[tuple[EngineSpec, ...], AfterValidator(_not_empty)]


class Arrivals(Section):
    """The load: every rate with every seed is one point. `trace_file` belongs to `trace` alone.

    With `count: expected` a short point offers the rate that it states, and the rates of a seed
    share gaps and prompts; still Poisson arrivals, given their number.
    """

    process: ArrivalProcess = ArrivalProcess.POISSON
    count: ArrivalCount = ArrivalCount.RANDOM
    rates_rps: SomePositive
    seeds: SomeSeeds = (1,)
    trace_file: str | None = None

    @model_validator(mode="after")
    def _trace_has_a_file(self) -> Arrivals:
        is_trace = self.process is ArrivalProcess.TRACE
        if is_trace and self.trace_file is None:
            raise ValueError("process trace needs trace_file: arrival times in seconds, one a line")
        if not is_trace and self.trace_file is not None:
            raise ValueError(f"trace_file is given, but process is {self.process}, not trace")
        return self

    @model_validator(mode="after")
    def _count_is_of_poisson_arrivals(self) -> Arrivals:
        is_given = self.count is ArrivalCount.EXPECTED
        if is_given and self.process is not ArrivalProcess.POISSON:
            raise ValueError(f"count: expected is for process poisson, found {self.process}")
        return self


class Phases(Section):
    """Seconds of warm-up (stored, excluded), measurement, and waiting for the last replies."""

    warmup_s: Seconds = 5.0
    measure_s: SomeSeconds = 60.0
    drain_s: Seconds = 30.0


class Prompts(Section):
    """What is said: a bundled set or a file, the tags a prompt must carry, the order."""

    set: Annotated[str, Field(min_length=1)] = "voice-agent"
    tags: tuple[str, ...] = ()
    order: PromptOrder = PromptOrder.SHUFFLED


class TextPacing(Section):
    """How text is handed over: whole, or in pieces at a mean rate, as a language model writes.

    `jitter` is the share of each gap that is random (0: even, 1: exponential gaps); `first_ms` the
    wait before the first piece.
    """

    mode: TextMode = TextMode.WHOLE
    rate_per_s: Annotated[Positive, Field(ge=0.001)] | None = None
    jitter: Share = 0.0
    first_ms: Annotated[NotNegative, Field(le=_MAX_SECONDS * 1000)] = 0.0

    @model_validator(mode="after")
    def _pieces_have_a_rate(self) -> TextPacing:
        if self.mode is not TextMode.WHOLE and self.rate_per_s is None:
            raise ValueError(f"mode {self.mode} needs rate_per_s, {self.mode} a second")
        if self.mode is TextMode.WHOLE and self.rate_per_s is not None:
            raise ValueError("rate_per_s is given, but mode is whole")
        return self


class Cancel(Section):
    """A listener who interrupts a share of replies: after a time, or after so many payload bytes.

    With both, whichever comes first.
    """

    share: Share
    after_s: Seconds | None = None
    counted_from: CancelFrom = CancelFrom.FIRST_AUDIO
    after_audio_bytes: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _says_when(self) -> Cancel:
        if self.after_s is None and self.after_audio_bytes is None:
            raise ValueError("cancel needs after_s or after_audio_bytes")
        return self


class SlowReader(Section):
    """A share of requests is read no faster than `bytes_per_s`."""

    share: Share
    bytes_per_s: Annotated[int, Field(gt=0)]


class Behaviour(Section):
    """What the listener does besides listening."""

    cancel: Cancel | None = None
    slow_reader: SlowReader | None = None


class Timeouts(Section):
    """The user's own limits; nothing else ends a request early. Null: no such limit.

    `dead_peer_s` is how long a peer may leave probes unanswered (TCP keep-alive, ping).
    """

    ready_s: SomeSeconds = 30.0
    connect_s: SomeSeconds | None = 10.0
    first_audio_s: SomeSeconds | None = 30.0
    total_s: SomeSeconds | None = 120.0
    dead_peer_s: SomeSeconds | None = 30.0


class Retries(Section):
    """Second attempts after a refusal or a failed connection. None by default: they hide load.

    The wait is the server's Retry-After, at most `max_wait_s`; without one it is `backoff_s`,
    doubled each time.
    """

    max: Annotated[int, Field(ge=0, le=10)] = 0
    backoff_s: Seconds = 1.0
    max_wait_s: SomeSeconds = 30.0


class Limits(Section):
    """Safety caps: requests in flight, and the share of 429 and 5xx at which the run stops.

    `max_error_share` null: no stop on loopback and private hosts, the built-in limit on public.
    """

    max_in_flight: Annotated[int, Field(gt=0)] = 1000
    max_error_share: Annotated[Finite, Field(gt=0, le=1)] | None = None


class Tls(Section):
    """Certificates: whom to trust (null: the system), and what to show when asked.

    `verify: false` trusts anybody; the run record shows it.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    verify: bool = True

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> Tls:
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file is given without cert_file")
        return self


class Connections(Section):
    """Connections: how many are opened ahead (null: as the rate asks), and how long they live."""

    mode: ConnectionMode = ConnectionMode.WARM
    pool: Annotated[int, Field(gt=0)] | None = None
    lifetime_s: SomeSeconds | None = None
    tls: Tls = Tls()


_RECORDING = re.compile(r"all|none|(head|sample):(\d+(\.\d+)?)")


class Recording(Section):
    """What is kept of replies: `audio` all, head:<seconds>, sample:<share> or none; and the text.

    Chunk times and sizes are always kept.
    """

    audio: str = "all"
    text: bool = True

    @model_validator(mode="after")
    def _audio_is_known(self) -> Recording:
        match = _RECORDING.fullmatch(self.audio)
        if match is None:
            raise ValueError(
                f"audio: {self.audio!r} is not one of all, none, head:<seconds>, sample:<share>"
            )
        if match[1] == "sample" and float(match[2]) > 1:
            raise ValueError(f"audio: sample:{match[2]} is more than 1, the share of all requests")
        return self

    def kept_s(self, reply_s: float) -> float:
        """How many seconds of a reply of this length are kept, on average over all replies."""
        kind, _, amount = self.audio.partition(":")
        if kind == "head":
            return min(reply_s, float(amount))
        return reply_s * {"all": 1.0, "none": 0.0}.get(kind, float(amount or 0))


class Authorization(Section):
    """Consent to load a public host: which, who answers for it, and how much at most."""

    host: Annotated[str, Field(min_length=1)]
    contact: Annotated[str, Field(min_length=1)]
    max_rps: Positive
    max_requests: Annotated[int, Field(gt=0)]
    max_characters: Annotated[int, Field(gt=0)] | None = None
    max_cost: Positive | None = None
    price_per_million_characters: NotNegative | None = None

    @model_validator(mode="after")
    def _cost_has_a_price(self) -> Authorization:
        if self.max_cost is not None and self.price_per_million_characters is None:
            raise ValueError("max_cost is given without price_per_million_characters")
        return self
