"""What a judgement rests on: the measured requests of a run, from its folder or from a baseline.

A baseline is one JSON file with everything that a later comparison needs and nothing else: per
point the outcome and metrics of each request, and who and what was measured. It is small enough
to be kept beside the code.

Schema history
    1: first version.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.aggregate import join_requests, last_tries, point_data, summarise_run
from analysis.cohort import CohortValues, cohort_values
from analysis.derive import DerivedRun, derive_run
from analysis.errors import RulesError, RunDataError
from analysis.metrics import RequestMetric, registry, request_metrics
from analysis.view import AnalysisSettings
from harness.records import RunKind, RunRecord
from harness.store import StoredRun, open_run

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SIMULATED_NOTE",
    "VOLATILE",
    "Fingerprint",
    "PointEvidence",
    "RunEvidence",
    "load_evidence",
    "machine_differences",
    "run_evidence",
    "write_baseline",
]

# Said wherever a figure of such a run is.
SIMULATED_NOTE = "SIMULATED: a model's numbers, not measurements"
BASELINE_SCHEMA = 1
_KIND = "earwitness baseline"
# What may change on one and the same machine.
VOLATILE = ("load_average",)
_KEPT_COLUMNS = (
    "index",
    "prompt_id",
    "outcome",
    "transport_outcome",
    "error_kind",
    "attempts",
    "is_incremental",
    "is_audio_kept",
    "duration_basis",
)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Who and what was measured, and how: what may explain a difference.

    conditions: what must be alike for two runs to be compared (load, prompts, reading).
    """

    machine: Mapping[str, Any]
    engines: Sequence[Mapping[str, Any]]
    versions: Mapping[str, Any]
    revision: Mapping[str, Any]
    conditions: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PointEvidence:
    """One engine at one rate with one seed.

    cohort: one row per measured request in the order of the plan, with outcome and metrics.
    summary: the point of metrics.json.
    """

    engine: str
    rate_rps: float
    seed: int
    cohort: pd.DataFrame
    summary: Mapping[str, Any]

    @property
    def is_invalid(self) -> bool:
        return bool(self.summary["validity"]["verdict"] == "invalid")

    @property
    def duration_bases(self) -> frozenset[str]:
        """How samples were attributed to chunks; empty where an older baseline does not tell."""
        if "duration_basis" not in self.cohort:
            return frozenset()
        return frozenset(self.cohort["duration_basis"].dropna().astype(str))

    def values(self, metric: str) -> CohortValues:
        """A request metric over the cohort, failures as +inf where they count."""
        declared = registry()[metric]
        assert isinstance(declared, RequestMetric)
        return cohort_values(declared, self.cohort)

    def by_index(self, metric: str) -> dict[int, float]:
        """The same, by the request's place in the plan."""
        found = self.values(metric)
        indices = self.cohort["index"].to_numpy(dtype=np.int64)[found.rows]
        return dict(zip(indices.tolist(), found.values.tolist(), strict=True))

    def prompts_by_index(self) -> dict[int, str]:
        """Which prompt each place in the plan had."""
        return dict(
            zip(self.cohort["index"].tolist(), self.cohort["prompt_id"].tolist(), strict=True)
        )


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """A run as judgements see it. `wer`: per engine, as in metrics.json."""

    name: str
    source: str
    kind: str
    status: str
    fingerprint: Fingerprint
    points: Sequence[PointEvidence]
    wer: Mapping[str, Mapping[str, Any]]

    @property
    def is_simulated(self) -> bool:
        """Whether a model gave the numbers."""
        return self.kind == RunKind.SIMULATED

    @property
    def engines(self) -> tuple[str, ...]:
        """In the order of their first point."""
        return tuple(dict.fromkeys(point.engine for point in self.points))

    @property
    def rates_rps(self) -> tuple[float, ...]:
        """Rising."""
        return tuple(sorted({point.rate_rps for point in self.points}))

    def at(self, engine: str, rate_rps: float) -> list[PointEvidence]:
        """The points of one engine at one rate, by seed."""
        found = [p for p in self.points if p.engine == engine and p.rate_rps == rate_rps]
        return sorted(found, key=lambda point: point.seed)


def load_evidence(path: Path, *, settings: AnalysisSettings | None = None) -> RunEvidence:
    """Read a run folder, or a baseline file.

    Args:
        path: of either.
        settings: how to read a folder; other than default ones leave its derived/ alone.

    Raises:
        RunFolderError: a folder that holds no readable run.
        RulesError: a file that is no baseline, or was made under other settings.
    """
    if path.is_file():
        return _read_baseline(path, settings or AnalysisSettings())
    chosen = settings or AnalysisSettings()
    is_default = chosen == AnalysisSettings()
    summary = summarise_run(path, settings=chosen, is_stored=is_default)
    derived = derive_run(path, settings=chosen, is_stored=is_default)
    return run_evidence(open_run(path), derived, summary)


def run_evidence(run: StoredRun, derived: DerivedRun, summary: Mapping[str, Any]) -> RunEvidence:
    """A run that was read and summarised already."""
    requests = join_requests(run, derived)
    names = [*_KEPT_COLUMNS, *(metric.name for metric in request_metrics())]
    counted = last_tries(run.record.points)
    points = [
        PointEvidence(
            engine=point.engine,
            rate_rps=point.rate_rps,
            seed=point.seed,
            cohort=point_data(run, requests, point).cohort.sort_values("index")[names],
            summary=found,
        )
        for point, found in zip(run.record.points, summary["points"], strict=True)
        if point.point_id in counted
    ]
    return RunEvidence(
        name=run.record.name,
        source=str(run.folder),
        kind=run.record.kind.value,
        status=run.record.status.value,
        fingerprint=_fingerprint(run.record, derived.settings),
        points=points,
        wer={entry["engine"]: entry["wer"] for entry in summary["engines"]},
    )


def machine_differences(first: Fingerprint, second: Fingerprint) -> list[str]:
    """What differs between two machines, in words; empty where it is the same kind of machine."""
    keys = sorted({*first.machine, *second.machine} - set(VOLATILE))
    return [
        f"{key}: {first.machine.get(key)!r} and {second.machine.get(key)!r}"
        for key in keys
        if first.machine.get(key) != second.machine.get(key)
    ]


def _fingerprint(record: RunRecord, settings: AnalysisSettings) -> Fingerprint:
    scenario = record.scenario
    arrivals = dict(scenario.get("arrivals") or {})
    # Rates and seeds are matched point by point; a sweep may have more of them than another.
    arrivals.pop("rates_rps", None)
    arrivals.pop("seeds", None)
    arrivals.setdefault("count", "random")  # of runs before there was a choice
    prompts = dict(scenario.get("prompts") or {})
    prompts.pop("set", None)  # told by its contents, not by its name
    return Fingerprint(
        machine={key: value for key, value in record.machine.items() if key not in VOLATILE},
        engines=record.engines,
        versions=record.versions,
        revision=record.revision,
        conditions={
            "kind": record.kind.value,
            "arrivals": arrivals,
            "phases": scenario.get("phases"),
            "prompts": {**prompts, "sha256": record.prompts.get("sha256")},
            "text_pacing": scenario.get("text_pacing"),
            "behaviour": scenario.get("behaviour"),
            "retries": scenario.get("retries"),
            "start_rule": str(settings.start),
            "onset": asdict(settings.onset),
        },
    )


# -- baselines ------------------------------------------------------------------------------------


def write_baseline(evidence: RunEvidence, path: Path) -> None:
    """Write a baseline file.

    Raises:
        RunDataError: the file exists, or cannot be written.
    """
    content = {
        "kind": _KIND,
        "schema_version": BASELINE_SCHEMA,
        "name": evidence.name,
        "run_kind": evidence.kind,
        "status": evidence.status,
        "fingerprint": asdict(evidence.fingerprint),
        "wer": dict(evidence.wer),
        "points": [_point_out(point) for point in evidence.points],
    }
    body = json.dumps(content, separators=(",", ":"), allow_nan=False, default=str)
    digest = hashlib.sha256(body.encode()).hexdigest()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f'{{"sha256":"{digest}","baseline":\n{body}}}\n')
    except FileExistsError:
        raise RunDataError(f"{path}: exists already; remove it or name another with -o") from None
    except OSError as fault:
        raise RunDataError(f"{path}: cannot be written: {fault.strerror or fault}") from None


def _point_out(point: PointEvidence) -> dict[str, Any]:
    columns = {}
    for name in point.cohort.columns:
        values = [_plain(value) for value in point.cohort[name].tolist()]
        if any(value is not None for value in values):
            columns[name] = values
    return {
        "engine": point.engine,
        "rate_rps": point.rate_rps,
        "seed": point.seed,
        "n": len(point.cohort),
        "columns": columns,
        "summary": point.summary,
    }


def _plain(value: Any) -> Any:
    import pandas as pd

    if value is None or value is pd.NA:
        return None
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def _read_baseline(path: Path, settings: AnalysisSettings) -> RunEvidence:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content["baseline"]
        version = found["schema_version"]
        if found["kind"] != _KIND:
            raise KeyError("kind")
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise RulesError(
            f"{path}: is neither a run folder nor a baseline ({type(fault).__name__}); make one"
            f" with `earwitness baseline RUN -o {path}`"
        ) from None
    if version != BASELINE_SCHEMA:
        raise RulesError(
            f"{path}: schema_version: found {version}, expected {BASELINE_SCHEMA}; make the"
            " baseline anew"
        )
    evidence = _evidence_of(found, path)
    wanted = {"start_rule": str(settings.start), "onset": asdict(settings.onset)}
    for key, value in wanted.items():
        if evidence.fingerprint.conditions.get(key) != value:
            raise RulesError(
                f"{path}: was made with {key} {evidence.fingerprint.conditions.get(key)}, asked"
                f" for {value}; a baseline cannot be read under another rule, a run folder can"
            )
    return evidence


def _evidence_of(found: Mapping[str, Any], path: Path) -> RunEvidence:
    try:
        return RunEvidence(
            name=found["name"],
            source=str(path),
            kind=found["run_kind"],
            status=found["status"],
            fingerprint=Fingerprint(**found["fingerprint"]),
            points=[_point_in(point) for point in found["points"]],
            wer=found["wer"],
        )
    except (KeyError, TypeError, ValueError) as fault:
        raise RulesError(f"{path}: the baseline is damaged: {fault!r}; make it anew") from None


def _point_in(point: Mapping[str, Any]) -> PointEvidence:
    import pandas as pd

    columns = dict(point["columns"])
    for metric in request_metrics():
        values = columns.get(metric.name, [None] * point["n"])
        columns[metric.name] = np.array(
            [math.nan if value is None else value for value in values], dtype=np.float64
        )
    return PointEvidence(
        engine=point["engine"],
        rate_rps=point["rate_rps"],
        seed=point["seed"],
        cohort=pd.DataFrame(columns),
        summary=point["summary"],
    )
