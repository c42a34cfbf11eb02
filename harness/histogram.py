"""Percentiles of very many durations in constant memory and under a microsecond each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DurationHistogram", "DurationSummary"]

# Each power of two is divided into this many steps, so a value is known to 1 part in 32.
_STEP_BITS = 5
_NUM_STEPS = 1 << _STEP_BITS
_NUM_BUCKETS = 64 * _NUM_STEPS


@dataclass(frozen=True, slots=True)
class DurationSummary:
    """Nearest-rank percentiles, to 3 % above; None without values. `max_ns` is exact."""

    n: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None

    def in_ms(self) -> dict[str, float | int | None]:
        """For the run record: milliseconds under plain names."""
        values = {"p50": self.p50_ns, "p99": self.p99_ns, "max": self.max_ns}
        ms = {name: None if v is None else round(v / 1e6, 4) for name, v in values.items()}
        return {"n": self.n, **ms}


class DurationHistogram:
    """Counts durations in buckets of 3 % width. Negative ones count as zero."""

    __slots__ = ("_counts", "_max_ns", "_n")

    def __init__(self) -> None:
        self._counts = [0] * _NUM_BUCKETS
        self._max_ns = 0
        self._n = 0

    def add(self, duration_ns: int) -> None:
        """Count one."""
        if duration_ns < 0:
            duration_ns = 0
        if duration_ns > self._max_ns:
            self._max_ns = duration_ns
        self._n += 1
        shift = max(0, duration_ns.bit_length() - _STEP_BITS - 1)
        self._counts[shift * _NUM_STEPS + (duration_ns >> shift)] += 1

    def clear(self) -> None:
        """Begin anew."""
        self._counts = [0] * _NUM_BUCKETS
        self._max_ns = self._n = 0

    def summary(self) -> DurationSummary:
        """What was counted so far."""
        if self._n == 0:
            return DurationSummary(0, None, None, None)
        return DurationSummary(self._n, self._rank(50), self._rank(99), self._max_ns)

    def _rank(self, percent: int) -> int:
        wanted = -(-self._n * percent // 100)
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= wanted:
                return min(self._max_ns, _upper_edge(bucket))
        return self._max_ns


def _upper_edge(bucket: int) -> int:
    """The largest duration of a bucket."""
    if bucket < 2 * _NUM_STEPS:
        return bucket
    shift = bucket // _NUM_STEPS - 1
    step = bucket - shift * _NUM_STEPS
    return ((step + 1) << shift) - 1
