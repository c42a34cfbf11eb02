"""The demo's rates follow from the machine it runs on."""

from __future__ import annotations

from harness.demo import FULL, QUICK, demo_scenario
from harness.prompts import load_prompts

URLS = {"stream": "http://127.0.0.1:1", "sentence": "http://127.0.0.1:2"}


def test_rates_are_shares_of_the_solo_service_rate():
    """A service time of 0.5 s makes utilisation 0.2 a rate of 0.4 requests a second."""
    scenario = demo_scenario(FULL, URLS, service_s=0.5)

    assert (0.4, 0.8, 1.2, 1.6, 2.4) == scenario.arrivals.rates_rps


def test_quick_demo_has_three_rates_of_twelve_seconds():
    """Quick means fewer and shorter points, not other ones."""
    scenario = demo_scenario(QUICK, URLS, service_s=0.4)

    assert ((0.5, 1.0, 2.0), 12.0) == (scenario.arrivals.rates_rps, scenario.phases.measure_s)


def test_slow_machine_measures_longer():
    """Six requests are expected at the lowest rate, however slow the voice is."""
    scenario = demo_scenario(QUICK, URLS, service_s=2.0)

    assert scenario.phases.measure_s == 60.0


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
