"""VoxServe's streamed text over plain HTTP: one call opens, one streams audio, one a piece of text.

The audio call is the main one; the others go beside it. Its path holds the id that the opening
call gives, so it is sent only after that. Pieces are posted one after another, in order, each
after the reply to the one before.

Source: VoxServe git 6f6b469 (2026-02-10, v0.1.0).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import orjson

from engines.adapter import CodedAdapter
from engines.base import (
    Action,
    AudioFormat,
    CancelDue,
    Capabilities,
    Close,
    Event,
    Exchange,
    Fail,
    HttpTarget,
    Probe,
    Send,
    SideReply,
    SideRequest,
    SpeechRequest,
    TextAccepted,
    TextDue,
)
from engines.card import EngineCard
from engines.credentials import Credentials
from engines.ending import EndsOnce
from engines.http_body import error_text, protocol_error
from engines.http_contract import HttpContract, load_contract
from engines.http_probe import build_probe
from engines.http_request import expected_format
from engines.http_stream import HttpStreamExchange
from engines.outcomes import TransportOutcome
from engines.redact import one_line

__all__ = ["VoxserveTextAdapter", "VoxserveTextExchange"]

_HEADERS = (
    ("Accept-Encoding", "identity"),
    ("Content-Type", "application/x-www-form-urlencoded"),
)
_OPEN = "open"
_REFUSED = (429, 503)


class VoxserveTextExchange(EndsOnce):
    """One streamed text. The audio is read as the whole-text contract reads it."""

    def __init__(
        self,
        contract: HttpContract,
        base_url: str,
        *,
        request: SpeechRequest,
        settings: Mapping[str, str],
        expected: AudioFormat | None,
    ) -> None:
        super().__init__()
        self._base_url = base_url
        self._request = request
        self._settings = settings
        self._id: str | None = None
        self._pieces: deque[TextDue] = deque()
        # The piece whose call is under way; a request id alone says nothing about it.
        self._in_flight: TextDue | None = None
        # Until the id is known the address is that of the opening call: same host, no request yet.
        self._target = self._call("start")
        audio_target = HttpTarget(base_url, "GET", _HEADERS[:1])
        self._audio = HttpStreamExchange(contract, audio_target, body=b"", expected=expected)

    @property
    def target(self) -> HttpTarget:
        """The audio call, once its id is known."""
        return self._target

    def start(self) -> list[Action]:
        """Open the stream; a text that is known is one piece."""
        if not self._request.is_incremental:
            self._pieces.append(TextDue(0, self._request.text, True))
        body = urlencode(self._settings).encode()
        return [SideRequest(_OPEN, self._call("start"), body)]

    def _react(self, event: Event) -> list[Action]:
        match event:
            case SideReply():
                return self._on_reply(event)
            case TextDue() if self._request.is_incremental:
                self._pieces.append(event)
                return self._pump()
            case CancelDue():
                text = "cancelled by the scenario; the connection is closed"
                return [Close(), Fail(TransportOutcome.CANCELLED, "body", text)]
            case _:
                return self._audio.feed(event)

    def _on_reply(self, reply: SideReply) -> list[Action]:
        if not 200 <= reply.status < 300:
            return [self._refused(reply)]
        if reply.tag == _OPEN and self._id is None:
            return self._on_open(reply)
        if self._in_flight is None:
            return [protocol_error(reply.tag, "a reply to nothing that was asked")]
        piece, self._in_flight = self._in_flight, None
        is_piece = self._request.is_incremental and reply.tag == "text"
        accepted: list[Action] = [TextAccepted(piece.seq)] if is_piece else []
        if piece.is_last and reply.tag == "text":
            return [*accepted, self._end(piece, is_piece=False)]
        return [*accepted, *self._pump()]

    def _on_open(self, reply: SideReply) -> list[Action]:
        try:
            document = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            document = None
        found = document.get("request_id") if isinstance(document, dict) else None
        if not isinstance(found, str) or not re.fullmatch(r"[\w.:-]{1,200}", found):
            shown = one_line(reply.body[:200])
            return [protocol_error(_OPEN, f"no request_id in the reply: {shown!r}")]
        self._id = found
        url = f"{self._base_url}/generate/stream/{found}/audio"
        self._target = HttpTarget(url, "GET", _HEADERS[:1])
        return [Send(b""), *self._pump()]

    def _pump(self) -> list[Action]:
        """The next piece, if the way is free."""
        if self._id is None or self._in_flight is not None or not self._pieces:
            return []
        piece = self._pieces.popleft()
        if not piece.text:
            return [self._end(piece, is_piece=True)] if piece.is_last else self._pump()
        self._in_flight = piece
        body = urlencode({"text": piece.text}).encode()
        seq = piece.seq if self._request.is_incremental else None
        return [SideRequest("text", self._call(f"{self._id}/text"), body, text_seq=seq)]

    def _end(self, piece: TextDue, *, is_piece: bool) -> SideRequest:
        self._in_flight = replace(piece, is_last=False)
        seq = piece.seq if is_piece and self._request.is_incremental else None
        target = self._call(f"{self._id}/end")
        return SideRequest("end", target, b"", text_seq=seq, ends_text=True)

    def _call(self, path: str) -> HttpTarget:
        return HttpTarget(f"{self._base_url}/generate/stream/{path}", "POST", _HEADERS)

    def _refused(self, reply: SideReply) -> Fail:
        said = one_line(error_text(reply.body, ("/detail",)))
        text = one_line(f"{reply.tag}: HTTP {reply.status}: {said}")
        if reply.status == 0:
            return Fail(TransportOutcome.CONNECT_ERROR, reply.tag, one_line(f"{reply.tag}: {said}"))
        is_refusal = reply.status in _REFUSED
        outcome = TransportOutcome.REFUSED if is_refusal else TransportOutcome.HTTP_ERROR
        return Fail(outcome, reply.tag, text, {"status": reply.status})


class VoxserveTextAdapter(CodedAdapter):
    """VoxServe with streamed text. Parameters are those of `voxserve-native`."""

    def __init__(self, **given: Any) -> None:
        """See `engines.registry.create`.

        Raises:
            ContractError: one line.
        """
        super().__init__(**given)
        self._contract = _contract()

    @classmethod
    def describe(cls) -> EngineCard:
        """What is known of it without talking to it."""
        contract = _contract()
        return EngineCard(
            name="voxserve-text",
            title="VoxServe, streamed text over HTTP",
            source=contract.source,
            base_url=contract.base_url,
            capabilities=Capabilities(
                transport="http",
                formats=("wav",),
                has_incremental_text=True,
                note="each piece of text is a call of its own, after the reply to the one before",
            ),
            # Less the switch between whole and streamed audio.
            parameters={
                name: field for name, field in contract.parameters().items() if name != "streaming"
            },
        )

    def open(self, request: SpeechRequest) -> Exchange:
        """Begin one request; see `engines.base.Adapter`."""
        values = self.values_of(request)
        # The contract's keys on the wire, which for voice is `speaker`.
        keys = {"voice": "speaker"}
        settings = {
            keys.get(name, name): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in values.items()
            if value is not None
        }
        return VoxserveTextExchange(
            self._contract,
            self.base_url,
            request=request,
            settings=settings,
            expected=expected_format(self._contract, values),
        )

    def probe(self) -> Probe:
        """As for whole texts."""
        return build_probe(
            self.name,
            self._contract.probe,
            base_url=self.base_url,
            route=self._contract.request.path,
            credentials=Credentials(),
        )


def _contract() -> HttpContract:
    """The one for whole texts, whose server, parameters and audio these are too."""
    return load_contract("voxserve-native")
