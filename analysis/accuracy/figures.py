"""What is said about the accuracy of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.percentiles import nearest_rank
from harness.records import StampSource

__all__ = [
    "Accuracy",
    "ClientTiming",
    "Identity",
    "PlaybackAccuracy",
    "ReportAccuracy",
    "Spread",
    "StampAccuracy",
    "spread",
]


@dataclass(frozen=True, slots=True)
class Spread:
    """Nearest-rank percentiles of n values; None without any. The unit is in the field's name."""

    n: int
    p50: float | None
    p99: float | None
    max: float | None


def spread(values: Sequence[float]) -> Spread:
    """Percentiles of values in any order."""
    if not len(values):
        return Spread(0, None, None, None)
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    p50, p99 = (float(ordered[nearest_rank(len(ordered), q) - 1]) for q in (50, 99))
    return Spread(len(ordered), p50, p99, float(ordered[-1]))


@dataclass(frozen=True, slots=True)
class StampAccuracy:
    """Arrival stamps of chunks against the sends that carried them.

    num_exact: chunks whose stamp is claimed to be their own. num_inside: of those, inside the
        bracket of their send, widened by the conversion error of the clocks alone.
    num_shared: chunks whose stamp is admitted to be an upper bound; num_unaccounted: of those, the
        truth lies outside what was admitted.
    num_lost_boundaries: chunks the server cut that the client did not see as such.
    num_unbounded: sends that the kernel held back, so that nobody knows when they arrived.
    kernel_error_us: of exact stamps, user_error_us: of the moment of reading; from the nearest
        moment that the truth allows, so a stamp inside its bracket has none.
    bracket_us: width of the brackets: how well the truth itself is known.
    shared_width_ms: how much doubt the shared stamps admit.
    """

    num_chunks: int
    num_exact: int
    num_inside: int
    num_shared: int
    num_unaccounted: int
    num_lost_boundaries: int
    num_unbounded: int
    kernel_error_us: Spread
    user_error_us: Spread
    bracket_us: Spread
    shared_width_ms: Spread

    @property
    def coverage(self) -> float | None:
        """Share of exact stamps inside their bracket."""
        return self.num_inside / self.num_exact if self.num_exact else None


@dataclass(frozen=True, slots=True)
class ClientTiming:
    """How late the client was. Windows are 250 ms; a quiet one has a p99 read lag of <= 5 ms.

    request_way_us: from `sent_ns` until the server had read the request.
    num_impossible_sends: requests the server had before the client says it sent them.
    """

    dispatch_lag_ms: Spread
    read_lag_ms: Spread
    num_windows: int
    num_quiet_windows: int
    request_way_us: Spread
    num_impossible_sends: int


@dataclass(frozen=True, slots=True)
class ReportAccuracy:
    """Reported figures against true ones: the most the error can have been, by metric.

    Names with `_clean` are over replies whose sound begins abruptly, so that its first audible
    sample is beyond dispute. onset_error_ms: by script, the largest, early ones negative.
    rate_error: of the achieved rate, as a share.
    """

    error_ms: Mapping[str, Spread]
    onset_error_ms: Mapping[str, float]
    rate_error: float | None


@dataclass(frozen=True, slots=True)
class PlaybackAccuracy:
    """Underruns against those that truly happened.

    num_true: certain by the truth's interval; num_ambiguous: too close to the limit for the truth
    to tell, left out. num_missed, num_invented: reported wrongly, without a word of doubt.
    num_undecided: stalls of which the report says that its stamps cannot tell.
    stall_error_ms: of underruns that both have, at most.
    """

    num_chunks: int
    num_true: int
    num_reported: int
    num_missed: int
    num_invented: int
    num_ambiguous: int
    num_undecided: int
    num_replies: int
    num_replies_undecided: int
    stall_error_ms: Spread

    @property
    def undecided_share(self) -> float | None:
        """Share of replies with an undecided stall."""
        return self.num_replies_undecided / self.num_replies if self.num_replies else None


@dataclass(frozen=True, slots=True)
class Identity:
    """Whether every byte belongs to the request it is stored with and every ending is as played.

    num_unmatched: requests that were dispatched but have no counterpart in the server's log.
    """

    num_requests: int
    num_unmatched: int
    num_marks: int
    num_wrong_marks: int
    wrong_outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Everything about one run."""

    stamp_source: StampSource
    conversion_us: float
    stamps: StampAccuracy
    timing: ClientTiming
    report: ReportAccuracy
    playback: PlaybackAccuracy
    identity: Identity
