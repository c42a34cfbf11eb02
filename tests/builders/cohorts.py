"""Points with given latencies and endings, as the aggregation sees them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load import in_flight_over
from analysis.metrics import PointData, registry
from analysis.metrics.base import RequestMetric
from harness.records import RequestRecord, TransportOutcome
from tests.builders.runs import chunks_of, ms, point, record, run_folder

__all__ = ["GOOD_SELFCHECK", "frame", "latency_run", "point_of", "spoken_record"]

# What an undisturbed client records about itself.
GOOD_SELFCHECK: dict[str, Any] = {
    "loop_lag_ms": {"n": 1000, "p50": 0.1, "p99": 0.4, "max": 1.0},
    "dispatch_lag_ms": {"n": 100, "p50": 0.1, "p99": 0.4, "max": 1.0},
    "self_delay_ms": {"n": 1000, "p50": 0.1, "p99": 0.4, "max": 1.0},
    "stalls": [],
    "num_stalls": 0,
    "cpu": {"process": 0.1, "loop_thread": 0.1, "run_delay": 0.0, "steal": 0.0, "num_cores": 2},
    "gc": {"num": 0, "total_ms": 0.0, "max_ms": 0.0, "is_frozen": True},
    "wall_clock_steps": [],
}


def spoken_record(
    index: int, ttfa_ms: float, *, at_ms: float = 1500.0, **fields: Any
) -> RequestRecord:
    """A simulated reply of one second whose first sample is its onset."""
    chunks = chunks_of([(at_ms + ttfa_ms, 24_000), (at_ms + ttfa_ms + 100, 24_000)])
    return record(
        index=index, scheduled_ms=at_ms, chunks=chunks, **{"known_onset_sample": 0, **fields}
    )


def latency_run(
    tmp_path: Path,
    latencies_ms: Sequence[float | TransportOutcome],
    *,
    spacing_ms: float = 20.0,
    extra: Sequence[RequestRecord] = (),
    **fields: Any,
) -> Path:
    """A run of one point whose requests had these audible TTFAs, or ended like this.

    They arrive in a shuffled order (by a fixed seed): latencies that rise one by one would be
    those of a growing queue.
    """
    latencies_ms = list(latencies_ms)
    random.Random(5).shuffle(latencies_ms)
    records: list[RequestRecord] = []
    for index, latency in enumerate(latencies_ms):
        at_ms = 1500.0 + spacing_ms * index
        if isinstance(latency, TransportOutcome):
            failed = record(
                index=index,
                scheduled_ms=at_ms,
                transport_outcome=latency,
                finished_ns=ms(at_ms + 5000),
            )
            records.append(failed)
        else:
            records.append(spoken_record(index, latency, at_ms=at_ms))
    records.extend(extra)
    end_ms = 2000.0 + spacing_ms * len(latencies_ms)
    points = [
        point(
            num_planned=len(records),
            measure_end_ns=ms(end_ms),
            drain_end_ns=ms(end_ms + 10_000),
            selfcheck=dict(GOOD_SELFCHECK),
        )
    ]
    scenario = {"arrivals": {"process": "constant"}}
    return run_folder(tmp_path, records, points=points, **{"scenario": scenario, **fields})


def frame(num_rows: int, **columns: Any) -> pd.DataFrame:
    """A cohort of requests that went well, one every 500 ms from 1 s on; columns are replaced."""
    at_ns = ms(1000) + ms(500) * np.arange(num_rows)
    made: dict[str, Any] = {
        "scheduled_ns": at_ns,
        "dispatched_ns": at_ns,
        "cancel_ns": None,
        "finished_ns": at_ns + ms(200),
        "outcome": "ok",
        "transport_outcome": "ok",
        "error_kind": None,
        "attempts": 1,
        "is_incremental": False,
        **{m.name: np.nan for m in registry().values() if isinstance(m, RequestMetric)},
        "dispatch_lag": 0.1,
        "audible_ttfa": 100.0,
        "audible_ttfa_from_schedule": 100.1,
        "num_undecided": 0.0,
        "audio_duration": 2.0,
        **columns,
    }
    return pd.DataFrame(made, index=range(num_rows)).astype(
        {"dispatched_ns": "Int64", "cancel_ns": "Int64", "finished_ns": "Int64"}
    )


def point_of(
    num_rows: int = 20,
    *,
    num_planned: int | None = None,
    point_fields: dict[str, Any] | None = None,
    **columns: Any,
) -> PointData:
    """A measured point of such a cohort whose client behaved."""
    end_ns = ms(1000) + ms(500) * max(1, num_rows)
    fields = {"selfcheck": dict(GOOD_SELFCHECK), "measure_end_ns": end_ns, **(point_fields or {})}
    cohort, record = frame(num_rows, **columns), point(num_planned=num_rows, **fields)
    return PointData(
        record,
        cohort,
        num_rows if num_planned is None else num_planned,
        in_flight=in_flight_over(cohort, record),
    )
