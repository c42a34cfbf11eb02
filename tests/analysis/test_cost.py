"""Costs against hand-worked and published figures."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from analysis.cost import CostInputs, cost_of, cost_of_hosted

# 4.29 per hour, 10 requests/s, all the time; prompts of about 60 characters.
PUBLISHED = CostInputs(price_per_hour=4.29, rate_rps=10, characters_per_request=60)


def test_published_price_of_two_dollars_per_million_characters():
    """4.29 / (10 x 3,600 x 60) x 1,000,000 = 1.99."""
    assert 1.99 == pytest.approx(cost_of(PUBLISHED).per_million_characters, abs=0.005)


def test_half_utilisation_costs_twice():
    """The machine is paid for whether it speaks or not."""
    half = cost_of(replace(PUBLISHED, utilisation=0.5))

    assert 2 * cost_of(PUBLISHED).per_million_characters == pytest.approx(
        half.per_million_characters
    )


def test_one_spare_beside_two_costs_half_more():
    """Three paid, two speaking."""
    spared = cost_of(replace(PUBLISHED, num_replicas=2, num_spare=1))

    assert 1.5 * cost_of(PUBLISHED).per_million_characters == pytest.approx(
        spared.per_million_characters
    )


def test_hour_of_audio_from_its_length():
    """10 requests/s of 4 s are 40 hours of audio an hour."""
    cost = cost_of(replace(PUBLISHED, audio_s_per_request=4.0))

    assert 4.29 / 40 == pytest.approx(cost.per_audio_hour)


def test_audio_that_was_not_measured_has_no_price():
    """Null, not 0."""
    assert cost_of(PUBLISHED).per_audio_hour is None


def test_inputs_stand_beside_the_figure():
    """Nobody has to guess what it rests on."""
    text = str(cost_of(replace(PUBLISHED, utilisation=0.7, num_spare=1)))

    assert "1.99" not in text
    for words in ("4.29 USD", "10 requests/s", "60 characters", "70 % utilisation", "1 spare"):
        assert words in text


def test_hosted_service_has_its_list_price():
    """15 per million; at 15 characters per second of speech, 0.81 per hour of audio."""
    cost = cost_of_hosted(15.0, characters_per_audio_s=15.0)

    assert (15.0, 0.81) == (cost.per_million_characters, pytest.approx(cost.per_audio_hour))
    assert "list price" in str(cost)


@pytest.mark.parametrize(
    "wrong",
    [
        {"price_per_hour": 0.0},
        {"rate_rps": math.nan},
        {"characters_per_request": -1.0},
        {"utilisation": 1.5},
        {"num_replicas": 0},
        {"num_spare": -1},
    ],
)
def test_impossible_inputs_are_refused(wrong):
    """Named in the message."""
    with pytest.raises(ValueError, match="cost"):
        replace(PUBLISHED, **wrong)


def test_impossible_list_price_is_refused():
    """A negative one."""
    with pytest.raises(ValueError, match="list price"):
        cost_of_hosted(-1.0)
