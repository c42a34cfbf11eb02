"""The tables behind the charts: recorded and derived columns side by side, one row a request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.aggregate import join_requests
from analysis.derive import DerivedRun
from harness.records import Phase, PointRecord
from harness.store import StoredRun

__all__ = ["RunTables", "join_tables", "numbers"]


@dataclass(frozen=True, slots=True)
class RunTables:
    """Requests of a run, warm-up included, and their chunks.

    requests: recorded columns, and derived ones of other names. chunks: likewise.
    """

    requests: pd.DataFrame
    chunks: pd.DataFrame
    points: tuple[PointRecord, ...]

    def cohort(self, point_id: str) -> pd.DataFrame:
        """Requests of the measurement phase of one point."""
        rows = self.requests
        is_wanted = (rows["point_id"] == point_id) & (rows["phase"] == str(Phase.MEASURE))
        return rows[is_wanted]

    def all_of(self, point_id: str) -> pd.DataFrame:
        """Requests of one point with its warm-up."""
        return self.requests[self.requests["point_id"] == point_id]

    def point(self, point_id: str) -> PointRecord:
        """The record of a point."""
        return next(point for point in self.points if point.point_id == point_id)


def join_tables(run: StoredRun, derived: DerivedRun) -> RunTables:
    """Put derived columns beside recorded ones; a name that both have is the recorded one."""
    keys = ["request_id", "seq"]
    fresh = [name for name in derived.chunks.columns if name not in run.chunks.columns]
    chunks = run.chunks.merge(
        derived.chunks[[*keys, *fresh]], on=keys, how="left", validate="one_to_one"
    )
    return RunTables(
        requests=join_requests(run, derived),
        chunks=chunks,
        points=tuple(run.record.points),
    )


def numbers(column: pd.Series) -> NDArray[np.float64]:
    """A column as floats; null is NaN."""
    return column.to_numpy(dtype=np.float64, na_value=np.nan)
