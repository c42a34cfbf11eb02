"""The demo's load: how long one request takes alone, and rates that follow from it.

Rates are shares of what one worker can do, so that the same command shows an idle, a busy and an
overloaded engine on any machine. No rate is fixed in advance.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.base import Adapter, SpeechRequest
from harness.clock import Clock
from harness.errors import EngineNotReadyError
from harness.prompts import Prompt
from harness.records import TransportOutcome
from harness.scenario import Scenario, parse_scenario
from harness.settings import WireSettings
from harness.single import single

__all__ = [
    "DEMO_TAGS",
    "FULL",
    "MAX_WER_UTILISATION",
    "NUM_SOLO",
    "QUICK",
    "DemoShape",
    "demo_scenario",
    "solo_service_s",
]

NUM_SOLO = 3
# At most 12 words, and no digits, names or addresses: recognition can be scored on all of them.
DEMO_TAGS = ("short", "wer")
# Words are scored below saturation; what an overloaded point says is the same audio, only later.
MAX_WER_UTILISATION = 0.8


@dataclass(frozen=True, slots=True)
class DemoShape:
    """How much load: shares of the solo service rate, and seconds of measurement at each."""

    utilisations: tuple[float, ...]
    measure_s: float
    warmup_s: float = 2.0


FULL = DemoShape(utilisations=(0.2, 0.4, 0.6, 0.8, 1.2), measure_s=20.0)
QUICK = DemoShape(utilisations=(0.2, 0.4, 0.8), measure_s=12.0)
# A point must expect so many requests; a slow machine therefore measures longer, never nothing.
_MIN_EXPECTED = 6


async def solo_service_s(
    adapter: Adapter, prompts: Sequence[Prompt], *, settings: WireSettings, clock: Clock
) -> float:
    """Median time of whole requests sent one after the other, in seconds.

    Raises:
        EngineNotReadyError: one of them failed; the message says how.
    """
    times_s = []
    for prompt in prompts:
        request = SpeechRequest(f"solo-{prompt.id}", prompt.text)
        record = (await single(adapter, request, settings=settings, clock=clock)).record
        if record.transport_outcome is not TransportOutcome.OK:
            raise EngineNotReadyError(
                f"{adapter.base_url}: a request sent alone ended as {record.transport_outcome}: "
                f"{record.error_text}"
            )
        assert record.finished_ns is not None
        assert record.dispatched_ns is not None
        times_s.append((record.finished_ns - record.dispatched_ns) / 1e9)
    return statistics.median(times_s)


def demo_scenario(
    shape: DemoShape, base_urls: Mapping[str, str], *, service_s: float, seed: int = 1
) -> Scenario:
    """The same arrivals and prompts for every engine, at rates of `utilisation / service_s`.

    Args:
        shape: full or quick.
        base_urls: engine label -> address; each is one `earwitness-piper` server.
        service_s: the larger solo service time of them.
        seed: of arrivals and prompts.
    """
    lowest_rps = min(shape.utilisations) / service_s
    data: dict[str, Any] = {
        "schema": 1,
        "name": "demo",
        "engines": [
            {"name": label, "contract": "earwitness-piper", "base_url": url}
            for label, url in base_urls.items()
        ],
        "arrivals": {
            "process": "poisson",
            "rates_rps": [_rounded(share / service_s) for share in shape.utilisations],
            "seeds": [seed],
        },
        "phases": {
            "warmup_s": shape.warmup_s,
            "measure_s": max(shape.measure_s, _rounded(_MIN_EXPECTED / lowest_rps)),
            "drain_s": 15.0,
        },
        "prompts": {"set": "voice-agent", "tags": list(DEMO_TAGS)},
    }
    return parse_scenario(data, where="demo", base_dir=Path.cwd())


def _rounded(rate_rps: float) -> float:
    """Two decimals: enough to tell the points apart, short enough to read."""
    return round(rate_rps, 2)
