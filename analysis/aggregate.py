"""A run in figures: per point the outcomes, the verdict and every metric with its uncertainty.

The result is what `metrics.json` holds and what every report prints. It is plain JSON without NaN
or Infinity: what was not reached or not measured is null, with a status that says which.

Schema history
    3: a rate has word error rates too, and shares the interval by which gates judge them.
    2: `rates`, the figures of every engine and rate over all its seeds; per point `is_complete` and
       `errors`.
    1: first version.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.checks import RunFacts, Validity, judge_point, run_facts
from analysis.codecs import NO_DECODER, UNTRIMMED
from analysis.cohort import CohortValues, cohort_values
from analysis.derive import DERIVED_DIR, DerivedRun, derive_run
from analysis.error_texts import error_texts
from analysis.errors import RunDataError
from analysis.load import in_flight_over
from analysis.metrics import (
    PointData,
    PointMetric,
    PointValue,
    RequestMetric,
    registry,
    speech,
)
from analysis.metrics.base import share_over
from analysis.metrics.load import achieved_rate
from analysis.metrics.playback import START_DELAYS_MS
from analysis.outcomes import is_interrupted
from analysis.percentiles import Percentile, nearest_rank, percentile, sort_values
from analysis.pooling import percentile_over_seeds
from analysis.speech import (
    ScoredRun,
    load_transcripts,
    summarise_wer,
    wer_not_measured,
    wer_of_points,
)
from analysis.stats.dependence import variance_inflation
from analysis.stats.steady import mser5
from analysis.view import AnalysisSettings
from harness.records import Phase, PointRecord
from harness.store import AudioPolicy, StoredRun, open_run

__all__ = [
    "METRICS_FILE",
    "METRICS_SCHEMA",
    "PERCENTS",
    "join_requests",
    "last_tries",
    "point_data",
    "summarise_run",
]

METRICS_FILE = "metrics.json"
METRICS_SCHEMA = 3
PERCENTS = (50, 95, 99)
# What is pooled over seeds: the figures that an engine is judged by at a rate.
_POOLED = (
    "audible_ttfa",
    "audible_received",
    "leading_silence",
    "stall_total",
    "required_delay",
    "final_text_to_audible",
    "underrun_rate",
    "underrun_length",
    "failure_rate",
    *(f"pass_rate_{delay}ms" for delay in START_DELAYS_MS),
    "start_delay_for_1_percent",
    *(metric.name for metric in speech.METRICS),
)


def summarise_run(
    folder: Path, *, settings: AnalysisSettings | None = None, is_stored: bool = True
) -> dict[str, Any]:
    """Summarise a run and write `derived/metrics.json`.

    Args:
        folder: a run folder.
        settings: how to read it; the default ones if None.
        is_stored: False computes without writing anything ("what if").

    Raises:
        RunFolderError: no readable run folder.
        RunDataError: `derived/` cannot be written.
    """
    settings = settings or AnalysisSettings()
    run = open_run(folder)
    derived = derive_run(folder, settings=settings, is_stored=is_stored)
    summary = _summary(run, derived, load_transcripts(folder))
    if is_stored:
        _write(folder, summary)
    return summary


def join_requests(run: StoredRun, derived: DerivedRun) -> pd.DataFrame:
    """Recorded and derived columns of every request in one frame, and whether its sound was kept.

    `is_audio_kept`: whether the scenario kept replies like this one, also where none came.
    """
    fresh = [name for name in derived.requests.columns if name not in run.requests.columns]
    recorded = run.requests
    policy = AudioPolicy.parse((run.record.scenario.get("recording") or {}).get("audio", "all"))
    kept = map(policy.keeps, recorded["index"], recorded["prompt_id"])
    return recorded.assign(is_audio_kept=list(kept)).merge(
        derived.requests[["request_id", *fresh]],
        on="request_id",
        how="left",
        validate="one_to_one",
    )


def point_data(
    run: StoredRun,
    requests: pd.DataFrame,
    point: PointRecord,
    *,
    wer: dict[str, Any] | None = None,
) -> PointData:
    """The measured part of one point of a run."""
    rows = requests[requests["point_id"] == point.point_id]
    plan = run.schedule
    is_planned = (plan["point_id"] == point.point_id) & (plan["phase"] == Phase.MEASURE.value)
    return PointData(
        point=point,
        cohort=rows[rows["phase"] == Phase.MEASURE.value].reset_index(drop=True),
        num_planned=int(is_planned.sum()),
        in_flight=in_flight_over(rows, point),
        wer=wer,
    )


# -- the summary ----------------------------------------------------------------------------------


def _summary(run: StoredRun, derived: DerivedRun, scored: ScoredRun | None) -> dict[str, Any]:
    record = run.record
    requests = join_requests(run, derived)
    facts = run_facts(
        kind=record.kind, scenario=record.scenario, clock=record.clock, engines=record.engines
    )
    settings = derived.settings
    measured = [
        point_data(run, requests, point, wer=_wer(scored, [point.point_id]))
        for point in record.points
    ]
    summary: dict[str, Any] = _plain(
        {
            "schema_version": METRICS_SCHEMA,
            "name": record.name,
            "kind": record.kind.value,
            "status": record.status.value,
            "stamp_source": facts.stamp_source.value,
            "start_rule": str(settings.start),
            "onset_preset": settings.onset.name,
            "settings": asdict(settings),
            "engines": _engines(run, scored),
            "rates": _rates(measured, scored),
            "points": [_point(data, requests, facts) for data in measured],
        }
    )
    return summary


def _engines(run: StoredRun, scored: ScoredRun | None) -> list[dict[str, Any]]:
    """Word error rate per engine: clips are drawn per engine, not per point."""
    names = dict.fromkeys(point.engine for point in run.record.points)
    found = {} if scored is None else summarise_wer(scored)
    why = "nobody listened" if scored is None else "no clip of this engine was selected"
    return [{"engine": name, "wer": found.get(name, wer_not_measured(why))} for name in names]


def _wer(scored: ScoredRun | None, point_ids: Sequence[str]) -> dict[str, Any] | None:
    return None if scored is None else wer_of_points(scored, point_ids)


def _point(data: PointData, requests: pd.DataFrame, facts: RunFacts) -> dict[str, Any]:
    point = data.point
    rows = requests[requests["point_id"] == point.point_id]
    validity = judge_point(data, facts)
    return {
        "point_id": point.point_id,
        "engine": point.engine,
        "rate_rps": point.rate_rps,
        "seed": point.seed,
        "is_complete": point.is_complete,
        "achieved_rps": achieved_rate(data).value,
        "planned_rps": None if data.measure_s is None else data.num_planned / data.measure_s,
        "n": len(data.cohort),
        "num_warmup_excluded": int((rows["phase"] == Phase.WARMUP.value).sum()),
        "num_interrupted": int(is_interrupted(data.cohort).sum()),
        "num_unrecorded": max(0, data.num_planned - len(data.cohort)),
        "outcomes": dict(Counter(data.cohort["outcome"]).most_common()),
        "errors": [asdict(each) for each in error_texts(data.cohort)],
        "audio": _audio(data.cohort),
        "validity": _validity(validity),
        "load": validity.load.value,
        "load_reason": validity.load_reason,
        "steady_state": _steady_state(data),
        "metrics": {name: _metric(metric, data) for name, metric in registry().items()},
    }


def _rates(points: Sequence[PointData], scored: ScoredRun | None) -> list[dict[str, Any]]:
    """Each engine at each rate over its seeds, in the order of their first point."""
    counted = last_tries([data.point for data in points])
    groups: dict[tuple[str, float], list[PointData]] = {}
    for data in points:
        if data.point.point_id in counted:
            groups.setdefault((data.point.engine, data.point.rate_rps), []).append(data)
    return [_rate(group, scored) for group in groups.values()]


def last_tries(points: Sequence[PointRecord]) -> set[str]:
    """Ids of the points that count: of each plan the last that was not cut short, else the last."""
    chosen: dict[tuple[str, float, int], PointRecord] = {}
    for point in points:
        known = chosen.get(_plan_of(point))
        if known is None or point.is_complete or not known.is_complete:
            chosen[_plan_of(point)] = point
    return {point.point_id for point in chosen.values()}


def _plan_of(point: PointRecord) -> tuple[str, float, int]:
    return point.engine, point.rate_rps, point.seed


def _rate(seeds: Sequence[PointData], scored: ScoredRun | None) -> dict[str, Any]:
    first = seeds[0]
    point_ids = [data.point.point_id for data in seeds]
    pooled = replace(
        first,
        cohort=pd.concat([data.cohort for data in seeds], ignore_index=True),
        num_planned=sum(data.num_planned for data in seeds),
        wer=_wer(scored, point_ids),
    )
    lengths = [data.measure_s for data in seeds]
    measure_s = sum(length for length in lengths if length is not None)
    is_whole = None not in lengths and measure_s > 0
    return {
        "engine": first.point.engine,
        "rate_rps": first.point.rate_rps,
        "seeds": [data.point.seed for data in seeds],
        "point_ids": point_ids,
        "n": len(pooled.cohort),
        "planned_rps": pooled.num_planned / measure_s if is_whole else None,
        "metrics": {name: _pooled_metric(registry()[name], seeds, pooled) for name in _POOLED},
    }


def _pooled_metric(
    metric: RequestMetric | PointMetric, seeds: Sequence[PointData], pooled: PointData
) -> dict[str, Any]:
    if isinstance(metric, PointMetric):
        if metric.hits is None:
            return _point_metric(metric, metric.compute(pooled))
        # Seed by seed: hits come in clusters inside a seed, not across the border of two.
        return _point_metric(metric, share_over([data.cohort for data in seeds], metric.hits))
    if len(seeds) == 1:
        return _metric(metric, pooled)
    by_seed = [cohort_values(metric, data.cohort).values for data in seeds]
    found = {percent: percentile_over_seeds(by_seed, percent) for percent in PERCENTS}
    return _request_metric(metric, cohort_values(metric, pooled.cohort), found)


def _audio(cohort: pd.DataFrame) -> dict[str, Any]:
    """How samples were timed, and how many replies could not be trimmed or decoded."""
    notes = cohort["note"].fillna("")
    return {
        "duration_bases": dict(Counter(cohort["duration_basis"].dropna())),
        "num_untrimmed": int(notes.str.contains(UNTRIMMED, regex=False).sum()),
        "num_undecoded": int(notes.str.contains(NO_DECODER, regex=False).sum()),
    }


def _steady_state(data: PointData) -> dict[str, Any]:
    """Where audible TTFA and the number in flight had settled, by MSER-5: a hint, no verdict."""
    metric = registry()["audible_ttfa"]
    assert isinstance(metric, RequestMetric)
    heard = mser5(cohort_values(metric, data.cohort).values)
    curve = data.in_flight
    flying = None if curve is None else mser5(curve.sampled(len(data.cohort)))
    return {
        "audible_ttfa": None if heard is None else asdict(heard),
        "in_flight": None if flying is None else asdict(flying),
    }


def _validity(validity: Validity) -> dict[str, Any]:
    return {
        "verdict": validity.verdict.value,
        "reasons": [asdict(reason) for reason in validity.reasons],
    }


def _metric(metric: RequestMetric | PointMetric, data: PointData) -> dict[str, Any]:
    if isinstance(metric, PointMetric):
        return _point_metric(metric, metric.compute(data))
    values = cohort_values(metric, data.cohort)
    ordered = sort_values(values.values)
    return _request_metric(
        metric, values, {percent: _percentile(values, ordered, percent) for percent in PERCENTS}
    )


def _point_metric(metric: PointMetric, found: PointValue) -> dict[str, Any]:
    return {
        "unit": metric.unit,
        "better": metric.better.value,
        "n": found.n,
        "missing": found.missing,
        "not_reached": 0,
        "value": {"value": found.value, "lo": found.lo, "hi": found.hi, "status": found.status},
    }


def _request_metric(
    metric: RequestMetric, values: CohortValues, found: Mapping[int, Percentile]
) -> dict[str, Any]:
    return {
        "unit": metric.unit,
        "better": metric.better.value,
        "n": len(values.values),
        "missing": values.missing,
        "excluded": values.excluded,
        "not_reached": values.not_reached,
        **{
            f"p{percent}": {
                "value": each.value,
                "lo": each.lo,
                "hi": each.hi,
                "status": each.status.value,
            }
            for percent, each in found.items()
        },
        "successes": _successes(values),
    }


def _percentile(values: CohortValues, ordered: NDArray[np.float64], percent: int) -> Percentile:
    """One percentile, its interval widened by how much neighbouring requests are alike."""
    inflation = 1.0
    if len(ordered):
        inflation = variance_inflation(values.values, _at(ordered, percent))
    return percentile(ordered, percent, inflation=inflation)


def _successes(values: CohortValues) -> dict[str, Any]:
    """The finite values alone; always labelled as such, never the headline."""
    ordered = np.sort(values.successes)
    if not len(ordered):
        return {"n": 0, "min": None, "mean": None, **{f"p{p}": None for p in PERCENTS}}
    return {
        "n": len(ordered),
        "min": float(ordered[0]),
        "mean": float(ordered.mean()),
        **{f"p{percent}": _at(ordered, percent) for percent in PERCENTS},
    }


def _at(ordered: NDArray[np.float64], percent: int) -> float:
    return float(ordered[nearest_rank(len(ordered), percent) - 1])


# -- JSON -----------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Plain JSON types; a number that is not finite is a fault of ours and becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _write(folder: Path, summary: dict[str, Any]) -> None:
    target = folder / DERIVED_DIR / METRICS_FILE
    partial = target.with_suffix(".partial")
    try:
        partial.write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        partial.replace(target)
    except OSError as fault:
        raise RunDataError(f"{target}: cannot be written: {fault.strerror or fault}") from None
