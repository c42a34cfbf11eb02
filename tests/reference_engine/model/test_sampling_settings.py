"""Sampling settings: what is accepted, what a sampler plan serves, what a slot stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reference_engine.checkpoint.shapes import SHAPES
from reference_engine.errors import SamplingError
from reference_engine.model.sampling import (
    DEFAULT_PLAN,
    GREEDY_PLAN,
    SamplerKind,
    SamplerPlan,
    SamplingSettings,
)

DEFAULTS = SamplingSettings.from_defaults(SHAPES["1.7b"].model.generation)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"temperature": 0.0}, "temperature: 0.0 is not a number above 0"),
        ({"temperature": float("nan")}, "temperature: nan is not a number above 0"),
        ({"top_k": -1}, "top_k: -1 is below 0 (0 switches it off)"),
        ({"predictor_top_p": 1.5}, "predictor_top_p: 1.5 is not above 0 and at most 1"),
        ({"top_p": 0.0}, "top_p: 0.0 is not above 0 and at most 1"),
        ({"repetition_penalty": -1.0}, "repetition_penalty: -1.0 is not a number above 0"),
        ({"seed": -5}, "seed: -5 is not in 0..2^63-1"),
    ],
)
def test_a_setting_out_of_range_is_named(changes: dict[str, float], line: str):
    """One line, with the value."""
    with pytest.raises(SamplingError) as caught:
        replace(DEFAULTS, **changes)

    assert line == str(caught.value)


@pytest.mark.parametrize(
    ("plan", "changes", "is_served"),
    [
        (DEFAULT_PLAN, {}, True),
        (DEFAULT_PLAN, {"top_k": 65}, False),
        (DEFAULT_PLAN, {"top_k": 0}, False),
        (DEFAULT_PLAN, {"top_k": 0, "do_sample": False}, True),
        (GREEDY_PLAN, {}, False),
        (GREEDY_PLAN, {"do_sample": False, "predictor_do_sample": False}, True),
        (SamplerPlan(SamplerKind.ANY), {"top_k": 0, "top_p": 0.5}, True),
    ],
)
def test_a_plan_serves_what_its_arithmetic_covers(
    plan: SamplerPlan, changes: dict[str, float], is_served: bool
):
    """A partial selection serves a top-k within its cap, and greedy rows always."""
    assert is_served == plan.serves(replace(DEFAULTS, **changes))


def test_the_defaults_are_those_of_the_checkpoint():
    """generation_config.json of the published model."""
    values = DEFAULTS.slot_values()

    assert (0.9, 50, 2.0, 1.0) == tuple(
        values[name] for name in ("temperature", "top_k", "top_p", "draws")
    )
    assert 1.05 == values["repetition_penalty"]
    assert 2 == values["min_tokens"]


def test_greedy_keeps_the_repetition_penalty_and_draws_nothing():
    """As in the original: greedy still penalises codes already drawn."""
    values = SamplingSettings.greedy().slot_values()

    assert 1.05 == values["repetition_penalty"]
    assert (1, 0.0) == (values["predictor_top_k"], values["predictor_draws"])
