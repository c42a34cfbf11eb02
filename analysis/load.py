"""How many requests were in flight, over the measurement phase of a point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness.records import PointRecord

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["InFlight", "in_flight_over"]


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step function: `counts[i]` requests from `times_ns[i]` on, until `end_ns`."""

    times_ns: NDArray[np.int64]
    counts: NDArray[np.int64]
    end_ns: int

    @property
    def mean(self) -> float:
        """Averaged over time."""
        spans = np.diff(np.append(self.times_ns, self.end_ns))
        return float((self.counts * spans).sum() / spans.sum())

    def sampled(self, num: int) -> NDArray[np.float64]:
        """Its value at `num` moments spread evenly over the phase."""
        moments = np.linspace(self.times_ns[0], self.end_ns, num, endpoint=False)
        places = np.searchsorted(self.times_ns, moments, side="right") - 1
        return self.counts[places].astype(np.float64)

    def mean_between(self, begin_ns: int, end_ns: int) -> float:
        """Averaged over [begin, end)."""
        edges = np.clip(np.append(self.times_ns, self.end_ns), begin_ns, end_ns)
        return float((self.counts * np.diff(edges)).sum() / (end_ns - begin_ns))


def in_flight_over(requests: pd.DataFrame, point: PointRecord) -> InFlight | None:
    """Requests in flight during the measurement phase.

    Args:
        requests: rows of the point (warm-up ones too, where they reach into the phase).
        point: whose phase ends are used.

    Returns:
        None where the phase has no known ends or nothing was dispatched.
    """
    begin, end = point.warmup_end_ns, point.measure_end_ns
    sent = requests[requests["dispatched_ns"].notna()]
    if begin is None or end is None or end <= begin or sent.empty:
        return None
    starts = sent["dispatched_ns"].to_numpy(dtype=np.int64)
    ends = sent["finished_ns"].fillna(np.iinfo(np.int64).max).to_numpy(dtype=np.int64)
    times = np.concatenate((starts, ends))
    steps = np.concatenate((np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)))
    # Endings first where both fall on one instant: a closed loop of one is never two.
    order = np.lexsort((steps, times))
    times, counts = times[order], np.cumsum(steps[order])
    before = np.searchsorted(times, begin, side="right")
    inside = slice(before, np.searchsorted(times, end, side="left"))
    at_begin = int(counts[before - 1]) if before else 0
    return InFlight(
        times_ns=np.concatenate(([begin], times[inside])),
        counts=np.concatenate(([at_begin], counts[inside])),
        end_ns=end,
    )
