"""Everything that can be set about the service; how to compute is the profile's business."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["DEFAULT_PORT", "LiveLimits", "ServerSettings", "StartRule", "StartSettings"]

DEFAULT_PORT = 8124


class StartRule(StrEnum):
    """When speech begins while its text still arrives."""

    FIRST_TOKEN = "first-token"
    CLAUSE = "clause"
    SENTENCE = "sentence"


@dataclass(frozen=True, slots=True)
class StartSettings:
    """When to begin, and the limits after which speech begins whatever the rule says.

    max_tokens: stable tokens held back at most. max_wait_s: since the first piece of text.
    """

    rule: StartRule = StartRule.FIRST_TOKEN
    max_tokens: int = 24
    max_wait_s: float = 0.5


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """Bounds of one `nari.speech.v1` session. Source: Nari's server, git e8c5b2b (2026-08-20).

    idle_s: between client messages, until the text has ended. send_s: for one send to leave.
    """

    idle_s: float = 30.0
    send_s: float = 5.0
    max_message_bytes: int = 64 * 1024
    max_characters: int = 65_536
    max_appends: int = 1_024
    max_tokens: int = 16_384


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One server.

    model_id: what `/v1/models` lists and `model` must equal. api_key: asked for where set.
    max_characters: of one HTTP text. body_s: for a request body to arrive. write_s: for a client
    to read anything at all. warm_up_s: for the warm-up request. drain_s: for requests in progress
    once the server was told to stop. num_remembered: requests that `/v1/requests` still knows.
    """

    model_id: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    api_key: str | None = None
    max_body_bytes: int = 1024 * 1024
    max_characters: int = 65_536
    body_s: float = 30.0
    write_s: float = 30.0
    warm_up_s: float = 600.0
    drain_s: float = 30.0
    num_remembered: int = 4_096
    start: StartSettings = field(default_factory=StartSettings)
    live: LiveLimits = field(default_factory=LiveLimits)
    should_stop_on_stdin_eof: bool = False
