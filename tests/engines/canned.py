"""Canned exchanges with HTTP engines: one YAML a contract, read into bytes and expectations.

In a fixture's bodies `<<a:b>>` stands for samples a..b-1 of a ramp in base64, `<<hex a:b>>` for the
same in hex and `<<wav>>` for the base64 of an open-ended WAV header. `ramp: [a, b]` is that audio
raw; with `header` (open, exact, zero, huge) it stands behind a WAV header.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.base import Exchange, Headers, SpeechRequest
from engines.config_errors import read_yaml
from engines.http_stream import HttpContract, HttpStreamAdapter, load_contract
from tests.builders.exchanges import ramp, wav

__all__ = ["FIXTURES", "CannedReply", "Fixture", "load_fixture"]

FIXTURES = Path(__file__).parent / "fixtures"

_HEADER_SIZES = {"open": 0xFFFFFFFF, "zero": 0, "huge": 2_000_000_000, "exact": None}


@dataclass(frozen=True, slots=True)
class CannedReply:
    """One reply as bytes; `says` must be in the error text, `audio` is the expected payload."""

    headers: Headers
    body: bytes
    audio: bytes = b""
    says: str = ""


@dataclass(frozen=True, slots=True)
class Fixture:
    """What one contract sends and what its server may answer."""

    contract: HttpContract
    base_url: str
    request: SpeechRequest
    params: Mapping[str, Any]
    sends: Mapping[str, Any]
    format: Mapping[str, Any]
    success: CannedReply
    refusal: CannedReply
    error: CannedReply
    in_band_error: CannedReply | None
    needs_end_event: bool = True

    def adapter(self) -> HttpStreamAdapter:
        """The adapter under test."""
        return HttpStreamAdapter(self.contract, self.base_url, self.params)

    def open(self) -> Exchange:
        """A fresh exchange for the fixture's request."""
        return self.adapter().open(self.request)


def load_fixture(path: Path, *, contract: str | None = None) -> Fixture:
    """Read a fixture; its contract is that of its name up to the first dot, or a path."""
    raw = read_yaml(path, error=AssertionError)
    found = load_contract(contract or path.stem.partition(".")[0])
    request = raw["request"]
    return Fixture(
        contract=found,
        base_url=raw.get("base_url", "http://127.0.0.1:9"),
        request=SpeechRequest(
            "canned",
            request["text"],
            voice=request.get("voice"),
            language=request.get("language"),
        ),
        params=request.get("params", {}),
        sends=raw["sends"],
        format=raw["format"],
        success=_reply(raw["success"]),
        refusal=_reply(raw["refusal"]),
        error=_reply(raw["error"]),
        in_band_error=_reply(raw["in_band_error"]) if "in_band_error" in raw else None,
        needs_end_event=raw.get("needs_end_event", True),
    )


def _reply(raw: Mapping[str, Any]) -> CannedReply:
    headers = tuple((name, str(value)) for name, value in raw.get("headers", {}).items())
    body, audio = _body(raw)
    return CannedReply(
        headers=Headers(raw.get("status", 200), headers),
        body=body,
        audio=audio,
        says=raw.get("says", ""),
    )


def _body(raw: Mapping[str, Any]) -> tuple[bytes, bytes]:
    if "ramp" in raw:
        samples = ramp(*raw["ramp"])
        body = samples
        if "header" in raw:
            body = wav(samples, data_size=_HEADER_SIZES[raw["header"]])
        return body, body
    if "hex" in raw:
        body = bytes.fromhex(raw["hex"])
        return body, body
    audio: list[bytes] = []

    def encode(match: re.Match[str]) -> str:
        piece = _piece(match)
        audio.append(piece)
        return piece.hex() if match["hex"] else base64.b64encode(piece).decode()

    text = re.sub(r"<<(?P<hex>hex )?(?:(?P<a>\d+):(?P<b>\d+)|wav)>>", encode, raw.get("text", ""))
    return text.encode(), b"".join(audio)


def _piece(match: re.Match[str]) -> bytes:
    if match["a"] is None:
        return wav(b"", data_size=0xFFFFFFFF)
    return ramp(int(match["a"]), int(match["b"]))
