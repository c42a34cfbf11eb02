"""Which requests a figure is over, with failures in it as worse than any number.

Rules: every arrival of the measurement is in every latency percentile; a failed one is +inf; one
that the scenario cancelled counts with what had happened by then, else is left out and counted;
one in flight when the run was interrupted has not got there either, and nobody meant it to end: it
is +inf; a value that could not be measured is missing and counted, never a number. Where the sound
of a share of the replies was kept, failures count in that share alone, not to outweigh the rest.

Source: analysis/METRICS.md, "Cohort".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analysis.metrics.base import Cohort, RequestMetric
from analysis.outcomes import FAILED_OUTCOMES, FinalOutcome, is_interrupted

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CohortValues", "cohort_values"]

# A reply that was cut off on purpose has no end of its own.
_NOT_FOR_CANCELLED = ("e2e", "e2e_from_schedule", "e2e_from_send")


@dataclass(frozen=True, slots=True)
class CohortValues:
    """One metric over a cohort.

    values: finite ones and +inf for failures, in the order of the plan.
    rows: for each value, its row in the cohort.
    missing: could not be measured. excluded: cancelled by the scenario before it could happen.
    """

    values: NDArray[np.float64]
    rows: NDArray[np.int64]
    missing: int
    excluded: int

    @property
    def successes(self) -> NDArray[np.float64]:
        """The finite ones."""
        return self.values[np.isfinite(self.values)]

    @property
    def not_reached(self) -> int:
        """How many are +inf."""
        return int(np.isinf(self.values).sum())


def cohort_values(metric: RequestMetric, cohort: pd.DataFrame) -> CohortValues:
    """A metric's values over a cohort.

    Args:
        metric: which; it says whether failures count.
        cohort: one row an arrival, with `outcome`, `is_incremental`, the metric's column and, where
            anything failed, `error_kind`; `is_audio_kept` where not all were kept.
    """
    values = cohort[metric.name].to_numpy(dtype=np.float64, na_value=np.nan)
    is_in = np.ones(len(cohort), dtype=bool)
    if metric.is_for_incremental_text:
        is_in = cohort["is_incremental"].fillna(False).to_numpy(dtype=bool)
    is_excluded = np.zeros(len(cohort), dtype=bool)
    if metric.cohort is Cohort.ALL:
        is_failed = cohort["outcome"].isin(FAILED_OUTCOMES).to_numpy(dtype=bool)
        is_cancelled = (cohort["outcome"] == FinalOutcome.CANCELLED.value).to_numpy(dtype=bool)
        could_be_told = _could_be_told(values, cohort)
        values = np.where(is_failed, np.where(could_be_told, np.inf, np.nan), values)
        has_no_end = is_cancelled & (metric.name in _NOT_FOR_CANCELLED)
        is_open = is_cancelled & (np.isnan(values) | has_no_end)
        interrupted = is_interrupted(cohort)
        values = np.where(is_open & interrupted & could_be_told, np.inf, values)
        is_excluded = is_in & is_open & ~interrupted
    is_missing = is_in & ~is_excluded & np.isnan(values)
    rows = np.flatnonzero(is_in & ~is_excluded & ~is_missing)
    return CohortValues(values[rows], rows, int(is_missing.sum()), int(is_excluded.sum()))


def _could_be_told(values: NDArray[np.float64], cohort: pd.DataFrame) -> NDArray[np.bool_]:
    """For each arrival, whether the value of a reply like it could be measured: [n] bool.

    Replies of one point are alike if their sound was kept, or was not. Of those that went well none
    has the value where it takes the sound and there is none, or nothing to decode it with.
    """
    went_well = (cohort["outcome"] == FinalOutcome.OK.value).to_numpy(dtype=bool)
    groups = np.zeros(len(cohort), dtype=np.int64)
    for name in ("point_id", "is_audio_kept"):
        if name in cohort:
            groups = 2 * groups + cohort[name].factorize()[0]  # the second has two values
    could = np.ones(len(cohort), dtype=bool)
    for group in np.unique(groups):
        alike = groups == group
        known = ~np.isnan(values[alike & went_well])
        could[alike] = known.any() or not known.size
    return could
