"""Which sample rates and channel counts are believed, whoever states them."""

from __future__ import annotations

from typing import TypeGuard

__all__ = [
    "MAX_CHANNELS",
    "MAX_RATE_HZ",
    "MIN_RATE_HZ",
    "is_channel_count",
    "is_sample_rate",
    "is_whole_number",
]

# From below telephony to the fastest converters; anything else is a mistake in a message.
MIN_RATE_HZ = 1000
MAX_RATE_HZ = 768_000
MAX_CHANNELS = 16


def is_whole_number(value: object, low: int, high: int) -> TypeGuard[int]:
    """Whether it is an integer of this range; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_sample_rate(value: object) -> TypeGuard[int]:
    """Whether it can be a rate in Hz."""
    return is_whole_number(value, MIN_RATE_HZ, MAX_RATE_HZ)


def is_channel_count(value: object) -> TypeGuard[int]:
    """Whether it can be a number of channels."""
    return is_whole_number(value, 1, MAX_CHANNELS)
