"""What the server carried: rate, requests in flight, listeners, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.load import in_flight_over
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

__all__ = ["METRICS"]

_NO_DATA = PointValue(None, None, None, 0, 0, ValueStatus.NO_DATA)


def achieved_rate(data: PointData) -> PointValue:
    sent = data.cohort["dispatched_ns"].dropna()
    if data.measure_s is None:
        return _NO_DATA
    return _plain(len(sent) / data.measure_s, len(sent))


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
    curve = in_flight_over(data.cohort, data.point)
    return _NO_DATA if curve is None else _plain(curve.mean, len(data.cohort))


def in_flight_max(data: PointData) -> PointValue:
    curve = in_flight_over(data.cohort, data.point)
    return _NO_DATA if curve is None else _plain(float(curve.counts.max()), len(data.cohort))


def listeners(data: PointData) -> PointValue:
    rate = achieved_rate(data).value
    seconds = data.cohort["audio_duration"].dropna().to_numpy(dtype=np.float64)
    missing = len(data.cohort) - len(seconds)
    if rate is None or not len(seconds):
        return PointValue(None, None, None, 0, missing, ValueStatus.NO_DATA)
    value = rate * float(seconds.mean())
    return PointValue(value, None, None, len(seconds), missing, ValueStatus.NO_INTERVAL)


def _plain(value: float, n: int) -> PointValue:
    return PointValue(value, None, None, n, 0, ValueStatus.NO_INTERVAL)


METRICS = (
    PointMetric(
        "achieved_rate",
        "1/s",
        Better.NEITHER,
        "Requests dispatched per second of the measurement phase",
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
        "Requests in flight, averaged over the measurement phase",
        in_flight_mean,
    ),
    PointMetric(
        "in_flight_max",
        "requests",
        Better.NEITHER,
        "Most requests in flight at once in the measurement phase",
        in_flight_max,
    ),
    PointMetric(
        "concurrent_listeners",
        "listeners",
        Better.NEITHER,
        "Achieved rate times mean audio duration: how many replies are being listened to at once",
        listeners,
    ),
)
