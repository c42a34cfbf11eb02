"""Write one HTTP request as its contract says: parameters checked, keys exact, secrets apart."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from engines.base import AudioFormat, HttpTarget, RateSource
from engines.config_errors import hint, show
from engines.credentials import Credentials
from engines.errors import ContractError
from engines.http_contract import FieldSpec, FormatSpec, HttpContract

__all__ = [
    "assumed_format",
    "build_body",
    "build_target",
    "expected_format",
]


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
    request_id: str,
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
    headers = [("Accept-Encoding", "identity")]
    headers += list(request.headers.items())
    given = {name.lower() for name in request.headers}
    if request.encoding != "none" and "content-type" not in given:
        is_json = request.encoding == "json"
        headers.append(
            ("Content-Type", "application/json" if is_json else "application/x-www-form-urlencoded")
        )
    if request.id_header is not None:
        headers.append((request.id_header, request_id))
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
