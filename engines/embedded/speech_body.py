# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON of `POST /v1/audio/speech`, checked field by field.

The shape is OpenAI's; what this voice cannot do is refused by name, never ignored.
"""

from __future__ import annotations

import difflib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from engines.embedded.config import MODEL_ID, VOICE_ID
from engines.embedded.errors import BadRequestError

__all__ = ["ResponseFormat", "SpeechOrder", "parse_speech_body"]

_FIELDS = ("input", "model", "response_format", "speed", "stream", "stream_format", "voice")
_MIN_SPEED, _MAX_SPEED = 0.25, 4.0
_TEXT_CONTROLS = "\t\n\r"


class ResponseFormat(StrEnum):
    """What this server can send."""

    PCM = "pcm"
    WAV = "wav"


@dataclass(frozen=True, slots=True)
class SpeechOrder:
    """A checked request; `text` is neither empty nor longer than the server allows."""

    text: str
    response_format: ResponseFormat = ResponseFormat.PCM
    is_streaming: bool = True
    speed: float = 1.0


def parse_speech_body(body: bytes, *, max_characters: int) -> SpeechOrder:
    """Check a request body.

    Raises:
        BadRequestError: with the HTTP status, the field and one line that says what to do.
    """
    fields = _json_object(body)
    for name in fields:
        if name not in _FIELDS:
            raise BadRequestError(_unknown_field(name), param=name[:64], code="unknown_field")
    _check_choice(fields, "model", known=(MODEL_ID,), status=404)
    _check_choice(fields, "voice", known=(VOICE_ID,), status=400)
    _check_choice(fields, "stream_format", known=("audio",), status=400)
    _check_choice(fields, "response_format", known=tuple(ResponseFormat), status=400)
    return SpeechOrder(
        text=_text(fields, max_characters),
        response_format=ResponseFormat(fields.get("response_format", ResponseFormat.PCM)),
        is_streaming=_flag(fields, "stream", default=True),
        speed=_speed(fields),
    )


def _json_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(
            body.decode("utf-8"), object_pairs_hook=_without_twins, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        raise BadRequestError(
            f"body: byte {error.start} is not UTF-8; send JSON as UTF-8", code="bad_json"
        ) from None
    except json.JSONDecodeError as error:
        raise BadRequestError(
            f"body: not JSON at line {error.lineno} column {error.colno}: {error.msg}",
            code="bad_json",
        ) from None
    except RecursionError:
        raise BadRequestError("body: nested too deeply; expected one flat object") from None
    except ValueError:
        # Python refuses integers of thousands of digits.
        raise BadRequestError("body: a number is too long", code="bad_json") from None
    if not isinstance(value, dict):
        raise BadRequestError(
            f"body: found {_kind(value)}; expected an object with at least 'input'",
            code="bad_type",
        )
    return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise BadRequestError(f"body: {_shown(twin)} occurs twice", code="bad_json")
    return found


def _no_constant(name: str) -> None:
    raise BadRequestError(f"body: {name} is not JSON", code="bad_json")


def _unknown_field(name: str) -> str:
    near = difflib.get_close_matches(name, _FIELDS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(_FIELDS)}"
    return f"{_shown(name)}: unknown field; {hint}"


def _check_choice(
    fields: Mapping[str, Any], name: str, *, known: tuple[str, ...], status: int
) -> None:
    if name not in fields:
        return
    value = fields[name]
    if not isinstance(value, str):
        raise BadRequestError(
            f"{name}: found {_kind(value)}; expected a string", param=name, code="bad_type"
        )
    if value not in known:
        raise BadRequestError(
            f"{name}: {_shown(value)} is not one of {', '.join(known)}",
            status=status,
            param=name,
            code=f"unknown_{name}",
        )


def _text(fields: Mapping[str, Any], max_characters: int) -> str:
    text = fields.get("input")
    if not isinstance(text, str):
        found = _kind(text) if "input" in fields else "nothing"
        raise BadRequestError(
            f"input: found {found}; expected the text to speak", param="input", code="bad_type"
        )
    if len(text) > max_characters:
        raise BadRequestError(
            f"input: {len(text)} characters; at most {max_characters}, send it in pieces",
            param="input",
            code="too_long",
        )
    for place, letter in enumerate(text):
        if letter not in _TEXT_CONTROLS and unicodedata.category(letter) in ("Cc", "Cs"):
            raise BadRequestError(
                f"input: character {place} is U+{ord(letter):04X}, which cannot be spoken; "
                "remove it",
                param="input",
                code="bad_character",
            )
    if not text.strip():
        raise BadRequestError("input: there is no text to speak", param="input", code="empty")
    return text


def _flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise BadRequestError(
            f"{name}: found {_kind(value)}; expected true or false", param=name, code="bad_type"
        )
    return value


def _speed(fields: Mapping[str, Any]) -> float:
    value = fields.get("speed", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequestError(
            f"speed: found {_kind(value)}; expected a number", param="speed", code="bad_type"
        )
    if not _MIN_SPEED <= value <= _MAX_SPEED:
        raise BadRequestError(
            f"speed: {_shown(value)} is out of range; expected {_MIN_SPEED} to {_MAX_SPEED}",
            param="speed",
        )
    return float(value)


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else kinds.get(type(value), "a number")


def _shown(value: object) -> str:
    """A client's value for an error line: escaped, on one line, cut short."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
