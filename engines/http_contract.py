"""The schema of `contracts/*.yaml`: everything one HTTP engine does its own way, as data.

A contract names the exact keys of the request, the content types it accepts and how each is read,
what it promised to send, how errors look, and how to ask who is there. Nothing is guessed: a key
that is not listed is not sent, a content type that is not listed is an error.

Source: engines/README.md, "A contract, key by key".
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engines.base import OddByte, PayloadEncoding, SampleFormat, WavSize
from engines.config_errors import describe, hint, read_yaml
from engines.errors import ContractError, UnknownEngineError
from engines.pointer import is_pointer
from engines.shape import MAX_CHANNELS, MAX_RATE_HZ, MIN_RATE_HZ

__all__ = [
    "AcceptSpec",
    "AuthSpec",
    "CredentialSpec",
    "EventsSpec",
    "ExpectBySpec",
    "FieldSpec",
    "FormatSpec",
    "HttpContract",
    "IdentitySpec",
    "LookupSpec",
    "MatchSpec",
    "ProbeSpec",
    "ReadBody",
    "ReadySpec",
    "RequestSpec",
    "ResponseSpec",
    "Sniff",
    "ValueType",
    "builtin_contracts",
    "is_contract_file",
    "load_contract",
]

CONTRACTS_FOLDER = Path(__file__).parent / "contracts"

Strings = Annotated[tuple[str, ...], Field(strict=False)]
Statuses = Annotated[tuple[int, ...], Field(strict=False)]
Values = Annotated[tuple[Any, ...], Field(strict=False)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True)


class ValueType(StrEnum):
    """The type a parameter must have in the scenario; nothing is converted."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"


class Sniff(StrEnum):
    """What the first bytes of a body may say against its content type."""

    NONE = "none"  # the content type is trusted
    CHECK = "check"  # they must be those of the format, else it is an error
    DETECT = "detect"  # a known beginning decides; without one the format stands


class ReadBody(StrEnum):
    """How audio lies in a body."""

    BODY = "body"  # the body is the audio
    SSE = "sse"
    NDJSON = "ndjson"


class FieldSpec(_Model):
    """One value of the request: where it comes from and what it may be.

    With `value` it is a constant. A field without a value and without a default is left out.
    """

    source: Literal["text", "voice", "language", "param"] = Field(
        default="param", validation_alias="from"
    )
    type: Annotated[ValueType, Field(strict=False)] = ValueType.STRING
    value: Any = None
    default: Any = None
    param: str | None = None
    one_of: Values = ()
    min: float | None = None
    max: float | None = None
    required: bool = False
    note: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether the contract itself gives the value."""
        return "value" in self.model_fields_set

    @model_validator(mode="after")
    def _constants_take_nothing_else(self) -> Self:
        if self.is_constant and self.model_fields_set - {"value", "note"}:
            raise ValueError("a constant takes `value` (and `note`) alone")
        if self.required and self.default is not None:
            raise ValueError("a required field has no default")
        return self


class CredentialSpec(_Model):
    """One request header whose value comes from the environment."""

    env: str = Field(pattern=r"^[A-Z][A-Z0-9_]*$")
    prefix: str = ""


class AuthSpec(_Model):
    """Headers with keys, and the hosts they may be sent to."""

    hosts: Strings = Field(min_length=1)
    headers: dict[str, CredentialSpec] = Field(min_length=1)
    required: bool = True


class RequestSpec(_Model):
    """How a request is written. `settings` are parameters that shape it without being sent.

    `id_header` carries our id of the request, so that its record and the server's log can be laid
    side by side; only for servers that take one.
    """

    method: Literal["POST", "GET", "PUT"] = "POST"
    path: str = Field(pattern=r"^[/{]")
    headers: dict[str, str] = {}
    query: dict[str, FieldSpec] = {}
    encoding: Literal["json", "form", "none"] = "json"
    body: dict[str, FieldSpec] = {}
    settings: dict[str, FieldSpec] = {}
    max_text_chars: int | None = Field(None, gt=0)
    id_header: str | None = Field(None, pattern=r"^[A-Za-z0-9-]+$")

    @model_validator(mode="after")
    def _text_is_sent_once(self) -> Self:
        sent = [f for f in (*self.query.values(), *self.body.values()) if f.source == "text"]
        if len(sent) != 1 or any(f.is_constant for f in sent):
            raise ValueError("exactly one field of body or query must have `from: text`")
        if any(field.is_constant or field.source == "text" for field in self.settings.values()):
            raise ValueError("settings are parameters: neither constants nor the text")
        if self.encoding == "none" and self.body:
            raise ValueError("`encoding: none` sends no body, so it takes no body fields")
        return self

    @model_validator(mode="after")
    def _path_is_filled(self) -> Self:
        for name in re.findall(r"{(\w*)}", self.path):
            if name not in self.settings:
                raise ValueError(f"path names {{{name}}}, which is not among the settings")
        return self


class FormatSpec(_Model):
    """What the contract promises about the audio. A rate may be a parameter's value."""

    sample_format: Annotated[SampleFormat, Field(strict=False)]
    sample_rate_hz: int | None = Field(None, ge=MIN_RATE_HZ, le=MAX_RATE_HZ)
    sample_rate_param: str | None = None
    channels: int | None = Field(None, ge=1, le=MAX_CHANNELS)

    @model_validator(mode="after")
    def _raw_has_a_shape(self) -> Self:
        has_rate = self.sample_rate_hz is not None or self.sample_rate_param is not None
        if self.sample_format.bytes_per_sample and not (has_rate and self.channels):
            raise ValueError("headerless audio needs a sample rate and a number of channels")
        return self


class ExpectBySpec(_Model):
    """The promise, chosen by the value of one parameter."""

    param: str
    formats: dict[str, FormatSpec] = Field(min_length=1)


class AcceptSpec(_Model):
    """How a body of one content type is read.

    `sample_format` is that of the audio inside; left out where the type does not tell it: then it
    is the promised one.
    """

    sample_format: Annotated[SampleFormat, Field(strict=False)] | None = None
    read: Annotated[ReadBody, Field(strict=False)] = ReadBody.BODY
    sniff: Annotated[Sniff, Field(strict=False)] = Sniff.NONE

    @model_validator(mode="after")
    def _events_are_not_sniffed(self) -> Self:
        if self.read is not ReadBody.BODY and self.sniff is not Sniff.NONE:
            raise ValueError("events are not sniffed")
        return self


class MatchSpec(_Model):
    """A test on the JSON of an event: there and not null, equal to a value, or other than one."""

    pointer: str
    equals: Any = None
    differs_from: Any = None

    @property
    def tests_value(self) -> bool:
        """Whether the value must be `equals`."""
        return "equals" in self.model_fields_set

    @property
    def tests_difference(self) -> bool:
        """Whether the value must be there and not `differs_from`."""
        return "differs_from" in self.model_fields_set

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        _require_pointers((self.pointer,))
        if self.tests_value and self.tests_difference:
            raise ValueError("give `equals` or `differs_from`, not both")
        return self


Matches = Annotated[tuple[MatchSpec, ...], Field(strict=False)]


class EventsSpec(_Model):
    """Where audio, end and errors stand in the events of a body."""

    audio: Strings = Field(min_length=1)
    encoding: Annotated[PayloadEncoding, Field(strict=False)] = PayloadEncoding.BASE64
    skip: Matches = ()
    done: Matches = ()
    done_texts: Strings = ()
    needs_done: bool = True
    errors: Matches = ()
    error_text: Strings = ("/error/message", "/message", "/error")
    sample_rate: str | None = None
    format: str | None = None
    formats: dict[str, Annotated[SampleFormat, Field(strict=False)]] = {}
    facts: dict[str, str] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        single = tuple(path for path in (self.sample_rate, self.format) if path is not None)
        _require_pointers((*self.audio, *self.error_text, *single, *self.facts.values()))
        if self.needs_done and not (self.done or self.done_texts):
            raise ValueError("an end event is needed, but neither `done` nor `done_texts` says one")
        if self.encoding is PayloadEncoding.RAW:
            raise ValueError("audio inside text is base64 or hex")
        if (self.format is None) != (not self.formats):
            raise ValueError("`format` says where the name stands, `formats` what it means")
        return self


class ResponseSpec(_Model):
    """How a reply is read.

    `expect` and `expect_by` are promises that the audio is held to. `assume` only fills in what
    headerless audio does not say.
    """

    ok: Statuses = (200,)
    accept: dict[str, AcceptSpec] = Field(min_length=1)
    rate_header: str | None = None
    channels_header: str | None = None
    expect: FormatSpec | None = None
    expect_by: ExpectBySpec | None = None
    assume: FormatSpec | None = None
    odd_byte: Annotated[OddByte, Field(strict=False)] = OddByte.REPORT
    wav_size: Annotated[WavSize, Field(strict=False)] = WavSize.IGNORED
    refused: Statuses = (429, 503)
    errors: Strings = ("/error/message", "/detail/message", "/detail", "/message", "/error")
    facts: dict[str, str] = {}
    events: EventsSpec | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        reads_events = any(accept.read is not ReadBody.BODY for accept in self.accept.values())
        if reads_events != (self.events is not None):
            raise ValueError("`events` goes with a type that is read as sse or ndjson")
        has_promise = self.expect or self.expect_by or self.assume
        if not has_promise and any(a.sample_format is None for a in self.accept.values()):
            raise ValueError("accept: a type without `sample_format` needs a promise to go by")
        if sum(spec is not None for spec in (self.expect, self.expect_by, self.assume)) > 1:
            raise ValueError("give one of `expect`, `expect_by` and `assume`")
        for kind in self.accept:
            if not re.fullmatch(r"[a-z0-9.+-]+/[a-z0-9.+*-]+", kind):
                raise ValueError(f"accept: {kind!r} is not a lower-case type/subtype")
        _require_pointers(self.errors)
        return self


class LookupSpec(_Model):
    """Where one fact about the server stands in the reply to a call."""

    call: str
    pointer: str | None = None
    header: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.pointer is None) == (self.header is None):
            raise ValueError("give either `pointer` or `header`")
        _require_pointers(() if self.pointer is None else (self.pointer,))
        return self


class ReadySpec(_Model):
    """When the server is ready: the call's status is 2xx and, if given, the value is as said."""

    call: str
    pointer: str | None = None
    equals: Any = None


class IdentitySpec(_Model):
    """Something that only the right server says."""

    call: str
    pointer: str
    equals: Any


class ProbeSpec(_Model):
    """Calls that tell who is there; paths are below the base URL.

    `metrics` is a page in Prometheus' text format that is stored beside a run.
    """

    calls: dict[str, str] = {}
    metrics: str | None = None
    ready: ReadySpec | None = None
    identity: Annotated[tuple[IdentitySpec, ...], Field(strict=False)] = ()
    server_name: LookupSpec | None = None
    server_version: LookupSpec | None = None
    models: LookupSpec | None = None
    voices: LookupSpec | None = None

    @model_validator(mode="after")
    def _calls_exist(self) -> Self:
        single = (self.ready, self.server_name, self.server_version, self.models, self.voices)
        for rule in (*(rule for rule in single if rule), *self.identity):
            if rule.call not in self.calls:
                raise ValueError(
                    f"{rule.call!r} is not among the calls{hint(rule.call, self.calls)}"
                )
            if rule.pointer is not None:
                _require_pointers((rule.pointer,))
        return self


class HttpContract(_Model):
    """One engine over HTTP.

    `stops_on_disconnect`: whether the server gives up work for a client that went away (None: not
    known). `seen_live`: version and date of the live server it was checked against, or null.
    """

    schema_version: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    title: str
    source: str
    seen_live: str | None = None
    note: str = ""
    base_url: str | None = None
    auth: AuthSpec | None = None
    request: RequestSpec
    response: ResponseSpec
    probe: ProbeSpec = ProbeSpec()
    is_streaming: bool = True
    stops_on_disconnect: bool | None = None

    def parameters(self) -> dict[str, FieldSpec]:
        """Every parameter a scenario may set, by its name there."""
        found: dict[str, FieldSpec] = {}
        request = self.request
        for place in (request.body, request.query, request.settings):
            for key, field in place.items():
                if not field.is_constant and field.source != "text":
                    found[field.param or _parameter_name(key, field)] = field
        return found

    @model_validator(mode="after")
    def _promises_can_be_looked_up(self) -> Self:
        known = self.parameters()
        by, response = self.response.expect_by, self.response
        if by and by.param not in known:
            raise ValueError(f"response.expect_by.param: {by.param!r} is not a parameter")
        if by and known[by.param].default not in (None, *by.formats):
            raise ValueError("response.expect_by: the default value has no format")
        single = tuple(spec for spec in (response.expect, response.assume) if spec)
        for promise in (*single, *(by.formats.values() if by else ())):
            name = promise.sample_rate_param
            if name is not None and name not in known:
                raise ValueError(f"sample_rate_param: {name!r} is not a parameter")
        return self


def _parameter_name(key: str, field: FieldSpec) -> str:
    # `voice` and `language` keep their name whatever the server calls them.
    return field.source if field.source in ("voice", "language") else key.rpartition("/")[2]


def _require_pointers(pointers: tuple[str, ...]) -> None:
    for pointer in pointers:
        if not is_pointer(pointer):
            raise ValueError(f"{pointer!r} is not a JSON pointer: it must start with '/'")


def builtin_contracts() -> tuple[str, ...]:
    """Names of the contracts in the package, sorted."""
    return tuple(sorted(path.stem for path in CONTRACTS_FOLDER.glob("*.yaml")))


def is_contract_file(name: str) -> bool:
    """Whether an engine is named by a file rather than by its name."""
    return name.endswith((".yaml", ".yml")) or "/" in name


def load_contract(name: str | Path, *, allow_env: bool = False) -> HttpContract:
    """Read and check one contract.

    Args:
        name: of a contract in the package, or the path of a YAML file.
        allow_env: whether a contract from outside the package may name environment variables: it
            says where their values are sent.

    Raises:
        UnknownEngineError: there is neither such a contract nor such a file.
        ContractError: the file is wrong; one line.
    """
    is_path = isinstance(name, Path) or is_contract_file(name)
    path = Path(name) if is_path else CONTRACTS_FOLDER / f"{name}.yaml"
    if not is_path and not path.is_file():
        known = builtin_contracts()
        raise UnknownEngineError(
            f"no contract {str(name)!r}{hint(name, known)}; known: {', '.join(known)}"
        )
    raw = read_yaml(path, error=ContractError)
    try:
        contract = HttpContract.model_validate(raw)
    except ValidationError as error:
        raise ContractError(describe(error, HttpContract, where=str(path))) from None
    is_ours = path.resolve().parent == CONTRACTS_FOLDER.resolve()
    if is_ours and contract.name != path.stem:
        raise ContractError(f"{path}: name: {contract.name!r} is not the file's name")
    if contract.auth and not is_ours and not allow_env:
        raise ContractError(
            f"{path}: auth: a contract from outside the package may not read environment "
            "variables; allow it with --allow-contract-env once you trust the file"
        )
    return contract
