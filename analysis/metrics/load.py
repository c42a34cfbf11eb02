"""What the server carried: rate, requests in flight, listeners, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.metrics.base import (
    Better,
    PointData,
    PointMetric,
    PointValue,
    ValueStatus,
    share_metric,
)
from analysis.outcomes import failures, is_interrupted
from engines.outcomes import TransportOutcome

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["METRICS", "achieved_rate"]

_NO_DATA = PointValue(None, None, None, 0, 0, ValueStatus.NO_DATA)


def achieved_rate(data: PointData) -> PointValue:
    sent = data.cohort["dispatched_ns"].dropna()
    begin_ns, end_ns = data.point.warmup_end_ns, data.point.measure_end_ns
    if data.measure_s is None or begin_ns is None or end_ns is None:
        return _NO_DATA
    # A client that sends the plan late sends it slower than planned.
    last_ns = max(end_ns, int(sent.max())) if len(sent) else end_ns
    return _plain(len(sent) / ((last_ns - begin_ns) / 1e9), len(sent))


def first_try_failures(cohort: pd.DataFrame) -> pd.Series[bool]:
    failed = failures(cohort)
    tried_again: pd.Series[bool] = cohort.loc[failed.index, "attempts"] > 1
    return failed | tried_again


def finished(cohort: pd.DataFrame) -> pd.Series[bool]:
    ended = cohort["transport_outcome"].isin(
        [TransportOutcome.OK.value, TransportOutcome.CANCELLED.value]
    )
    ended &= ~is_interrupted(cohort)
    return ended


def in_flight_mean(data: PointData) -> PointValue:
    curve = data.in_flight
    return _NO_DATA if curve is None else _plain(curve.mean, len(data.cohort))


def in_flight_max(data: PointData) -> PointValue:
    curve = data.in_flight
    return _NO_DATA if curve is None else _plain(float(curve.counts.max()), len(data.cohort))


def listeners(data: PointData) -> PointValue:
    rate = achieved_rate(data)
    seconds = data.cohort["audio_duration"].dropna().to_numpy(dtype=np.float64)
    missing = len(data.cohort) - len(seconds)
    if rate.value is None or not len(seconds):
        return PointValue(None, None, None, 0, missing, ValueStatus.NO_DATA)
    # Nobody listens to a request that failed.
    num_replies = len(data.cohort) - int(failures(data.cohort).sum())
    value = rate.value * num_replies / rate.n * float(seconds.mean())
    return PointValue(value, None, None, len(seconds), missing, ValueStatus.NO_INTERVAL)


def _plain(value: float, n: int) -> PointValue:
    return PointValue(value, None, None, n, 0, ValueStatus.NO_INTERVAL)


METRICS = (
    PointMetric(
        "achieved_rate",
        "1/s",
        Better.NEITHER,
        "Requests dispatched per second of the measurement phase, or of the time until the last of"
        " them had left",
        achieved_rate,
    ),
    share_metric(
        "failure_rate",
        Better.LOWER,
        "Share of arrivals that did not end as `ok`; those the scenario cancelled are left out",
        failures,
    ),
    share_metric(
        "first_try_failure_rate",
        Better.LOWER,
        "Share of arrivals that failed, or needed a second attempt",
        first_try_failures,
    ),
    share_metric(
        "finished_share",
        Better.HIGHER,
        "Share of arrivals whose reply had ended cleanly by the end of the drain",
        finished,
    ),
    PointMetric(
        "in_flight_mean",
        "requests",
        Better.NEITHER,
        "Requests in flight, averaged over the measurement phase, warm-up ones that reach into it"
        " included",
        in_flight_mean,
    ),
    PointMetric(
        "in_flight_max",
        "requests",
        Better.NEITHER,
        "Most requests in flight at once in the measurement phase, likewise",
        in_flight_max,
    ),
    PointMetric(
        "concurrent_listeners",
        "listeners",
        Better.NEITHER,
        "Replies per second (achieved rate less what failed) times mean audio duration: how many"
        " are being listened to at once",
        listeners,
    ),
)
