"""From a scenario to the plain settings that one point is run with."""

from __future__ import annotations

import math

from harness.scenario import Scenario
from harness.scenario_sections import Behaviour, Connections, Retries, TextPacing, Timeouts, Tls
from harness.settings import (
    CancelSettings,
    ConnectionSettings,
    PhaseSettings,
    PointSettings,
    RequestSettings,
    RetrySettings,
    SlowReaderSettings,
    TimeoutSettings,
    TlsSettings,
    WireSettings,
)
from harness.text_source import TextMode
from harness.text_source import TextPacing as TextPacingSettings

__all__ = ["point_settings", "wire_settings"]

# A warm pool holds as many connections as a server with replies of 4 s would keep busy; more are
# opened where that is not enough.
_POOL_SECONDS = 4.0
_MIN_POOL, _MAX_POOL = 4, 128


def point_settings(
    scenario: Scenario, *, rate_rps: float, seed: int, user_agent: str
) -> PointSettings:
    """Everything the dispatcher needs for one point, beside its plan."""
    phases = scenario.phases
    return PointSettings(
        phases=PhaseSettings(phases.warmup_s, phases.measure_s, phases.drain_s),
        wire=wire_settings(scenario, rate_rps=rate_rps, user_agent=user_agent),
        request=RequestSettings(),
        retries=_retries(scenario.retries),
        text_pacing=_text_pacing(scenario.text_pacing),
        cancel=_cancel(scenario.behaviour, seed),
        slow_reader=_slow_reader(scenario.behaviour, seed),
        max_in_flight=scenario.limits.max_in_flight,
    )


def wire_settings(scenario: Scenario, *, rate_rps: float, user_agent: str) -> WireSettings:
    """How connections are made, kept, trusted and given up."""
    return WireSettings(
        connections=_connections(scenario.connections, rate_rps, scenario.limits.max_in_flight),
        timeouts=_timeouts(scenario.timeouts),
        tls=_tls(scenario.connections.tls),
        user_agent=user_agent,
    )


def _connections(given: Connections, rate_rps: float, max_in_flight: int) -> ConnectionSettings:
    wanted = math.ceil(rate_rps * _POOL_SECONDS)
    pool = given.pool or min(max(wanted, _MIN_POOL), _MAX_POOL, max_in_flight)
    return ConnectionSettings(mode=given.mode, pool=pool, lifetime_s=given.lifetime_s)


def _timeouts(given: Timeouts) -> TimeoutSettings:
    return TimeoutSettings(
        ready_s=given.ready_s,
        connect_s=given.connect_s,
        first_audio_s=given.first_audio_s,
        total_s=given.total_s,
        dead_peer_s=given.dead_peer_s,
    )


def _tls(given: Tls) -> TlsSettings:
    return TlsSettings(
        ca_file=given.ca_file,
        client_cert_file=given.cert_file,
        client_key_file=given.key_file,
        server_name=given.server_name,
        is_verified=given.verify,
    )


def _retries(given: Retries) -> RetrySettings:
    return RetrySettings(
        max_retries=given.max, backoff_s=given.backoff_s, max_wait_s=given.max_wait_s
    )


def _text_pacing(given: TextPacing) -> TextPacingSettings | None:
    if given.mode is TextMode.WHOLE or given.rate_per_s is None:
        return None
    return TextPacingSettings(
        mode=given.mode,
        interval_s=1.0 / given.rate_per_s,
        first_delay_s=given.first_ms / 1_000,
        jitter=given.jitter,
    )


def _cancel(behaviour: Behaviour, seed: int) -> CancelSettings | None:
    given = behaviour.cancel
    if given is None:
        return None
    return CancelSettings(
        share=given.share,
        after_s=given.after_s,
        counted_from=given.counted_from,
        after_audio_bytes=given.after_audio_bytes,
        seed=seed,
    )


def _slow_reader(behaviour: Behaviour, seed: int) -> SlowReaderSettings | None:
    given = behaviour.slow_reader
    if given is None:
        return None
    return SlowReaderSettings(share=given.share, bytes_per_s=given.bytes_per_s, seed=seed)
