"""The demo's rates follow from the machine it runs on."""

from __future__ import annotations

import pytest

from engines import registry
from engines.base import SpeechRequest
from harness.clock import RunClock
from harness.demo import (
    FULL,
    NUM_SOLO,
    QUICK,
    DemoShape,
    demo_scenario,
    load_duration_s,
    max_wer_rate_rps,
    solo_prompts,
    solo_service_s,
)
from harness.loop import run
from harness.prompts import Prompt, load_prompts
from harness.schedule import build_schedule
from harness.settings import WireSettings
from harness.single import SingleResult
from tests.builders.runs import ms, record

URLS = {"stream": "http://127.0.0.1:1", "sentence": "http://127.0.0.1:2"}


def test_rates_are_shares_of_the_solo_service_rate():
    """A service time of 0.5 s makes utilisation 0.3 a rate of 0.6 requests a second."""
    scenario = demo_scenario(FULL, URLS, service_s=0.5)

    assert (0.6, 1.12, 1.6, 3.0) == scenario.arrivals.rates_rps


def test_quick_demo_has_three_rates_of_twelve_seconds():
    """Quick means fewer and shorter points, not other ones."""
    scenario = demo_scenario(QUICK, URLS, service_s=0.4)

    assert ((0.72, 2.0, 3.76), 12.5) == (scenario.arrivals.rates_rps, scenario.phases.measure_s)


@pytest.mark.parametrize("shape", [FULL, QUICK])
def test_last_rate_is_far_beyond_capacity_and_the_first_far_below(shape: DemoShape):
    """Idle, busy and overloaded, even where the solo time is a quarter too long or too short."""
    assert shape.utilisations[0] * 1.25 < 0.5
    assert 1.1 < shape.utilisations[-1] / 1.25


@pytest.mark.parametrize("service_s", [0.05, 0.18, 0.35, 0.75, 2.0])
@pytest.mark.parametrize("shape", [FULL, QUICK])
def test_every_point_offers_exactly_its_rate(shape: DemoShape, service_s: float):
    """Short points, and still no rate that differs from what was sent; enough of them each."""
    scenario = demo_scenario(shape, URLS, service_s=service_s)
    rates = scenario.arrivals.rates_rps
    plans = [build_schedule(scenario, rate_rps=rate_rps, seed=1) for rate_rps in rates]

    assert list(rates) == pytest.approx([plan.offered_rps for plan in plans])
    assert shape.min_requests <= plans[0].num_measured
    assert all(rate_rps == round(rate_rps, 2) for rate_rps in rates)


def test_slow_machine_measures_longer():
    """Twelve requests are sent at the lowest rate, however slow the voice is."""
    scenario = demo_scenario(FULL, URLS, service_s=2.0)

    assert (100.0, 0.15) == (scenario.phases.measure_s, scenario.arrivals.rates_rps[0])


def test_both_modes_meet_every_rate():
    """Engines take turns at each rate."""
    points = demo_scenario(QUICK, URLS, service_s=1.0).points()

    assert ["stream", "sentence"] * 3 == [point.engine for point in points]


def test_prompts_are_short_and_can_be_scored():
    """At most twelve words, and enough of them that few repeat within a point."""
    scenario = demo_scenario(QUICK, URLS, service_s=1.0)
    prompts = load_prompts(scenario.prompts.set, tags=scenario.prompts.tags).prompts

    assert max(len(prompt.text.split()) for prompt in prompts) <= 12
    assert len(prompts) >= 60


def test_words_are_scored_below_saturation():
    """Up to utilisation 0.8: with a service time of 0.5 s that is 1.6 a second."""
    assert 1.6 == max_wer_rate_rps(FULL, demo_scenario(FULL, URLS, service_s=0.5))


def test_duration_counts_the_queue_that_overload_leaves():
    """Six points of 14.5 s and 1.5 s beside each; beyond capacity the work takes longer."""
    scenario = demo_scenario(QUICK, URLS, service_s=0.5)
    top_rps = scenario.arrivals.rates_rps[-1]

    assert 6 * 16.0 == load_duration_s(scenario, {"stream": 0.1, "sentence": 0.1})
    assert 6 * 16.0 + 14.5 * (0.5 * top_rps - 1) == pytest.approx(
        load_duration_s(scenario, {"stream": 0.5, "sentence": 0.1})
    )


def test_solo_prompts_are_of_all_lengths():
    """The shortest, the longest and evenly between: the median is that of a middling text."""
    prompts = [Prompt(f"p{n}", "x" * n) for n in range(1, 14)]

    assert [1, 3, 5, 7, 9, 11, 13] == [len(prompt.text) for prompt in solo_prompts(prompts)]


def test_solo_time_leaves_the_cold_server_out(monkeypatch: pytest.MonkeyPatch):
    """The first three take 900 ms and do not count; then the median of one of each prompt."""
    took_ms = [900, 900, 900, 200, 210, 190, 205, 800, 195, 201]
    sent: list[str] = []

    async def answer(_adapter: object, request: SpeechRequest, **_: object) -> SingleResult:
        sent.append(request.text)
        spent = record(dispatched_ns=0, finished_ns=ms(took_ms[len(sent) - 1]))
        return SingleResult(spent, b"")

    monkeypatch.setattr("harness.demo.single", answer)
    prompts = [Prompt(f"p{n}", f"text {n}") for n in range(NUM_SOLO)]
    adapter = registry.create("generic", base_url="http://127.0.0.1:9")
    found = run(solo_service_s(adapter, prompts, settings=WireSettings(), clock=RunClock()))

    assert 0.201 == found
    assert [prompt.text for prompt in (*prompts[-3:], *prompts)] == sent
