"""Sojourn times of simulated queues, many replications at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["poisson_queue", "true_quantile"]


def poisson_queue(
    utilisation: float,
    num_runs: int,
    num_arrivals: int,
    *,
    seed: int,
    num_servers: int = 1,
    service_cv: float = 0.0,
    num_before: int = 2000,
) -> NDArray[np.float64]:
    """Time in system of M/G/1 (gamma service of mean 1) or M/D/c queues, [num_runs, num_arrivals].

    The first `num_before` requests are run and dropped, so that what is returned is stationary.
    With equal service times requests take servers in turn, so M/D/c needs no sorting; other
    services need one server.
    """
    assert num_servers == 1 or service_cv == 0
    random = np.random.default_rng(seed)
    total = num_before + num_arrivals
    gaps = random.exponential(1 / (utilisation * num_servers), (num_runs, total))
    service = np.ones((num_runs, total))
    if service_cv:
        service = random.gamma(1 / service_cv**2, service_cv**2, (num_runs, total))
    arrivals = np.cumsum(gaps, axis=1)
    free = np.zeros((num_runs, num_servers))
    found = np.empty((num_runs, num_arrivals))
    for i in range(total):
        server = i % num_servers
        ends = np.maximum(arrivals[:, i], free[:, server]) + service[:, i]
        free[:, server] = ends
        if i >= num_before:
            found[:, i - num_before] = ends - arrivals[:, i]
    return found


def true_quantile(percent: int, utilisation: float, **queue: float) -> float:
    """From a long simulation of the same queue."""
    long = poisson_queue(utilisation, 400, 4000, seed=99, **queue)
    return float(np.quantile(long, percent / 100, method="inverted_cdf"))
