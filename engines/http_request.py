"""Write one HTTP request as its contract says: parameters checked, keys exact, secrets apart."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from engines.base import AudioFormat, HttpTarget, RateSource, SpeechRequest
from engines.config_errors import hint, show
from engines.errors import ContractError
from engines.http_contract import FieldSpec, FormatSpec, HttpContract, ValueType

__all__ = [
    "USER_AGENT",
    "Credentials",
    "assumed_format",
    "build_body",
    "build_target",
    "check_base_url",
    "check_params",
    "expected_format",
    "is_loopback",
    "resolve_credentials",
    "resolve_values",
]

USER_AGENT = "earwitness (speech latency benchmark)"

_IS_OF_TYPE: Mapping[ValueType, Callable[[Any], bool]] = {
    ValueType.STRING: lambda value: isinstance(value, str),
    ValueType.INTEGER: lambda value: isinstance(value, int) and not isinstance(value, bool),
    ValueType.NUMBER: lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    ),
    ValueType.BOOLEAN: lambda value: isinstance(value, bool),
    ValueType.LIST: lambda value: isinstance(value, (list, tuple)),
    ValueType.OBJECT: lambda value: isinstance(value, Mapping),
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """Headers that hold keys, and their bare values, so that neither is ever printed."""

    headers: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()


def check_base_url(url: str, *, contract: str) -> str:
    """The URL without a trailing slash.

    Raises:
        ContractError: not an absolute http(s) URL, or one with a user, a query or a fragment.
    """
    parts = urlsplit(url)
    try:
        has_place = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_place = False
    if not has_place:
        raise ContractError(
            f"{contract}: base_url: {show(url)} is not an http or https address such as "
            "http://127.0.0.1:8000"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ContractError(
            f"{contract}: base_url: must hold no user, query or fragment (keys come from the "
            "environment)"
        )
    return url.rstrip("/")


def check_params(contract: HttpContract, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a scenario, each known to the contract and of its type and range.

    Raises:
        ContractError: one line that names the parameter, with the closest known name.
    """
    known = contract.parameters()
    for name, value in params.items():
        at = f"{contract.name}: params.{name}"
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ContractError(f"{at}: unknown parameter{hint(name, known)}; known: {listed}")
        if value is not None:
            _check_value(known[name], value, at)
    return dict(params)


def _check_value(field: FieldSpec, value: Any, at: str) -> None:
    if not _IS_OF_TYPE[field.type](value):
        raise ContractError(f"{at}: {show(value)} is not of type {field.type}")
    if field.one_of and value not in field.one_of:
        options = [str(option) for option in field.one_of]
        raise ContractError(
            f"{at}: {show(value)} is not one of {', '.join(options)}{hint(value, options)}"
        )
    if field.min is not None and value < field.min:
        raise ContractError(f"{at}: {show(value)} is below {field.min:g}")
    if field.max is not None and value > field.max:
        raise ContractError(f"{at}: {show(value)} is above {field.max:g}")


def resolve_values(
    contract: HttpContract, params: Mapping[str, Any], request: SpeechRequest
) -> dict[str, Any]:
    """The value of every parameter for one request; None where it is left out.

    The request's own voice and language win over parameters of that name, those over defaults.

    Raises:
        ContractError: a required parameter has no value.
    """
    values: dict[str, Any] = {}
    for name, field in contract.parameters().items():
        own = {"voice": request.voice, "language": request.language}.get(field.source)
        value = own if own is not None else params.get(name)
        values[name] = field.default if value is None else value
        if field.required and values[name] is None:
            raise ContractError(f"{contract.name}: params.{name}: is required and has no default")
    for own_name in ("voice", "language"):
        if getattr(request, own_name) is not None and own_name not in values:
            raise ContractError(f"{contract.name}: this engine takes no {own_name}")
    return values


def expected_format(contract: HttpContract, values: Mapping[str, Any]) -> AudioFormat | None:
    """What the contract promises for these parameters, or None where it promises nothing.

    Raises:
        ContractError: the promise depends on a parameter and has no entry for its value.
    """
    response = contract.response
    spec: FormatSpec | None = response.expect
    if response.expect_by:
        value = values[response.expect_by.param]
        if value is None:
            return None
        spec = response.expect_by.formats.get(str(value))
        if spec is None:
            options = tuple(response.expect_by.formats)
            raise ContractError(
                f"{contract.name}: params.{response.expect_by.param}: {show(value)} is not one of "
                f"{', '.join(options)}{hint(value, options)}"
            )
    return None if spec is None else _as_format(contract, spec, values)


def assumed_format(contract: HttpContract, values: Mapping[str, Any]) -> AudioFormat | None:
    """What to take headerless audio for where the contract promises nothing."""
    spec = contract.response.assume
    return None if spec is None else _as_format(contract, spec, values)


def _as_format(contract: HttpContract, spec: FormatSpec, values: Mapping[str, Any]) -> AudioFormat:
    rate = spec.sample_rate_hz
    if spec.sample_rate_param is not None and values[spec.sample_rate_param] is not None:
        rate = int(values[spec.sample_rate_param])
    return AudioFormat(
        sample_format=spec.sample_format,
        sample_rate_hz=rate,
        channels=spec.channels,
        rate_source=RateSource.CONTRACT,
        odd_byte=contract.response.odd_byte,
        wav_size=contract.response.wav_size,
    )


def build_target(
    contract: HttpContract,
    base_url: str,
    *,
    values: Mapping[str, Any],
    text: str,
    credentials: Credentials,
) -> HttpTarget:
    """Address and headers of one request."""
    request = contract.request
    path = re.sub(r"{(\w+)}", lambda name: _path_part(contract, values, name[1]), request.path)
    query = [
        (key, _plain(value))
        for key, field in request.query.items()
        if (value := _field_value(key, field, values, text)) is not None
    ]
    url = f"{base_url}{path}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
    headers = [("User-Agent", USER_AGENT), ("Accept-Encoding", "identity")]
    headers += list(request.headers.items())
    given = {name.lower() for name in request.headers}
    if request.encoding != "none" and "content-type" not in given:
        is_json = request.encoding == "json"
        headers.append(
            ("Content-Type", "application/json" if is_json else "application/x-www-form-urlencoded")
        )
    return HttpTarget(
        url=url,
        method=request.method,
        headers=(*headers, *credentials.headers),
        secret_headers=frozenset(name for name, _ in credentials.headers),
    )


def _path_part(contract: HttpContract, values: Mapping[str, Any], name: str) -> str:
    field = contract.request.settings[name]
    value = values.get(field.param or (field.source if field.source != "param" else name))
    if value is None:
        raise ContractError(f"{contract.name}: params.{name}: is part of the path and has no value")
    # A setting that stands for the whole path keeps its slashes.
    is_whole = contract.request.path == f"{{{name}}}"
    return quote(_plain(value), safe="/" if is_whole else "")


def build_body(contract: HttpContract, *, values: Mapping[str, Any], text: str) -> bytes:
    """The request body, with exactly the contract's keys that have a value.

    Raises:
        ContractError: the text or a value cannot be written as UTF-8.
    """
    request = contract.request
    document: dict[str, Any] = {}
    for key, field in request.body.items():
        value = _field_value(key, field, values, text)
        if value is None:
            continue
        if key == "*":
            document.update(value)
        else:
            _put(document, key, value)
    try:
        if request.encoding == "json":
            return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
        if request.encoding == "form":
            return urlencode({key: _plain(value) for key, value in document.items()}).encode()
    except UnicodeEncodeError:
        raise ContractError(f"{contract.name}: the text holds a lone surrogate, not text") from None
    return b""


def _put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set `value` at `key`; slashes in the key make nested objects."""
    *outer, last = key.split("/")
    for step in outer:
        document = document.setdefault(step, {})
    document[last] = value


def _field_value(key: str, field: FieldSpec, values: Mapping[str, Any], text: str) -> Any:
    if field.is_constant:
        return field.value
    if field.source == "text":
        return text
    name = field.source if field.source != "param" else key.rpartition("/")[2]
    return values[field.param or name]


def _plain(value: Any) -> str:
    """A value as it stands in a URL or a form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine whatever the resolver says."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def resolve_credentials(
    contract: HttpContract,
    base_url: str,
    *,
    environ: Mapping[str, str],
    key_hosts: Collection[str] = (),
) -> Credentials:
    """The keys that may be sent to this address.

    A key belongs to its contract's hosts. To any other address it is not sent, unless the caller
    names that host in `key_hosts`; and never in the clear over a network.

    Raises:
        ContractError: a needed variable is not set, or a key would travel unencrypted.
    """
    auth = contract.auth
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if auth is None or host not in (*auth.hosts, *key_hosts):
        return Credentials()
    headers: list[tuple[str, str]] = []
    secrets: list[str] = []
    for header, credential in auth.headers.items():
        key = environ.get(credential.env, "").strip()
        if not key and auth.required:
            raise ContractError(f"{contract.name}: {host} needs a key: set {credential.env}")
        if not key:
            continue
        if not key.isascii() or not key.isprintable():
            raise ContractError(f"{contract.name}: {credential.env} holds characters no header may")
        headers.append((header, credential.prefix + key))
        secrets.append(key)
    if secrets and parts.scheme != "https" and not is_loopback(host):
        raise ContractError(
            f"{contract.name}: base_url: a key would cross the network unencrypted; use https"
        )
    return Credentials(tuple(headers), tuple(secrets))
