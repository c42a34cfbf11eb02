"""Does it play without a gap: stalls, deadlines, and the start delay that would avoid them.

All of it needs a reply in more than one playable chunk; one that came whole, or failed, is missing
here, never "smooth". Source: analysis/METRICS.md, "Playback".
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from analysis.metrics.base import (
    Better,
    PointData,
    PointMetric,
    PointValue,
    RequestMetric,
    ValueStatus,
    share_metric,
)
from analysis.percentiles import nearest_rank, percentile, sort_values
from analysis.view import RequestView

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["METRICS", "START_DELAYS_MS"]

START_DELAYS_MS = (0, 50, 100, 200)
_NS_PER_MS = 1e6


def num_underruns(view: RequestView) -> float | None:
    if not view.has_continuity or view.timeline is None:
        return None
    return float(len(view.timeline.underruns(min_ms=view.context.settings.underrun_min_ms)))


def num_undecided(view: RequestView) -> float | None:
    if not view.has_continuity or view.timeline is None:
        return None
    return float(len(view.timeline.undecided(min_ms=view.context.settings.underrun_min_ms)))


def stall_total(view: RequestView) -> float | None:
    if not view.has_continuity or view.timeline is None:
        return None
    return sum(stall.length_ns for stall in view.timeline.stalls) / _NS_PER_MS


def stall_longest(view: RequestView) -> float | None:
    if not view.has_continuity or view.timeline is None:
        return None
    return max((stall.length_ns for stall in view.timeline.stalls), default=0) / _NS_PER_MS


def required_delay(view: RequestView) -> float | None:
    if not view.has_continuity or view.timeline is None:
        return None
    return view.timeline.required_delay_ns / _NS_PER_MS


def min_slack(view: RequestView) -> float | None:
    if not view.has_continuity or view.timeline is None:
        return None
    return min(slack for slack in view.timeline.slack_ns if slack is not None) / _NS_PER_MS


# -- of a point -----------------------------------------------------------------------------------


def underruns(cohort: pd.DataFrame) -> pd.Series[bool]:
    return cohort["num_underruns"].dropna() > 0


def undecided(cohort: pd.DataFrame) -> pd.Series[bool]:
    return cohort["num_undecided"].dropna() > 0


def passes(delay_ms: float, cohort: pd.DataFrame) -> pd.Series[bool]:
    return cohort["required_delay"].dropna() <= delay_ms


def underrun_length(data: PointData) -> PointValue:
    """p50 of the longest stall, over the replies that stutter."""
    counts = data.cohort["num_underruns"]
    lengths = data.cohort.loc[counts.fillna(0) > 0, "stall_longest"].dropna()
    found = percentile(sort_values(lengths.to_numpy(dtype=np.float64)), 50)
    return PointValue(
        found.value,
        found.lo,
        found.hi,
        len(lengths),
        int(counts.isna().sum()),
        ValueStatus(found.status.value),
    )


def start_delay_for_1_percent(data: PointData) -> PointValue:
    needed = data.cohort["required_delay"]
    ordered = np.sort(needed.dropna().to_numpy(dtype=np.float64))
    missing = int(needed.isna().sum())
    if not len(ordered):
        return PointValue(None, None, None, 0, missing, ValueStatus.NO_DATA)
    value = float(ordered[nearest_rank(len(ordered), 99) - 1])
    assert math.isfinite(value)
    return PointValue(value, None, None, len(ordered), missing, ValueStatus.NO_INTERVAL)


METRICS = (
    RequestMetric(
        "num_underruns",
        "count",
        Better.LOWER,
        "Stalls of at least 1 ms that certainly happened, per reply",
        num_underruns,
    ),
    RequestMetric(
        "num_undecided",
        "count",
        Better.NEITHER,
        "Stalls of at least 1 ms that the stamps neither prove nor rule out, per reply",
        num_undecided,
    ),
    RequestMetric("stall_total", "ms", Better.LOWER, "All stalls of a reply together", stall_total),
    RequestMetric("stall_longest", "ms", Better.LOWER, "Longest stall of a reply", stall_longest),
    RequestMetric(
        "required_delay",
        "ms",
        Better.LOWER,
        "The smallest start delay with which the reply plays without a gap",
        required_delay,
    ),
    RequestMetric(
        "min_slack",
        "ms",
        Better.HIGHER,
        "Due time minus arrival of the chunk that came closest to its deadline, or latest",
        min_slack,
    ),
    share_metric(
        "underrun_rate",
        Better.LOWER,
        "Share of replies in several chunks with at least one underrun",
        underruns,
    ),
    PointMetric(
        "underrun_length",
        "ms",
        Better.LOWER,
        "p50 of the longest stall, over the replies with at least one underrun",
        underrun_length,
    ),
    share_metric(
        "undecided_rate",
        Better.LOWER,
        "Share of replies in several chunks with a stall that the stamps cannot prove",
        undecided,
    ),
    *(
        share_metric(
            f"pass_rate_{delay}ms",
            Better.HIGHER,
            f"Share of replies in several chunks that play without a gap when started {delay} ms"
            " after the first playable chunk",
            partial(passes, float(delay)),
        )
        for delay in START_DELAYS_MS
    ),
    PointMetric(
        "start_delay_for_1_percent",
        "ms",
        Better.LOWER,
        "The smallest start delay that keeps gaps to at most 1 % of replies in several chunks",
        start_delay_for_1_percent,
    ),
)
