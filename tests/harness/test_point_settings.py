"""A scenario reaches the load generator whole: no key of it is dropped on the way."""

from __future__ import annotations

from typing import Any

import pytest

from harness.point_settings import point_settings
from harness.settings import CancelFrom, ConnectionMode, PointSettings
from harness.text_source import TextMode
from tests.builders.runs import scenario


def _settings(*, rate_rps: float = 2.0, seed: int = 7, **overrides: Any) -> PointSettings:
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return point_settings(scenario(dotted), rate_rps=rate_rps, seed=seed, user_agent="me/1")


def _at(settings: PointSettings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("key", "value", "path", "expected"),
    [
        ("phases.warmup_s", 3.0, "phases.warmup_s", 3.0),
        ("phases.measure_s", 4.0, "phases.measure_s", 4.0),
        ("phases.drain_s", 5.0, "phases.drain_s", 5.0),
        ("timeouts.ready_s", 1.0, "wire.timeouts.ready_s", 1.0),
        ("timeouts.connect_s", 1.0, "wire.timeouts.connect_s", 1.0),
        ("timeouts.first_audio_s", None, "wire.timeouts.first_audio_s", None),
        ("timeouts.total_s", 1.5, "wire.timeouts.total_s", 1.5),
        ("timeouts.dead_peer_s", 1.0, "wire.timeouts.dead_peer_s", 1.0),
        ("retries.max", 2, "retries.max_retries", 2),
        ("retries.backoff_s", 0.5, "retries.backoff_s", 0.5),
        ("retries.max_wait_s", 3.0, "retries.max_wait_s", 3.0),
        ("limits.max_in_flight", 9, "max_in_flight", 9),
        ("connections.mode", "cold", "wire.connections.mode", ConnectionMode.COLD),
        ("connections.pool", 3, "wire.connections.pool", 3),
        ("connections.lifetime_s", 8.0, "wire.connections.lifetime_s", 8.0),
        ("connections.tls", {"ca_file": "/ca"}, "wire.tls.ca_file", "/ca"),
        ("connections.tls", {"verify": False}, "wire.tls.is_verified", False),
        ("connections.tls", {"server_name": "x"}, "wire.tls.server_name", "x"),
        ("connections.tls", {"cert_file": "/c"}, "wire.tls.client_cert_file", "/c"),
    ],
)
def test_a_key_of_the_scenario_arrives(key: str, value: Any, path: str, expected: Any):
    """Value by value, under the name it has there."""
    assert expected == _at(_settings(**{key.replace(".", "__"): value}), path)


def test_paced_text_arrives_as_intervals():
    """20 words a second are 50 ms between words."""
    pacing = {"mode": "words", "rate_per_s": 20.0, "jitter": 0.5, "first_ms": 30.0}
    settings = _settings(text_pacing=pacing)

    assert settings.text_pacing is not None
    assert (TextMode.WORDS, 0.05, 0.5, 0.03) == (
        settings.text_pacing.mode,
        settings.text_pacing.interval_s,
        settings.text_pacing.jitter,
        settings.text_pacing.first_delay_s,
    )


def test_whole_text_needs_no_pacing():
    """The default hands the text over at once."""
    assert None is _settings().text_pacing


def test_behaviour_carries_the_seed_of_the_point():
    """Who interrupts and who reads slowly is part of the plan."""
    settings = _settings(
        behaviour={
            "cancel": {"share": 0.25, "after_s": 0.5, "counted_from": "dispatch"},
            "slow_reader": {"share": 0.5, "bytes_per_s": 1_000},
        }
    )

    assert settings.cancel is not None
    assert settings.slow_reader is not None
    assert (0.25, 0.5, CancelFrom.DISPATCH, 7) == (
        settings.cancel.share,
        settings.cancel.after_s,
        settings.cancel.counted_from,
        settings.cancel.seed,
    )
    assert (0.5, 1_000, 7) == (
        settings.slow_reader.share,
        settings.slow_reader.bytes_per_s,
        settings.slow_reader.seed,
    )


@pytest.mark.parametrize(("rate_rps", "pool"), [(0.1, 4), (10, 40), (1_000, 128)])
def test_the_pool_grows_with_the_rate_within_bounds(rate_rps: float, pool: int):
    """Four seconds' worth of arrivals, at least 4 and at most 128."""
    assert pool == _settings(rate_rps=rate_rps).wire.connections.pool


def test_the_run_says_what_it_is():
    """The User-Agent is handed through."""
    assert "me/1" == _settings().wire.user_agent
