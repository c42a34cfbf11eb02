"""A growing queue is told from a busy one: few false alarms, power that grows with the load."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.load import InFlight
from analysis.stats.saturation import in_flight_growth

WARMUP_SHARE = 0.2


def queue_curve(
    utilisation: float, num_arrivals: int, *, seed: int, num_servers: int = 1
) -> InFlight:
    """In flight over the measured part of an M/G/c queue with service of mean 1, CV 0.3."""
    random = np.random.default_rng(seed)
    total = int(num_arrivals * (1 + WARMUP_SHARE))
    arrivals = np.cumsum(random.exponential(1 / (utilisation * num_servers), total))
    service = random.gamma(1 / 0.09, 0.09, total)
    free = np.zeros(num_servers)
    ends = np.empty(total)
    for i in range(total):
        server = int(free.argmin())
        ends[i] = free[server] = max(arrivals[i], free[server]) + service[i]
    begin, end = arrivals[int(num_arrivals * WARMUP_SHARE)], arrivals[-1]
    times = np.concatenate((arrivals, ends))
    steps = np.concatenate((np.ones(total), -np.ones(total)))
    order = np.lexsort((steps, times))
    times, counts = times[order], np.cumsum(steps[order]).astype(np.int64)
    first, last = np.searchsorted(times, begin, side="right"), np.searchsorted(times, end)
    return InFlight(
        (np.concatenate(([begin], times[first:last])) * 1e9).astype(np.int64),
        np.concatenate(([counts[first - 1]], counts[first:last])),
        int(end * 1e9),
    )


def share_growing(utilisation: float, num_arrivals: int, **options) -> float:
    found = [
        in_flight_growth(queue_curve(utilisation, num_arrivals, seed=seed, **options), num_arrivals)
        for seed in range(100)
    ]
    return sum(growth.is_growing for growth in found) / len(found)


@pytest.mark.parametrize("num_servers", [1, 4])
@pytest.mark.parametrize("utilisation", [0.4, 0.8])
def test_busy_server_is_hardly_ever_called_overloaded(utilisation, num_servers):
    """At most 3 of 100 runs of 60 arrivals."""
    assert share_growing(utilisation, 60, num_servers=num_servers) <= 0.03


@pytest.mark.parametrize(
    ("utilisation", "num_arrivals", "power"), [(1.5, 60, 0.8), (1.2, 200, 0.75)]
)
def test_overload_is_seen(utilisation, num_arrivals, power):
    """The further past capacity, and the longer the run, the surer."""
    assert share_growing(utilisation, num_arrivals) >= power


def test_few_arrivals_tell_nothing():
    """Null rather than a guess."""
    assert in_flight_growth(queue_curve(2.0, 11, seed=1), 11) is None
