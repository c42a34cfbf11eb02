"""Barge-in: how long a server keeps talking to a listener who has hung up, and who waits for it."""

from __future__ import annotations

import numpy as np

from analysis.metrics.base import (
    Better,
    PointData,
    PointMetric,
    PointValue,
    RequestMetric,
    ValueStatus,
    ms_between,
)
from analysis.outcomes import FAILED_OUTCOMES
from analysis.percentiles import percentile, sort_values
from analysis.view import RequestView
from harness.records import HUNG_UP_KIND

__all__ = ["METRICS"]


def cancel_to_last_byte(view: RequestView) -> float | None:
    record = view.record
    if record.cancel_ns is None or record.error_kind == HUNG_UP_KIND:
        return None
    last_ns = max((c.arrival_ns for c in record.chunks), default=record.cancel_ns)
    return ms_between(record.cancel_ns, max(last_ns, record.cancel_ns))


def audible_ttfa_after_cancel(data: PointData) -> PointValue:
    """p50 over the arrivals that were the next ones after a cancellation."""
    rows = data.cohort.sort_values("scheduled_ns")
    scheduled = rows["scheduled_ns"].to_numpy(dtype=np.int64)
    cancelled = rows["cancel_ns"].dropna().to_numpy(dtype=np.int64)
    places = np.unique(np.searchsorted(scheduled, cancelled, side="right"))
    next_ones = rows.iloc[places[places < len(rows)]]
    values = next_ones["audible_ttfa"].to_numpy(dtype=np.float64, na_value=np.nan)
    values = np.where(next_ones["outcome"].isin(FAILED_OUTCOMES), np.inf, values)
    measured = values[~np.isnan(values)]
    found = percentile(sort_values(measured), 50)
    return PointValue(
        found.value,
        found.lo,
        found.hi,
        len(measured),
        len(values) - len(measured),
        ValueStatus(found.status.value),
    )


METRICS = (
    RequestMetric(
        "cancel_to_last_byte",
        "ms",
        Better.LOWER,
        "From the listener's cancel to the last payload byte; 0 where none came after it; null"
        " where the protocol has no cancel and the connection was closed",
        cancel_to_last_byte,
    ),
    PointMetric(
        "audible_ttfa_after_cancel",
        "ms",
        Better.LOWER,
        "p50 of audible_ttfa over the arrivals that came next after a cancel: whether dropped work"
        " still stands in the way",
        audible_ttfa_after_cancel,
    ),
)
