"""The demo's load: how long one request takes alone, and rates that follow from it.

Rates are shares of what one worker of the slower mode can do, so that the same command shows an
idle, a busy and an overloaded engine on any machine. No rate is fixed in advance.
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
    "load_duration_s",
    "max_wer_rate_rps",
    "solo_prompts",
    "solo_service_s",
]

NUM_SOLO = 7
# The first requests of a server fill its caches and cost up to twice the time of later ones.
_NUM_SOLO_WARMUP = 3
# At most 12 words, and no digits, names or addresses: recognition can be scored on all of them.
DEMO_TAGS = ("short", "wer")
# Words are scored below saturation; what an overloaded point says is the same audio, only later.
MAX_WER_UTILISATION = 0.8


@dataclass(frozen=True, slots=True)
class DemoShape:
    """How much load: shares of the solo service rate, in order, and seconds of measurement at each.

    Every point has `min_requests` or more: a slow machine measures longer.
    """

    utilisations: tuple[float, ...]
    measure_s: float
    min_requests: int
    warmup_s: float = 2.0


# Few rates with many requests each: a percentile of ten requests says nothing. The last is so far
# beyond capacity that the queue's growth shows within the point, whatever the solo time missed.
FULL = DemoShape(utilisations=(0.3, 0.55, 0.8, 1.5), measure_s=25.0, min_requests=12)
QUICK = DemoShape(utilisations=(0.3, 0.8, 1.5), measure_s=12.5, min_requests=6)
# What a point takes beside its phases: connections, the last replies, closing the tables.
_POINT_OVERHEAD_S = 1.5


def solo_prompts(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Prompts of evenly spread lengths, for the median to be that of a typical text."""
    by_length = sorted(prompts, key=lambda prompt: (len(prompt.text), prompt.id))
    last = len(by_length) - 1
    return tuple(by_length[round(n * last / (NUM_SOLO - 1))] for n in range(NUM_SOLO))


async def solo_service_s(
    adapter: Adapter, prompts: Sequence[Prompt], *, settings: WireSettings, clock: Clock
) -> float:
    """Median time of whole requests sent one after the other to a warm server, in seconds.

    The last few prompts go first and are not counted: what a cold server takes is no service time.

    Raises:
        EngineNotReadyError: one of them failed; the message says how.
    """
    times_s = []
    for prompt in (*prompts[-_NUM_SOLO_WARMUP:], *prompts):
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
    return statistics.median(times_s[-len(prompts) :])


def demo_scenario(
    shape: DemoShape, base_urls: Mapping[str, str], *, service_s: float, seed: int = 1
) -> Scenario:
    """The same arrivals and prompts for every engine, at rates of `utilisation / service_s`.

    Rates are multiples of one arrival a point, so that each is offered exactly.

    Args:
        shape: full or quick.
        base_urls: engine label -> address; each is one `earwitness-piper` server.
        service_s: the larger solo service time of them.
        seed: of arrivals and prompts.
    """
    measure_s = shape.measure_s
    while shape.utilisations[0] / service_s * measure_s < shape.min_requests:
        measure_s *= 2
    arrivals_s = shape.warmup_s + measure_s
    data: dict[str, Any] = {
        "schema": 1,
        "name": "demo",
        "engines": [
            {"name": label, "contract": "earwitness-piper", "base_url": url}
            for label, url in base_urls.items()
        ],
        "arrivals": {
            "process": "poisson",
            "count": "expected",
            "rates_rps": [
                round(share / service_s * measure_s) / measure_s for share in shape.utilisations
            ],
            "seeds": [seed],
        },
        "phases": {
            "warmup_s": shape.warmup_s,
            "measure_s": measure_s,
            # Twice what the queue of the highest rate needs.
            "drain_s": 10.0 + 2 * max(0.0, shape.utilisations[-1] - 1) * arrivals_s,
        },
        "prompts": {"set": "voice-agent", "tags": list(DEMO_TAGS)},
        # The requests that gave `service_s` have shown it already.
        "preflight": False,
    }
    return parse_scenario(data, where="demo", base_dir=Path.cwd())


def max_wer_rate_rps(shape: DemoShape, scenario: Scenario) -> float:
    """The highest rate of the demo at which words are scored."""
    num = sum(share <= MAX_WER_UTILISATION for share in shape.utilisations)
    return scenario.arrivals.rates_rps[num - 1]


def load_duration_s(scenario: Scenario, service_s: Mapping[str, float]) -> float:
    """How long the load will take: every point, and the queue that an overloaded one leaves.

    Args:
        scenario: of the demo.
        service_s: engine label -> its solo service time.
    """
    phases = scenario.phases
    arrivals_s = phases.warmup_s + phases.measure_s
    return sum(
        arrivals_s * max(1.0, point.rate_rps * service_s[point.engine]) + _POINT_OVERHEAD_S
        for point in scenario.points()
    )
