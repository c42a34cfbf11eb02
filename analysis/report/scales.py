"""From values to positions, and round numbers to label an axis with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LinearScale", "LogScale", "Scale", "linear_scale", "log_scale", "tick_label"]

# Below this a span is rounding, and no axis: nothing here is measured in such units.
_SMALLEST_SPAN = 1e-9
_NICE_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class LinearScale:
    """Domain [low, high] onto pixels [start, stop]; either may run backwards."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The position of a value, clamped to the plot."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.stop - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """About `wanted` round values inside the domain."""
        step = _nice_step((self.high - self.low) / max(1, wanted))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(number * step, 10) for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class LogScale:
    """Like `LinearScale`, in decades; the domain is above zero."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The position of a value; zero and below sit at the low end."""
        low, high = math.log10(self.low), math.log10(self.high)
        share = (math.log10(value) - low) / (high - low) if value > 0 else 0.0
        return self.start + min(1.0, max(0.0, share)) * (self.stop - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """1, 2 and 5 of every decade, or decades alone where that would be too many."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for heads in ((1, 2, 5), (1, 3), (1,)):
            found = [
                head * 10.0**decade
                for decade in range(first, last + 1)
                for head in heads
                if self.low * 0.999 <= head * 10.0**decade <= self.high * 1.001
            ]
            if len(found) <= wanted + 2:
                break
        return found


Scale = LinearScale | LogScale


def linear_scale(values: Iterable[float], start: float, stop: float) -> LinearScale:
    """A scale around zero and the values, its ends on round numbers."""
    found = [value for value in values if math.isfinite(value)]
    low, high = min(0.0, *found, 0.0), max(0.0, *found, 0.0)
    if high - low < _SMALLEST_SPAN:
        low, high = 0.0, 1.0
    step = _nice_step((high - low) / 5)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return LinearScale(low, high, start, stop)


def log_scale(values: Iterable[float], start: float, stop: float) -> LogScale:
    """A scale around positive values with some air; others are left out."""
    found = [value for value in values if math.isfinite(value) and value > 0] or [1.0, 10.0]
    low, high = min(found) / 1.15, max(found) * 1.15
    if high / low < 4:  # less than this shows no labelled tick but one
        middle = math.sqrt(low * high)
        low, high = middle / 2, middle * 2
    return LogScale(low, high, start, stop)


def tick_label(value: float) -> str:
    """Short and exact: 0.5, 20, 1500 as 1.5k."""
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if abs(value) >= 10_000:
        return f"{value / 1_000:g}k"
    return f"{value:g}"


def _nice_step(raw: float) -> float:
    magnitude = 10.0 ** math.floor(math.log10(raw))
    return next(step for step in _NICE_STEPS if step * magnitude >= raw * (1 - 1e-9)) * magnitude
