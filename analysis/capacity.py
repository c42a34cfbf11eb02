"""The highest rate that meets an objective, as an interval and a curve, never one best point.

From a finished sweep the answer is read off. With an engine at hand it is searched: the rate is
doubled or halved until it is enclosed, then halved in ratio; at each rate one seed after the other
is run until passes and failures differ clearly. A rate is thereby called by several seeds, and the
one that is a coin toss stays inside the interval.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from analysis.evidence import PointEvidence, RunEvidence
from analysis.slo import Slo
from analysis.stats.isotonic import falling_fit

__all__ = [
    "Capacity",
    "CapacityStatus",
    "CurvePoint",
    "Search",
    "Trial",
    "read_capacity",
    "search_capacity",
    "trial_of",
]


@dataclass(frozen=True, slots=True)
class Trial:
    """One point held against the objective.

    meets: None where the point says nothing (an invalid client). misses: what it failed by.
    verdict: of the client's own check; a suspect one is counted and told.
    """

    rate_rps: float
    seed: int
    meets: bool | None
    misses: tuple[str, ...] = ()
    p95_ms: float | None = None
    listeners: float | None = None
    n: int = 0
    verdict: str = "valid"


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """All trials at one rate. `fitted`: the share that meets, made to fall with the rate."""

    rate_rps: float
    num_trials: int
    num_met: int
    num_void: int
    fitted: float
    p95_ms: tuple[float, ...]
    misses: tuple[str, ...]
    num_suspect: int
    listeners: float | None


class CapacityStatus(StrEnum):
    """How well the answer is enclosed."""

    ENCLOSED = "enclosed"
    ABOVE_ALL = "above_all"  # every rate that was tried meets the objective
    BELOW_ALL = "below_all"  # none does
    BUDGET = "budget"  # the time was over before the interval was as narrow as asked
    NO_DATA = "no_data"  # no point that says anything


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer: the capacity lies between `lo_rps` (met) and `hi_rps` (not met).

    lo_rps None: not even the lowest rate met it; hi_rps None: no rate failed. best_rps: the highest
    rate that at least half of the seeds met. listeners: at lo_rps, how many people that serves.
    """

    engine: str
    objective: str
    status: CapacityStatus
    lo_rps: float | None
    hi_rps: float | None
    best_rps: float | None
    listeners: float | None
    curve: tuple[CurvePoint, ...]


# -- one point against the objective --------------------------------------------------------------


def trial_of(point: PointEvidence, slo: Slo, *, wer: float | None = None) -> Trial:
    """Hold one point against the objective.

    A latency that is not reached misses it. Underruns do not apply to replies in one chunk, and
    WER only where somebody listened.
    """
    summary = point.summary
    metrics = summary["metrics"]
    p95 = metrics["audible_ttfa"]["p95"]["value"]
    misses = [
        *_over("p95 audible TTFA", p95, slo.audible_ttfa_p95_ms, "ms", is_needed=True),
        *_over("failure rate", _point_value(metrics, "failure_rate"), slo.failure_rate, "",
               is_needed=True),
        *_over("underrun rate", _point_value(metrics, "underrun_rate"), slo.underrun_rate, ""),
        *_over("WER", wer, slo.wer, ""),
    ]  # fmt: skip
    if summary["load"] != "sustained":
        misses.append(f"{summary['load']}: {summary.get('load_reason')}")
    return Trial(
        rate_rps=point.rate_rps,
        seed=point.seed,
        meets=None if point.is_invalid else not misses,
        misses=tuple(misses),
        p95_ms=p95,
        listeners=_point_value(metrics, "concurrent_listeners"),
        n=int(summary["n"]),
        verdict=summary["validity"]["verdict"],
    )


def _point_value(metrics: dict[str, dict[str, dict[str, float | None]]], name: str) -> float | None:
    return metrics[name]["value"]["value"]


def _over(
    name: str, value: float | None, limit: float, unit: str, *, is_needed: bool = False
) -> list[str]:
    if value is None:
        return [f"{name} not reached"] if is_needed else []
    return [f"{name} {value:.4g} {unit}".rstrip()] if value > limit else []


# -- from a finished sweep ------------------------------------------------------------------------


def read_capacity(run: RunEvidence, slo: Slo) -> list[Capacity]:
    """One answer per engine of a sweep; nothing is sent."""
    answers = []
    for engine in run.engines:
        wer = (run.wer.get(engine) or {}).get("value")
        points = [point for point in run.points if point.engine == engine]
        trials = [trial_of(point, slo, wer=wer) for point in points]
        answers.append(_answer(engine, slo, trials))
    return answers


def _answer(
    engine: str, slo: Slo, trials: Sequence[Trial], *, status: CapacityStatus | None = None
) -> Capacity:
    curve = _curve(trials)
    known = [point for point in curve if point.num_trials]
    met = [point for point in known if point.fitted == 1.0]
    failed = [point for point in known if point.fitted == 0.0]
    half = [point.rate_rps for point in known if point.fitted >= 0.5]
    lo = met[-1] if met else None
    hi = failed[0] if failed else None
    if status is None:
        status = _status(known, lo, hi)
    return Capacity(
        engine=engine,
        objective=str(slo),
        status=status,
        lo_rps=lo.rate_rps if lo else None,
        hi_rps=hi.rate_rps if hi else None,
        best_rps=max(half, default=None),
        listeners=lo.listeners if lo else None,
        curve=tuple(curve),
    )


def _status(
    known: Sequence[CurvePoint], lo: CurvePoint | None, hi: CurvePoint | None
) -> CapacityStatus:
    if not known:
        return CapacityStatus.NO_DATA
    if hi is None and known[-1].fitted >= 0.5:
        return CapacityStatus.ABOVE_ALL
    if lo is None and known[0].fitted < 0.5:
        return CapacityStatus.BELOW_ALL
    return CapacityStatus.ENCLOSED


def _curve(trials: Sequence[Trial]) -> list[CurvePoint]:
    rates = sorted({trial.rate_rps for trial in trials})
    groups = [[trial for trial in trials if trial.rate_rps == rate] for rate in rates]
    told = [[trial for trial in group if trial.meets is not None] for group in groups]
    shares = [sum(bool(t.meets) for t in group) / len(group) if group else 0.0 for group in told]
    kept = [index for index, group in enumerate(told) if group]
    fitted = falling_fit([shares[i] for i in kept], [float(len(told[i])) for i in kept])
    by_index = dict(zip(kept, fitted, strict=True))
    return [
        CurvePoint(
            rate_rps=rate,
            num_trials=len(told[index]),
            num_met=sum(bool(t.meets) for t in told[index]),
            num_void=len(group) - len(told[index]),
            fitted=by_index.get(index, math.nan),
            p95_ms=tuple(t.p95_ms for t in told[index] if t.p95_ms is not None),
            misses=tuple(dict.fromkeys(miss for t in told[index] for miss in t.misses)),
            num_suspect=sum(t.verdict == "suspect" for t in told[index]),
            listeners=_mean([t.listeners for t in told[index] if t.listeners is not None]),
        )
        for index, (rate, group) in enumerate(zip(rates, groups, strict=True))
    ]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


# -- by search ------------------------------------------------------------------------------------

# rate, seed -> what came of it, or None when the time is over.
Measure = Callable[[float, int], Trial | None]


@dataclass(frozen=True, slots=True)
class Search:
    """How far and how finely to search.

    start_rps: the first rate. lowest_rps, highest_rps: never beyond. ratio: the interval is narrow
    enough when hi <= ratio x lo. lead: passes minus failures (or the reverse) that call a rate.
    max_seeds: per rate; a rate that is still open then is a coin toss and stays inside.
    """

    start_rps: float
    lowest_rps: float = 0.01
    highest_rps: float = 1000.0
    ratio: float = 1.1
    lead: int = 2
    max_seeds: int = 6
    seeds: tuple[int, ...] = field(default_factory=lambda: tuple(range(1, 100)))

    def __post_init__(self) -> None:
        if not 0 < self.lowest_rps <= self.start_rps <= self.highest_rps or self.ratio <= 1:
            raise ValueError(
                f"search: expected 0 < lowest ({self.lowest_rps:g}) <= start ({self.start_rps:g})"
                f" <= highest ({self.highest_rps:g}) and a ratio ({self.ratio:g}) above 1"
            )


class _Called(StrEnum):
    MET = "met"
    MISSED = "missed"
    OPEN = "open"


class _OutOfTime(Exception):  # noqa: N818 - no error: the search ends with what it has
    """The budget is spent."""


def search_capacity(measure: Measure, search: Search, *, engine: str, slo: Slo) -> Capacity:
    """Enclose the capacity of one engine by measuring it.

    Args:
        measure: runs one point; None once the time is over.
        search: where to begin, how finely, how many seeds.
        engine: its name in the answer.
        slo: the objective, named in the answer.
    """
    trials: list[Trial] = []
    status: CapacityStatus | None = None
    lo: float | None = None
    hi: float | None = None
    try:
        lo, hi = _enclose(measure, search, trials)
        if lo is not None and hi is not None:
            lo, hi = _narrow(measure, search, trials, lo, hi)
    except _OutOfTime:
        status = CapacityStatus.BUDGET
        lo, hi = _called_bounds(trials, search)
    found = _answer(engine, slo, trials, status=status)
    listeners = next((p.listeners for p in found.curve if p.rate_rps == lo), None)
    if status is None:
        status = _search_status(lo, hi, trials)
    return Capacity(
        engine=engine,
        objective=found.objective,
        status=status,
        lo_rps=lo,
        hi_rps=hi,
        best_rps=found.best_rps,
        listeners=listeners,
        curve=found.curve,
    )


def _search_status(lo: float | None, hi: float | None, trials: Sequence[Trial]) -> CapacityStatus:
    if not any(trial.meets is not None for trial in trials):
        return CapacityStatus.NO_DATA
    if lo is None:
        return CapacityStatus.BELOW_ALL
    return CapacityStatus.ABOVE_ALL if hi is None else CapacityStatus.ENCLOSED


def _enclose(
    measure: Measure, search: Search, trials: list[Trial]
) -> tuple[float | None, float | None]:
    """Double or halve from the start until one rate is met and one is missed."""
    rate = search.start_rps
    lo: float | None = None
    hi: float | None = None
    while True:
        called = _call(measure, search, trials, rate)
        if called is _Called.MET:
            lo = rate
        elif called is _Called.MISSED:
            hi = rate
        if lo is not None and hi is not None:
            return lo, hi
        # An open rate is near the answer: look on both sides of it, lower first.
        step = 2.0 if hi is None and called is not _Called.OPEN else 0.5
        if lo is not None:
            step = 2.0
        following = min(search.highest_rps, max(search.lowest_rps, rate * step))
        if following == rate:
            return lo, hi
        rate = following


def _narrow(
    measure: Measure, search: Search, trials: list[Trial], lo: float, hi: float
) -> tuple[float, float]:
    """Halve the interval in ratio; an open rate ends it from both sides."""
    while hi > search.ratio * lo * (1 + 1e-9):
        middle = _round(math.sqrt(lo * hi))
        if middle in (lo, hi):
            break
        called = _call(measure, search, trials, middle)
        if called is _Called.MET:
            lo = middle
        elif called is _Called.MISSED:
            hi = middle
        else:
            return _tighten_around(measure, search, trials, lo, middle, hi)
    return lo, hi


def _tighten_around(
    measure: Measure, search: Search, trials: list[Trial], lo: float, open_rate: float, hi: float
) -> tuple[float, float]:
    """`open_rate` is a coin toss: bring each end towards it once."""
    below = _round(math.sqrt(lo * open_rate))
    if _call(measure, search, trials, below) is _Called.MET:
        lo = below
    above = _round(math.sqrt(open_rate * hi))
    if _call(measure, search, trials, above) is _Called.MISSED:
        hi = above
    return lo, hi


def _call(measure: Measure, search: Search, trials: list[Trial], rate: float) -> _Called:
    """Run seeds at one rate until passes and failures differ by `lead`."""
    balance = 0
    for seed in search.seeds[: search.max_seeds]:
        trial = measure(rate, seed)
        if trial is None:
            raise _OutOfTime
        trials.append(trial)
        if trial.meets is not None:
            balance += 1 if trial.meets else -1
        if abs(balance) >= search.lead:
            return _Called.MET if balance > 0 else _Called.MISSED
    return _Called.OPEN


def _called_bounds(trials: Sequence[Trial], search: Search) -> tuple[float | None, float | None]:
    """The ends that were called before the time was over."""
    balances: dict[float, int] = {}
    for trial in trials:
        if trial.meets is not None:
            change = 1 if trial.meets else -1
            balances[trial.rate_rps] = balances.get(trial.rate_rps, 0) + change
    met = [rate for rate, balance in balances.items() if balance >= search.lead]
    missed = [rate for rate, balance in balances.items() if balance <= -search.lead]
    return max(met, default=None), min(missed, default=None)


def _round(rate: float) -> float:
    """Three digits: rates that people can read and repeat."""
    return float(f"{rate:.3g}")
