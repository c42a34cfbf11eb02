"""Check what a scenario gives an engine: address, parameters, and what one request adds to them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from engines.base import SpeechRequest
from engines.config_errors import hint, show
from engines.errors import ContractError
from engines.http_contract import FieldSpec, ValueType

__all__ = [
    "address_hint",
    "check_base_url",
    "check_params",
    "check_text",
    "is_loopback",
    "resolve_values",
]

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


def check_base_url(url: str, *, engine: str, schemes: Sequence[str] = ("http", "https")) -> str:
    """The URL without a trailing slash.

    Raises:
        ContractError: not an absolute URL of these schemes, or one with a user, a query or a
            fragment.
    """
    try:
        parts = urlsplit(url)
        has_place = parts.scheme in schemes and _is_host(parts.hostname or "") and parts.port != 0
    except ValueError:
        has_place = False
    if not has_place:
        raise ContractError(
            f"{engine}: base_url: {show(url)} is not an address such as {schemes[0]}://127.0.0.1:8000"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ContractError(
            f"{engine}: base_url: must hold no user, query or fragment (keys come from the "
            "environment)"
        )
    return url.rstrip("/")


def _is_host(name: str) -> bool:
    """Whether a resolver can be asked for it.

    Raises:
        UnicodeError: an empty label or one that is too long, or a character no name may hold.
    """
    return bool(name.encode("idna")) and not any(character.isspace() for character in name)


def address_hint(base_url: str, url: str) -> str:
    """What to change where an address ends as the contract's own path begins, else nothing.

    `http://h/v1` is the habit of clients that add `/audio/speech` to it; contracts name the whole
    path. `url` is where a request goes.
    """
    base = urlsplit(base_url).path
    own = urlsplit(url).path.removeprefix(base)
    steps = own.split("/")
    for num in range(len(steps), 1, -1):
        repeated = "/".join(steps[:num])
        if base and base.endswith(repeated):
            return f"drop {repeated} from the base URL: this contract adds {own} itself"
    return ""


def check_params(
    engine: str, known: Mapping[str, FieldSpec], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Parameters of a scenario, each known to the engine and of its type and range.

    Raises:
        ContractError: one line that names the parameter, with the closest known name.
    """
    for name, value in params.items():
        at = f"{engine}: params.{name}"
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ContractError(f"{at}: unknown parameter{hint(name, known)}; known: {listed}")
        if value is not None:
            _check_value(known[name], value, at)
    return dict(params)


def check_text(engine: str, text: str, *, max_chars: int | None = None) -> None:
    """Refuse a text that no message can carry, or that this engine is known to refuse.

    Raises:
        ContractError: half a surrogate pair, or more than `max_chars` characters.
    """
    if max_chars is not None and len(text) > max_chars:
        raise ContractError(
            f"{engine}: a text of {len(text)} characters is longer than the {max_chars} that this "
            "engine takes"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ContractError(f"{engine}: the text holds a lone surrogate, not text") from None


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
    engine: str, known: Mapping[str, FieldSpec], params: Mapping[str, Any], request: SpeechRequest
) -> dict[str, Any]:
    """The value of every parameter for one request; None where it is left out.

    The request's own voice and language win over parameters of that name, those over defaults.

    Raises:
        ContractError: a required parameter has no value.
    """
    values: dict[str, Any] = {}
    for name, field in known.items():
        own = {"voice": request.voice, "language": request.language}.get(field.source)
        value = own if own is not None else params.get(name)
        values[name] = field.default if value is None else value
        if field.required and values[name] is None:
            raise ContractError(f"{engine}: params.{name}: is required and has no default")
    for own_name in ("voice", "language"):
        if getattr(request, own_name) is not None and own_name not in values:
            raise ContractError(f"{engine}: this engine takes no {own_name}")
    return values


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine whatever the resolver says."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
