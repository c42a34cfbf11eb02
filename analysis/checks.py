"""Can the figures of a point be believed: the client judges itself.

`valid`, `suspect` or `invalid`, each with reasons a person can act on. Whether the server could
carry the load is a separate word. What the client did not record about itself is itself a reason:
unmeasured is never "good".

Source: analysis/METRICS.md, "Validity".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from analysis.cohort import cohort_values
from analysis.metrics import PointData, RequestMetric, registry
from analysis.number_words import count
from analysis.outcomes import FinalOutcome
from analysis.percentiles import nearest_rank, sort_values
from analysis.stats.saturation import in_flight_growth
from engines.params import is_loopback
from harness.records import PointRecord, RunKind, StampSource

__all__ = [
    "Load",
    "Reason",
    "RunFacts",
    "Validity",
    "ValidityVerdict",
    "judge_point",
    "run_facts",
]

_LAG_LIMIT_MS = 5.0
_LAG_SHARE_OF_GAP = 0.10
_SCHEDULE_EXCESS_SHARE = 0.20
_SCHEDULE_EXCESS_MS = 5.0
# A quarter of a limit makes a point suspect.
_SUSPECT_PART = 0.25
_STALL_LIMIT_MS = 20.0
_SELF_DELAY_LIMIT_MS = 20.0
_CPU_LIMIT = 0.85
_UNDECIDED_LIMIT = 0.01
_FINISHED_LIMIT = 0.95
# Of 10,000 true Poisson plans one is called wrong.
_ARRIVAL_P_LIMIT = 1e-4
_MIN_ARRIVALS_TO_TEST = 10
_UNFINISHED = (FinalOutcome.NOT_SENT, FinalOutcome.TIMEOUT, FinalOutcome.REFUSED)


class ValidityVerdict(StrEnum):
    """How far a point can be believed."""

    VALID = "valid"
    SUSPECT = "suspect"
    INVALID = "invalid"


class Load(StrEnum):
    """Whether the server carried the load it was given."""

    SUSTAINED = "sustained"
    OVERLOADED = "overloaded"
    UNKNOWN = "unknown"  # nothing was sent, or the phase has no end


@dataclass(frozen=True, slots=True)
class Reason:
    """One finding: what was measured, where the line is, what to do about it."""

    code: str
    verdict: ValidityVerdict
    value: float | str | None
    limit: float | str | None
    remedy: str


@dataclass(frozen=True, slots=True)
class Validity:
    """The verdict (the worst of the reasons), the reasons, and the load beside it."""

    verdict: ValidityVerdict
    reasons: tuple[Reason, ...]
    load: Load
    load_reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What judging a point needs from the run as a whole.

    base_urls: by engine. commands: the engines that are programs which the client itself starts.
    """

    kind: RunKind = RunKind.MEASURED
    process: str = "poisson"
    stamp_source: StampSource = StampSource.KERNEL
    base_urls: Mapping[str, str | None] = field(default_factory=dict)
    commands: frozenset[str] = frozenset()


def run_facts(
    *, kind: RunKind, scenario: Mapping[str, Any], clock: Mapping[str, Any], engines: list[Any]
) -> RunFacts:
    """The facts, from the parts of a run record."""
    return RunFacts(
        kind=kind,
        process=str((scenario.get("arrivals") or {}).get("process", "poisson")),
        stamp_source=StampSource(clock.get("stamp_source", StampSource.USER)),
        base_urls={str(engine.get("name")): engine.get("base_url") for engine in engines},
        commands=frozenset(
            str(engine.get("name"))
            for engine in engines
            if (engine.get("capabilities") or {}).get("transport") == "process"
        ),
    )


def judge_point(data: PointData, facts: RunFacts) -> Validity:
    """Judge one point.

    Args:
        data: its cohort with recorded stamps, outcomes and metrics; its record with `selfcheck`.
        facts: of the run.
    """
    reasons = tuple(_reasons(data, facts))
    verdicts = {reason.verdict for reason in reasons}
    verdict = ValidityVerdict.VALID
    for worse in (ValidityVerdict.SUSPECT, ValidityVerdict.INVALID):
        if worse in verdicts:
            verdict = worse
    load, why = _load(data)
    return Validity(verdict, reasons, load, why)


def _reasons(data: PointData, facts: RunFacts) -> Iterator[Reason]:
    yield from _incomplete(data)
    if data.cohort.empty:
        return
    yield from _client_errors(data)
    yield from _dispatch_lag(data)
    yield from _schedule_excess(data)
    yield from _arrival_distribution(data, facts)
    yield from _undecided(data)
    if facts.kind is RunKind.MEASURED:
        for check in _SELF_CHECKS:
            yield from check(data.point, facts)


# -- from the cohort ------------------------------------------------------------------------------


def _incomplete(data: PointData) -> Iterator[Reason]:
    num_recorded = len(data.cohort)
    if num_recorded == 0:
        yield Reason(
            "no_requests",
            ValidityVerdict.INVALID,
            0,
            1,
            "no arrival fell into the measurement phase: measure longer, or at a higher rate",
        )
    elif not data.point.is_complete or num_recorded < data.num_planned:
        yield Reason(
            "incomplete",
            ValidityVerdict.INVALID,
            num_recorded,
            data.num_planned,
            "the point was cut short and what is missing is not random: run it again",
        )


def _client_errors(data: PointData) -> Iterator[Reason]:
    count = int((data.cohort["outcome"] == FinalOutcome.CLIENT_ERROR.value).sum())
    if count:
        yield Reason(
            "client_error",
            ValidityVerdict.INVALID,
            count,
            0,
            "the load generator itself failed: see error_text of these requests (ports,"
            " descriptors, or a fault of earwitness)",
        )


def _dispatch_lag(data: PointData) -> Iterator[Reason]:
    value = _percentile(data.cohort["dispatch_lag"], 99)
    if value is None:
        return
    limit = max(_LAG_LIMIT_MS, _LAG_SHARE_OF_GAP * 1000 / data.point.rate_rps)
    yield from _graded(
        "dispatch_lag_p99_ms",
        value,
        limit,
        "requests left late: free the client's CPU, put client and server on separate cores, or"
        " lower the rate per process",
    )


def _schedule_excess(data: PointData) -> Iterator[Reason]:
    from_dispatch = _cohort_p95(data, "audible_ttfa")
    from_schedule = _cohort_p95(data, "audible_ttfa_from_schedule")
    if from_dispatch is None or from_schedule is None:
        return
    excess = from_schedule - from_dispatch
    for part, verdict in ((1.0, ValidityVerdict.INVALID), (_SUSPECT_PART, ValidityVerdict.SUSPECT)):
        limit = max(part * _SCHEDULE_EXCESS_MS, part * _SCHEDULE_EXCESS_SHARE * from_dispatch)
        if excess > limit:
            yield Reason(
                "from_schedule_excess_p95_ms",
                verdict,
                excess,
                limit,
                "latency from the plan is longer than from the dispatch, so the client was late"
                " for the slow requests: give it more CPU or a lower rate",
            )
            return


def _arrival_distribution(data: PointData, facts: RunFacts) -> Iterator[Reason]:
    """Kolmogorov-Smirnov: given their number, Poisson arrivals are uniform over the phase."""
    begin, end = data.point.warmup_end_ns, data.point.measure_end_ns
    sent = data.cohort["dispatched_ns"].dropna().to_numpy(dtype=np.int64)
    if facts.process != "poisson" or begin is None or end is None or end <= begin:
        return
    if len(sent) < _MIN_ARRIVALS_TO_TEST:
        return
    # Imported here: scipy takes a second to load.
    from scipy.stats import kstest

    places = np.clip((sent - begin) / (end - begin), 0.0, 1.0)
    p_value = float(kstest(places, "uniform").pvalue)
    if p_value < _ARRIVAL_P_LIMIT:
        yield Reason(
            "arrival_distribution_p",
            ValidityVerdict.INVALID,
            p_value,
            _ARRIVAL_P_LIMIT,
            "requests did not leave as Poisson arrivals do: the client held some back; run again"
            " on an idle machine",
        )


def _undecided(data: PointData) -> Iterator[Reason]:
    counts = data.cohort["num_undecided"].dropna()
    if counts.empty:
        return
    share = float((counts > 0).mean())
    if share > _UNDECIDED_LIMIT:
        yield Reason(
            "undecided_share",
            ValidityVerdict.SUSPECT,
            share,
            _UNDECIDED_LIMIT,
            "some stalls are shorter than their stamps are sure: reads came late; free the"
            " client's CPU, or use kernel stamps",
        )


# -- from what the client recorded about itself ---------------------------------------------------


def _self_check_missing(point: PointRecord, _facts: RunFacts) -> Iterator[Reason]:
    missing = [key for key in ("loop_lag_ms", "cpu", "num_stalls") if key not in point.selfcheck]
    if missing:
        yield Reason(
            "self_check_missing",
            ValidityVerdict.SUSPECT,
            ", ".join(missing),
            None,
            "the client recorded nothing about itself, so its own lateness is unknown",
        )


def _stalls(point: PointRecord, _facts: RunFacts) -> Iterator[Reason]:
    num_stalls = point.selfcheck.get("num_stalls")
    if not num_stalls:
        return
    listed = point.selfcheck.get("stalls") or [{"length_ms": None, "cause": "unknown"}]
    longest = max(listed, key=lambda stall: stall["length_ms"] or 0.0)
    yield Reason(
        "loop_stall_ms",
        ValidityVerdict.SUSPECT,
        longest["length_ms"],
        _STALL_LIMIT_MS,
        f"the client stood still {count(num_stalls, 'time')}, the longest with the cause"
        f" '{longest['cause']}': run on an idle machine, or client and server on separate cores",
    )


def _self_delay(point: PointRecord, facts: RunFacts) -> Iterator[Reason]:
    """Only where no kernel stamp corrects a late read; the loop's lag bounds how late it was."""
    if facts.stamp_source is StampSource.KERNEL:
        return
    delay = _p99_of(point, "self_delay_ms")
    value = _p99_of(point, "loop_lag_ms") if delay is None else delay
    if value is not None and value > _SELF_DELAY_LIMIT_MS:
        yield Reason(
            "self_delay_p99_ms",
            ValidityVerdict.SUSPECT,
            value,
            _SELF_DELAY_LIMIT_MS,
            "replies were read late and no kernel stamp says when they came: use kernel stamps"
            " (Linux), or free the client's CPU",
        )


def _shared_cores(point: PointRecord, facts: RunFacts) -> Iterator[Reason]:
    url = facts.base_urls.get(point.engine)
    host = (urlsplit(url).hostname if url else None) or ""
    if is_loopback(host) or point.engine in facts.commands:
        yield Reason(
            "shared_cores",
            ValidityVerdict.SUSPECT,
            host or "a local command",
            "another machine",
            "client and server run on one machine and take CPU from each other: for figures to"
            " publish, put them on two",
        )


def _cpu(point: PointRecord, _facts: RunFacts) -> Iterator[Reason]:
    share = (point.selfcheck.get("cpu") or {}).get("loop_thread")
    if share is not None and share > _CPU_LIMIT:
        yield Reason(
            "client_cpu_share",
            ValidityVerdict.SUSPECT,
            share,
            _CPU_LIMIT,
            "the client's thread is nearly full: spread the load over more processes",
        )


def _clock_steps(point: PointRecord, _facts: RunFacts) -> Iterator[Reason]:
    steps = point.selfcheck.get("wall_clock_steps") or []
    if steps:
        yield Reason(
            "wall_clock_step_ms",
            ValidityVerdict.SUSPECT,
            max((float(step["size_ms"]) for step in steps), key=abs),
            1.0,
            "the wall clock was set during the run: stop time synchronisation from stepping it",
        )


_SELF_CHECKS: tuple[Callable[[PointRecord, RunFacts], Iterator[Reason]], ...] = (
    _self_check_missing,
    _stalls,
    _self_delay,
    _shared_cores,
    _cpu,
    _clock_steps,
)


# -- load -----------------------------------------------------------------------------------------


def _load(data: PointData) -> tuple[Load, str | None]:
    outcomes = data.cohort["outcome"]
    if outcomes.empty:
        return (Load.UNKNOWN, "nothing was measured")
    capped = int((outcomes == FinalOutcome.NOT_SENT.value).sum())
    if capped:
        return Load.OVERLOADED, f"{capped} arrivals met the cap on requests in flight"
    unfinished = int(outcomes.isin([outcome.value for outcome in _UNFINISHED]).sum())
    finished = 1 - unfinished / len(outcomes)
    if finished < _FINISHED_LIMIT:
        return (
            Load.OVERLOADED,
            f"{finished:.0%} of arrivals finished by the end of the drain, limit"
            f" {_FINISHED_LIMIT:.0%}",
        )
    curve = data.in_flight
    growth = None if curve is None else in_flight_growth(curve, len(data.cohort))
    if growth is not None and growth.is_growing:
        return (
            Load.OVERLOADED,
            f"requests in flight grew from {growth.first:.1f} to {growth.last:.1f}: latencies"
            " depend on how long the run was",
        )
    return (Load.SUSTAINED, None)


# -- helpers --------------------------------------------------------------------------------------


def _graded(code: str, value: float, limit: float, remedy: str) -> Iterator[Reason]:
    """Invalid above the limit, suspect above a quarter of it."""
    if value > limit:
        yield Reason(code, ValidityVerdict.INVALID, value, limit, remedy)
    elif value > _SUSPECT_PART * limit:
        yield Reason(code, ValidityVerdict.SUSPECT, value, _SUSPECT_PART * limit, remedy)


def _percentile(values: Any, percent: int) -> float | None:
    measured = np.sort(values.dropna().to_numpy(dtype=np.float64))
    return float(measured[nearest_rank(len(measured), percent) - 1]) if len(measured) else None


def _cohort_p95(data: PointData, name: str) -> float | None:
    """p95 over the cohort with failures as +inf; None where it lands on one."""
    metric = registry()[name]
    assert isinstance(metric, RequestMetric)
    values = sort_values(cohort_values(metric, data.cohort).values)
    if not len(values):
        return None
    value = float(values[nearest_rank(len(values), 95) - 1])
    return value if math.isfinite(value) else None


def _p99_of(point: PointRecord, key: str) -> float | None:
    summary = point.selfcheck.get(key) or {}
    value = summary.get("p99")
    return None if value is None else float(value)
