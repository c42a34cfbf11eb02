"""What accuracy has to be, by load: the lines that `earwitness accuracy` prints beside each figure.

Judges nothing: it says where a line is and on which side of it a figure lies.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.accuracy.figures import Accuracy

__all__ = ["Bar", "bars_for"]


@dataclass(frozen=True, slots=True)
class Bar:
    """One line. `value` None: could not be measured, and so is not met.

    is_upper: the limit is the most that is allowed, else the least.
    """

    name: str
    unit: str
    value: float | None
    limit: float
    is_upper: bool = True

    @property
    def is_met(self) -> bool:
        """Whether the figure is on the right side."""
        if self.value is None:
            return False
        return self.value <= self.limit if self.is_upper else self.value >= self.limit


@dataclass(frozen=True, slots=True)
class _Load:
    """Lines for up to so many replies in flight."""

    max_streams: float
    min_coverage: float
    max_dispatch_lag_ms: float


_LOADS = (
    _Load(10, 1.0, 1.0),
    _Load(100, 1.0, 2.0),
    _Load(float("inf"), 0.999, 5.0),
)


def bars_for(accuracy: Accuracy, *, streams: int) -> tuple[Bar, ...]:
    """Every line for a run with that many replies in flight.

    Stamps inside send: of those that claim to be exact. Not accounted for: shared stamps whose
    admitted doubt misses the truth, and borders between chunks that were lost. TTFA: audible, of
    abrupt onsets.
    """
    load = next(each for each in _LOADS if streams <= each.max_streams)
    stamps, playback, identity = accuracy.stamps, accuracy.playback, accuracy.identity
    clean = accuracy.report.error_ms.get("audible_ttfa_clean")
    wrong_underruns = playback.num_missed + playback.num_invented
    wrong_bytes = identity.num_wrong_marks + len(identity.wrong_outcomes) + identity.num_unmatched
    return (
        Bar("stamps inside send", "share", stamps.coverage, load.min_coverage, is_upper=False),
        Bar(
            "not accounted for",
            "chunks",
            float(stamps.num_unaccounted + stamps.num_lost_boundaries),
            0.0,
        ),
        Bar(
            "dispatch lag p99",
            "ms",
            accuracy.timing.dispatch_lag_ms.p99,
            load.max_dispatch_lag_ms,
        ),
        Bar("TTFA error p99", "ms", None if clean is None else clean.p99, 1.0),
        Bar("underruns wrong", "chunks", float(wrong_underruns), 0.0),
        Bar("replies undecided", "share", playback.undecided_share, 0.01),
        Bar("bytes, endings wrong", "requests", float(wrong_bytes), 0.0),
    )
