"""Which stated rates and channel counts are believed."""

from __future__ import annotations

import pytest

from engines.shape import is_channel_count, is_sample_rate, is_whole_number


@pytest.mark.parametrize("rate", [1000, 8000, 22_050, 44_100, 768_000])
def test_rates_from_below_telephony_to_the_fastest_converters_are_believed(rate: int):
    """Every rate that speech is sent at."""
    assert is_sample_rate(rate)


@pytest.mark.parametrize("rate", [0, 999, 768_001, -24_000, 24_000.0, "24000", True, None])
def test_what_is_no_rate_is_not(rate: object):
    """Out of range, or not a whole number: a message that is wrong."""
    assert not is_sample_rate(rate)


def test_up_to_sixteen_channels_are_believed():
    """One is usual; none is no audio."""
    assert [1, 2, 16] == [n for n in (0, 1, 2, 16, 17) if is_channel_count(n)]


def test_true_is_no_number():
    """JSON's true would else pass for 1."""
    assert not is_whole_number(True, 0, 1)
    assert is_whole_number(1, 0, 1)
