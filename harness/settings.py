"""Plain settings of the load generator, as frozen values: what the scenario file is mapped to.

Nothing here reads a file, an environment variable or a clock. Lengths of time are in seconds, as
a person writes them; the wire converts to nanoseconds once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engines.outcomes import TransportOutcome
from harness.text_source import TextPacing

__all__ = [
    "CancelFrom",
    "CancelSettings",
    "ConnectionMode",
    "ConnectionSettings",
    "PhaseSettings",
    "PointSettings",
    "RequestSettings",
    "RetrySettings",
    "SlowReaderSettings",
    "TimeoutSettings",
    "TlsSettings",
    "WireLimits",
    "WireSettings",
]


class ConnectionMode(StrEnum):
    """Whether a request finds an open connection or pays for one."""

    WARM = "warm"
    COLD = "cold"


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How connections are kept.

    `pool` is how many are opened before the first request of a warm point and kept open through
    it; more are opened when all are busy. A connection older than `lifetime_s` is not used again.
    """

    mode: ConnectionMode = ConnectionMode.WARM
    pool: int = 8
    lifetime_s: float | None = None


@dataclass(frozen=True, slots=True)
class TimeoutSettings:
    """The user's own limits; the only ones that may end a request. All but `ready_s` count from
    dispatch. None: no such limit.

    `first_audio_s` waits for the first payload byte. `dead_peer_s` is how long a peer may leave
    probes (TCP keep-alive, WebSocket ping) unanswered; silence with answered probes never ends a
    request.
    """

    ready_s: float = 60.0
    connect_s: float | None = 10.0
    first_audio_s: float | None = 30.0
    total_s: float | None = 120.0
    dead_peer_s: float | None = 30.0


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds on what a server can make the client keep."""

    max_header_bytes: int = 64 * 1024
    max_body_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Trust and identity for `https` and `wss`.

    Certificates are checked unless `is_verified` is switched off, which the run record then shows.
    `is_resumed`: offer the session of an earlier connection to the same server.
    """

    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    server_name: str | None = None
    is_verified: bool = True
    is_resumed: bool = True


@dataclass(frozen=True, slots=True)
class WireSettings:
    """Everything the wire needs to know.

    `is_kernel_stamped=False` forces user stamps. Engines that are commands run only where
    `are_commands_allowed`.
    """

    connections: ConnectionSettings = ConnectionSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    limits: WireLimits = WireLimits()
    tls: TlsSettings = TlsSettings()
    is_kernel_stamped: bool = True
    user_agent: str = "earwitness (open-loop TTS benchmark)"
    are_commands_allowed: bool = False


@dataclass(frozen=True, slots=True)
class PhaseSettings:
    """Lengths of the phases of one point. The drain has no arrivals."""

    warmup_s: float
    measure_s: float
    drain_s: float


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """Attempts beyond the first. None by default: a hidden retry changes what is measured.

    Only endings in `outcomes`, without any payload received, are tried again. The wait is the
    server's Retry-After where it gave one (at most `max_wait_s`), else `backoff_s` doubled with
    every attempt. Latency counts from the first attempt.
    """

    max_retries: int = 0
    backoff_s: float = 1.0
    max_wait_s: float = 30.0
    outcomes: frozenset[TransportOutcome] = frozenset(
        {
            TransportOutcome.REFUSED,
            TransportOutcome.STALE_CONNECTION,
            TransportOutcome.CONNECT_ERROR,
        }
    )


class CancelFrom(StrEnum):
    """The moment from which the wait before a cancellation counts."""

    DISPATCH = "dispatch"
    FIRST_AUDIO = "first_audio"


@dataclass(frozen=True, slots=True)
class CancelSettings:
    """A listener who interrupts: a share of requests is cancelled after a time or amount heard.

    Which requests is a pure function of `seed` and the arrival's index. `after_s` counts from
    dispatch or from the first payload byte; `after_audio_bytes` counts payload as received. Where
    both are given, the earlier one cancels.
    """

    share: float
    after_s: float | None = None
    counted_from: CancelFrom = CancelFrom.FIRST_AUDIO
    after_audio_bytes: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SlowReaderSettings:
    """A share of requests, chosen by `seed` and index, is read no faster than `bytes_per_s`."""

    share: float
    bytes_per_s: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """What every request of a point has in common, beside its text."""

    voice: str | None = None
    language: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PointSettings:
    """Everything `harness.dispatcher.run_point` needs beside the arrivals.

    `max_in_flight` is a safety cap: an arrival that finds it reached is recorded as `not_sent`.
    """

    phases: PhaseSettings
    wire: WireSettings = WireSettings()
    request: RequestSettings = RequestSettings()
    retries: RetrySettings = RetrySettings()
    text_pacing: TextPacing | None = None
    cancel: CancelSettings | None = None
    slow_reader: SlowReaderSettings | None = None
    max_in_flight: int = 1000
