"""Is the server keeping up, or is a queue growing that no percentile of this run describes?

Under a load it can carry, the number in flight wanders around a level. Under more, it grows by
n (1 - 1 / utilisation) over n arrivals, whatever the run's length, and every latency percentile
then tells how long the run was, not how fast the server is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.load import InFlight

__all__ = ["Growth", "in_flight_growth"]

_MIN_ARRIVALS = 12
# Over n arrivals a queue at the edge of its capacity strays by about sqrt(n) without any trend;
# growth beyond that, and in every third of the phase, is a trend. Checked by simulation in
# tests/analysis/stats: false alarms and power are stated there.
_MIN_RATIO = 1.5


@dataclass(frozen=True, slots=True)
class Growth:
    """The number in flight in the three thirds of the measurement phase, and its net growth."""

    first: float
    middle: float
    last: float
    net: int
    limit: float
    is_growing: bool


def in_flight_growth(curve: InFlight, num_arrivals: int) -> Growth | None:
    """Whether the number in flight grew over the phase; None with too few arrivals to tell."""
    if num_arrivals < _MIN_ARRIVALS:
        return None
    begin = int(curve.times_ns[0])
    edges = [begin + round((curve.end_ns - begin) * part / 3) for part in range(4)]
    first, middle, last = (curve.mean_between(edges[part], edges[part + 1]) for part in range(3))
    net = int(curve.counts[-1] - curve.counts[0])
    limit = math.sqrt(num_arrivals)
    is_growing = net > limit and first < middle < last and last > _MIN_RATIO * first
    return Growth(first, middle, last, net, limit, is_growing)
