"""How a request can end, as far as the wire can tell.

Exactly one per request. The recorder in `harness` writes it; an exchange proposes it by `Fail`.
`analysis` later derives the final outcome (`silent`, `empty_audio`, ...) from the audio.

Source: analysis/METRICS.md, "Outcomes".
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["TransportOutcome"]


class TransportOutcome(StrEnum):
    """The ending of one request on the wire. `OK` says nothing about the sound."""

    OK = "ok"
    REFUSED = "refused"  # 429, 503, or an engine's own "busy"
    HTTP_ERROR = "http_error"  # any other status that is not 2xx
    CONNECT_ERROR = "connect_error"
    STALE_CONNECTION = "stale_connection"  # closed on re-use before any response byte
    PROTOCOL_ERROR = "protocol_error"  # framing or wrong content type
    SERVER_ERROR = "server_error"  # an error message inside the stream
    TRUNCATED = "truncated"  # ended before its framing or its protocol's end
    TIMEOUT = "timeout"  # the user's own limit
    DEAD_PEER = "dead_peer"
    CANCELLED = "cancelled"  # by the scenario
    NOT_SENT = "not_sent"  # the safety cap on requests in flight
    CLIENT_ERROR = "client_error"  # our own bug or limit; makes the run invalid
