"""What a run is to do, as one YAML file: strict, resolved once, stored with the results.

Everything that shapes the load is here and nothing that judges it: thresholds live in
`scenarios/gates/`. Unknown keys are errors; each mistake is one line with its path.

Schema history
    1: first version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from harness.config_errors import read_yaml, validate
from harness.errors import ScenarioError

__all__ = [
    "ArrivalProcess",
    "Arrivals",
    "Authorization",
    "Behaviour",
    "Cancel",
    "CancelFrom",
    "ConnectionMode",
    "Connections",
    "EngineSpec",
    "Limits",
    "Phases",
    "Point",
    "PromptOrder",
    "Prompts",
    "Recording",
    "Retries",
    "Scenario",
    "SlowReader",
    "TextMode",
    "TextPacing",
    "Timeouts",
    "Tls",
    "load_scenario",
    "parse_scenario",
]

SCENARIO_SCHEMA = 1


def _finite(value: float) -> float:
    if value in (float("inf"), float("-inf")) or value != value:
        raise ValueError(f"{value} is not a finite number")
    return value


def _no_repeats(values: tuple[Any, ...]) -> tuple[Any, ...]:
    repeated = [value for n, value in enumerate(values) if value in values[:n]]
    if repeated:
        raise ValueError(f"{repeated[0]} is given twice")
    return values


Finite = Annotated[float, AfterValidator(_finite)]
Positive = Annotated[Finite, Field(gt=0)]
NotNegative = Annotated[Finite, Field(ge=0)]
Share = Annotated[Finite, Field(ge=0, le=1)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ArrivalProcess(StrEnum):
    """How arrivals are spread over time."""

    CONSTANT = "constant"
    POISSON = "poisson"
    TRACE = "trace"


class PromptOrder(StrEnum):
    """In which order prompts are used: each round shuffled by the seed, or as in the file."""

    SHUFFLED = "shuffled"
    SEQUENTIAL = "sequential"


class TextMode(StrEnum):
    """Whether a request's text is there at once or arrives piece by piece."""

    WHOLE = "whole"
    WORDS = "words"
    TOKENS = "tokens"


class ConnectionMode(StrEnum):
    """Keep-alive connections opened before the run, or a new one for each request."""

    WARM = "warm"
    COLD = "cold"


class CancelFrom(StrEnum):
    """The moment from which the wait before a cancel is counted."""

    DISPATCH = "dispatch"
    FIRST_AUDIO = "first_audio"


class EngineSpec(_Model):
    """One server under test. `name` tells two servers of the same contract apart."""

    contract: Annotated[str, Field(min_length=1)]
    base_url: Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://[^\s/?#]+")] | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] | None = None

    @property
    def label(self) -> str:
        """What points and reports call it: `name`, else the contract's name or file stem."""
        return self.name or Path(self.contract).stem


class Arrivals(_Model):
    """The load: every rate with every seed is one point. `trace_file` belongs to `trace` alone."""

    process: ArrivalProcess = ArrivalProcess.POISSON
    rates_rps: Annotated[tuple[Positive, ...], Field(min_length=1), AfterValidator(_no_repeats)]
    seeds: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), AfterValidator(_no_repeats)
    ] = (1,)
    trace_file: str | None = None

    @model_validator(mode="after")
    def _trace_has_a_file(self) -> Arrivals:
        is_trace = self.process is ArrivalProcess.TRACE
        if is_trace and self.trace_file is None:
            raise ValueError("process trace needs trace_file: arrival times in seconds, one a line")
        if not is_trace and self.trace_file is not None:
            raise ValueError(f"trace_file is given, but process is {self.process}, not trace")
        return self


class Phases(_Model):
    """Seconds of warm-up (stored, excluded), measurement, and waiting for the last replies."""

    warmup_s: NotNegative = 5.0
    measure_s: Positive = 60.0
    drain_s: NotNegative = 30.0


class Prompts(_Model):
    """What is said: a bundled set or a file, the tags a prompt must carry, the order."""

    set: Annotated[str, Field(min_length=1)] = "voice-agent"
    tags: tuple[str, ...] = ()
    order: PromptOrder = PromptOrder.SHUFFLED


class TextPacing(_Model):
    """How text is handed over: whole, or in pieces at a mean rate, as a language model writes.

    `jitter` is the share of each gap that is random (0: even, 1: exponential gaps); `first_ms` the
    wait before the first piece.
    """

    mode: TextMode = TextMode.WHOLE
    rate_per_s: Positive | None = None
    jitter: Share = 0.0
    first_ms: NotNegative = 0.0

    @model_validator(mode="after")
    def _pieces_have_a_rate(self) -> TextPacing:
        if self.mode is not TextMode.WHOLE and self.rate_per_s is None:
            raise ValueError(f"mode {self.mode} needs rate_per_s, {self.mode} a second")
        if self.mode is TextMode.WHOLE and self.rate_per_s is not None:
            raise ValueError("rate_per_s is given, but mode is whole")
        return self


class Cancel(_Model):
    """A share of requests is given up `after_ms`, as when the listener interrupts."""

    share: Share
    after_ms: NotNegative
    counted_from: CancelFrom = CancelFrom.FIRST_AUDIO


class SlowReader(_Model):
    """A share of requests is read no faster than `bytes_per_s`."""

    share: Share
    bytes_per_s: Annotated[int, Field(gt=0)]


class Behaviour(_Model):
    """What the listener does besides listening."""

    cancel: Cancel | None = None
    slow_reader: SlowReader | None = None


class Timeouts(_Model):
    """The user's own limits; nothing else ends a request early."""

    ready_s: Positive = 60.0
    connect_s: Positive = 10.0
    first_audio_s: Positive = 30.0
    total_s: Positive = 120.0


class Retries(_Model):
    """Second attempts after a refusal or a failed connection. None by default: they hide load."""

    max: Annotated[int, Field(ge=0, le=10)] = 0


class Limits(_Model):
    """Safety caps: requests in flight, and the share of 429 and 5xx at which the run stops.

    `max_error_share` null: no stop on loopback and private hosts, the built-in limit on public.
    """

    max_in_flight: Annotated[int, Field(gt=0)] = 512
    max_error_share: Annotated[Finite, Field(gt=0, le=1)] | None = None


class Tls(_Model):
    """Certificates: whom to trust (null: the system), and what to show when asked."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> Tls:
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file is given without cert_file")
        return self


class Connections(_Model):
    """Connections: how many are opened ahead (null: as the rate asks), and how long they live."""

    mode: ConnectionMode = ConnectionMode.WARM
    pool: Annotated[int, Field(gt=0)] | None = None
    lifetime_s: Positive | None = None
    tls: Tls = Tls()


_RECORDING = re.compile(r"all|none|(head|sample):(\d+(\.\d+)?)")


class Recording(_Model):
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


class Authorization(_Model):
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


@dataclass(frozen=True, slots=True)
class Point:
    """One engine at one rate with one seed."""

    point_id: str
    engine: str
    rate_rps: float
    seed: int


class Scenario(_Model):
    """A whole run. Build it with `load_scenario`."""

    schema_version: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    engines: Annotated[tuple[EngineSpec, ...], Field(min_length=1)]
    arrivals: Arrivals
    phases: Phases = Phases()
    prompts: Prompts = Prompts()
    text_pacing: TextPacing = TextPacing()
    behaviour: Behaviour = Behaviour()
    timeouts: Timeouts = Timeouts()
    retries: Retries = Retries()
    limits: Limits = Limits()
    connections: Connections = Connections()
    recording: Recording = Recording()
    authorization: Authorization | None = None

    @model_validator(mode="after")
    def _engines_can_be_told_apart(self) -> Scenario:
        labels = [engine.label for engine in self.engines]
        for n, label in enumerate(labels):
            if label in labels[:n]:
                raise ValueError(f"engines[{n}]: a second {label!r}; give each its own `name`")
        return self

    def engine(self, label: str) -> EngineSpec:
        """The engine of that label; KeyError where there is none."""
        for engine in self.engines:
            if engine.label == label:
                return engine
        raise KeyError(label)

    def points(self) -> tuple[Point, ...]:
        """Every engine x rate x seed, in the order in which they are run.

        Engines take turns at each rate, so that a slow drift of the machine meets them alike.
        """
        return tuple(
            Point(f"{engine.label}-r{rate_rps:g}-s{seed}", engine.label, rate_rps, seed)
            for seed in self.arrivals.seeds
            for rate_rps in self.arrivals.rates_rps
            for engine in self.engines
        )

    def resolved(self) -> dict[str, Any]:
        """Plain JSON values with every default filled in, under the keys of the file."""
        return self.model_dump(mode="json", by_alias=True)


def load_scenario(path: str | Path, *, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Read a scenario file, with values from the command line laid over it.

    Args:
        path: the YAML file. Paths inside it are relative to it.
        overrides: dotted key -> value, for example `{"phases.measure_s": 5.0}`.

    Raises:
        ScenarioError: one line with file, path, what was found and what was expected.
    """
    path = Path(path)
    data = read_yaml(path, error=ScenarioError)
    return parse_scenario(data, where=str(path), base_dir=path.parent, overrides=overrides)


def parse_scenario(
    data: object,
    *,
    where: str,
    base_dir: Path,
    overrides: Mapping[str, Any] | None = None,
) -> Scenario:
    """As `load_scenario`, from data that is already read.

    Raises:
        ScenarioError: as there.
    """
    if isinstance(data, dict):
        data = _with_absolute_paths(data, base_dir)
        for key, value in (overrides or {}).items():
            data = _overlaid(data, key.split("."), value, f"{where}: {key}")
        _refuse_other_schema(data, where)
    return validate(Scenario, data, where=where, error=ScenarioError)


def _refuse_other_schema(data: Mapping[str, Any], where: str) -> None:
    found = data.get("schema")
    if isinstance(found, int) and not isinstance(found, bool) and found > SCENARIO_SCHEMA:
        raise ScenarioError(
            f"{where}: schema: {found} is newer than {SCENARIO_SCHEMA}, the newest this version "
            "of earwitness can read; install a newer earwitness"
        )


def _overlaid(
    data: Mapping[str, Any], keys: list[str], value: object, where: str
) -> dict[str, Any]:
    """A copy of `data` with one value replaced, deep down; the original is not touched."""
    copy = dict(data)
    if len(keys) == 1:
        copy[keys[0]] = value
        return copy
    inner = copy.get(keys[0])
    if inner is not None and not isinstance(inner, Mapping):
        raise ScenarioError(f"{where}: {keys[0]} is not a mapping, so {keys[1]} cannot be set")
    copy[keys[0]] = _overlaid(inner or {}, keys[1:], value, where)
    return copy


def _with_absolute_paths(data: Mapping[str, Any], base_dir: Path) -> dict[str, Any]:
    """Paths in the file, made independent of where the command runs."""
    copy = dict(data)
    for section, keys in _PATH_KEYS.items():
        copy[section] = _absolute_in(copy.get(section), keys, base_dir)
        if copy[section] is None:
            del copy[section]
    engines = copy.get("engines")
    if isinstance(engines, list):
        copy["engines"] = [_absolute_in(engine, ("contract",), base_dir) for engine in engines]
    connections = copy.get("connections")
    if isinstance(connections, dict) and isinstance(connections.get("tls"), dict):
        tls = _absolute_in(connections["tls"], ("ca_file", "cert_file", "key_file"), base_dir)
        copy["connections"] = {**connections, "tls": tls}
    return copy


_PATH_KEYS: Mapping[str, tuple[str, ...]] = {"arrivals": ("trace_file",), "prompts": ("set",)}


def _absolute_in(section: object, keys: tuple[str, ...], base_dir: Path) -> object:
    if not isinstance(section, dict):
        return section
    copy = dict(section)
    for key in keys:
        value = copy.get(key)
        # Only what looks like a file: a bare word is the name of a bundled set or contract.
        if isinstance(value, str) and (Path(value).suffix or "/" in value):
            copy[key] = str((base_dir / Path(value).expanduser()).resolve())
    return copy
