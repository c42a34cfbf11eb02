"""Keep keys out of everything that is stored or printed, and keep it on one line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson

from engines.base import HttpTarget, Target, WebSocketTarget

__all__ = [
    "MAX_ERROR_CHARS",
    "one_line",
    "redact_headers",
    "redact_url",
    "secret_values",
    "short_fact",
    "shown_place",
    "written",
]

# The length that a stored error text may have.
MAX_ERROR_CHARS = 500
_HIDDEN = "***"
_MAX_FACT_CHARS = 4096
_TOO_DEEP = "nested too deeply to be shown"

# What keys look like when a server echoes them: bearer values, `sk-...` style tokens, and values
# of fields whose names say so. Wide on purpose: a hidden word costs less than a published key.
_SECRET_SHAPES = (
    re.compile(r"(?i)\b(bearer|token|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"\b(sk|pk|key|xi|rk)([-_])[A-Za-z0-9_-]{12,}"),
    re.compile(
        r"(?i)([\"']?[\w-]{0,32}(?:api[_-]?key|secret|password|authorization|access[_-]?token)[\"']?)"
        r"(\s*[:=]\s*)[\"']?[^\s\"',;&}]{4,}"
    ),
)
_SECRET_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "set-cookie",
        "x-api-key",
        "api-key",
        "xi-api-key",
        "x-user-id",
        "ocp-apim-subscription-key",
    }
)


def secret_values(target: Target) -> tuple[str, ...]:
    """Values of a target's headers that must never be stored."""
    if not isinstance(target, HttpTarget | WebSocketTarget):
        return ()
    hidden = {name.lower() for name in target.secret_headers}
    values = [value for name, value in target.headers if name.lower() in hidden]
    # `Bearer <key>`: the key alone is as secret as the pair.
    return tuple(values + [value.rpartition(" ")[2] for value in values])


def one_line(text: str | bytes, *, secrets: Iterable[str] = ()) -> str:
    """Text from a server as one printable line of at most `MAX_ERROR_CHARS`, without keys.

    Args:
        text: bytes are read as UTF-8, undecodable ones replaced.
        secrets: values that must not appear whatever they look like.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    for secret in secrets:
        if secret:
            text = text.replace(secret, _HIDDEN)
    # Searching is bounded: what is cut here could not appear in the line anyway.
    text = text[: 8 * MAX_ERROR_CHARS]
    for shape in _SECRET_SHAPES:
        text = shape.sub(rf"\1\2{_HIDDEN}", text)
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= MAX_ERROR_CHARS else line[: MAX_ERROR_CHARS - 3] + "..."


def written(value: Any) -> str:
    """What a server sent, as JSON text; nesting deeper than can be written is named as such."""
    try:
        return orjson.dumps(value, default=str).decode()
    except orjson.JSONEncodeError:
        return _TOO_DEEP


def short_fact(value: Any) -> Any:
    """A value that a server stated, to be kept with its request: as it is, or one line of it."""
    text = written(value)
    return value if text != _TOO_DEEP and len(text) <= _MAX_FACT_CHARS else one_line(text)


def shown_place(base_url: str) -> str:
    """An adapter's address for a person, without keys."""
    if base_url.startswith("process:"):
        return "a command of this machine"
    return redact_url(base_url)


def redact_url(url: str) -> str:
    """A URL without user, password, query values and fragment: tokens travel in all of them."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    query = "&".join(
        f"{pair.partition('=')[0]}={_HIDDEN}" for pair in parts.query.split("&") if pair
    )
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


def redact_headers(
    headers: Iterable[tuple[str, str]], *, secret: Iterable[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Headers with the values of `secret` names and of the usual carriers of keys hidden."""
    hidden = _SECRET_HEADERS | {name.lower() for name in secret}
    return tuple((name, _HIDDEN if name.lower() in hidden else value) for name, value in headers)
