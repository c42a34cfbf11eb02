"""The highest rate that meets an objective, as an interval and a curve, never one best point.

From a finished sweep the answer is read off. With an engine at hand it is searched: the rate is
halved until it is met and doubled until it is missed, then the interval is narrowed from both ends.
A rate is called met or missed only where several seeds agree; one on which they differ stays inside
the interval. (Calling by majority instead puts the true capacity below the interval in a third of
searches: the p95 of a short run is more often too low than too high.)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from analysis.evidence import PointEvidence, RunEvidence
from analysis.number_words import number, share, share_of
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
    num_characters, audio_s: of a request, on average over those that were spoken well.
    achieved_rps: requests that were sent, over the length of the measurement.
    """

    rate_rps: float
    seed: int
    meets: bool | None
    misses: tuple[str, ...] = ()
    p95_ms: float | None = None
    listeners: float | None = None
    num_characters: float | None = None
    audio_s: float | None = None
    n: int = 0
    verdict: str = "valid"
    achieved_rps: float | None = None


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
    num_characters: float | None
    audio_s: float | None
    achieved_rps: float | None = None


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
    is_simulated: read from a model's numbers.
    """

    engine: str
    objective: str
    status: CapacityStatus
    lo_rps: float | None
    hi_rps: float | None
    best_rps: float | None
    listeners: float | None
    curve: tuple[CurvePoint, ...]
    is_simulated: bool = False


# -- one point against the objective --------------------------------------------------------------


def trial_of(point: PointEvidence, slo: Slo, *, wer: float | None = None) -> Trial:
    """Hold one point against the objective.

    A latency that is not reached misses it, and so does one that could not be measured because no
    audio was kept. Underruns do not apply to replies in one chunk, and WER only where somebody
    listened.
    """
    summary = point.summary
    metrics = summary["metrics"]
    spoken = point.cohort[["audio_duration", "seconds_per_character"]].astype(float).dropna()
    p95 = metrics["audible_ttfa"]["p95"]["value"]
    has_data = metrics["audible_ttfa"]["p95"]["status"] != "no_data"
    misses = [
        *_over("p95 audible TTFA", p95, slo.audible_ttfa_p95_ms, "ms",
               absent="not reached" if has_data else "not measured"),
        *_over_share("failure rate", metrics["failure_rate"], slo.failure_rate,
                     absent="not measured"),
        *_over_share("underrun rate", metrics["underrun_rate"], slo.underrun_rate),
        *([f"WER {share(wer)}"] if wer is not None and wer > slo.wer else []),
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
        num_characters=_mean(
            [float(d / c) for d, c in zip(spoken.iloc[:, 0], spoken.iloc[:, 1], strict=True) if c]
        ),
        audio_s=_mean(spoken["audio_duration"].tolist()),
        n=int(summary["n"]),
        verdict=summary["validity"]["verdict"],
        achieved_rps=summary["achieved_rps"],
    )


def _point_value(metrics: dict[str, dict[str, dict[str, float | None]]], name: str) -> float | None:
    return metrics[name]["value"]["value"]


def _over(
    name: str, value: float | None, limit: float, unit: str, *, absent: str = ""
) -> list[str]:
    """What is missed; `absent` says it where there is no value, which otherwise does not matter."""
    if value is None:
        return [f"{name} {absent}"] if absent else []
    return [f"{name} {number(value, unit)}"] if value > limit else []


def _over_share(
    name: str, found: Mapping[str, Any], limit: float, *, absent: str = ""
) -> list[str]:
    """The same for a share: `failure rate 4.9 % (2 of 41)`."""
    value, n = found["value"]["value"], found["n"]
    if value is None:
        return [f"{name} {absent}"] if absent else []
    return [f"{name} {share_of(round(value * n), n)}"] if value > limit else []


# -- from a finished sweep ------------------------------------------------------------------------


def read_capacity(run: RunEvidence, slo: Slo) -> list[Capacity]:
    """One answer per engine of a sweep; nothing is sent."""
    answers = []
    for engine in run.engines:
        wer = (run.wer.get(engine) or {}).get("value")
        points = [point for point in run.points if point.engine == engine]
        trials = [trial_of(point, slo, wer=wer) for point in points]
        answer = _answer(engine, slo, trials)
        answers.append(replace(answer, is_simulated=run.is_simulated))
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
            listeners=_mean_of("listeners", told[index]),
            num_characters=_mean_of("num_characters", told[index]),
            audio_s=_mean_of("audio_s", told[index]),
            achieved_rps=_mean_of("achieved_rps", told[index]),
        )
        for index, (rate, group) in enumerate(zip(rates, groups, strict=True))
    ]


def _mean_of(name: str, trials: Sequence[Trial]) -> float | None:
    values = [getattr(trial, name) for trial in trials]
    return _mean([value for value in values if value is not None])


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


# -- by search ------------------------------------------------------------------------------------

# rate, seed -> what came of it, or None when the time is over.
Measure = Callable[[float, int], Trial | None]


@dataclass(frozen=True, slots=True)
class Search:
    """How far and how finely to search.

    start_rps: the first rate. lowest_rps, highest_rps: never beyond. ratio: each end is narrowed
    until the next rate that was tried is within this ratio of it. num_agreeing: seeds that must
    agree to call a rate met or missed.
    """

    start_rps: float
    lowest_rps: float = 0.01
    highest_rps: float = 1000.0
    ratio: float = 1.2
    num_agreeing: int = 3
    first_seed: int = 1

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
    state = _State(measure, search)
    is_out_of_time = False
    try:
        state.enclose()
        state.raise_lower_end()
        state.bring_down_upper_end()
    except _OutOfTime:
        is_out_of_time = True
    found = _answer(engine, slo, state.trials)
    lo, hi = state.lo, state.hi
    return replace(
        found,
        status=CapacityStatus.BUDGET if is_out_of_time else _search_status(state),
        lo_rps=lo,
        hi_rps=hi,
        listeners=next((p.listeners for p in found.curve if p.rate_rps == lo), None),
    )


def _search_status(state: _State) -> CapacityStatus:
    if not any(trial.meets is not None for trial in state.trials):
        return CapacityStatus.NO_DATA
    if state.lo is None:
        return CapacityStatus.BELOW_ALL
    return CapacityStatus.ABOVE_ALL if state.hi is None else CapacityStatus.ENCLOSED


class _State:
    """What has been tried, and what each rate was called."""

    def __init__(self, measure: Measure, search: Search) -> None:
        self._measure = measure
        self._search = search
        self.trials: list[Trial] = []
        self._called: dict[float, _Called] = {}

    @property
    def lo(self) -> float | None:
        """The highest met rate with nothing doubtful below it."""
        doubtful = [rate for rate, called in self._called.items() if called is not _Called.MET]
        limit = min(doubtful, default=math.inf)
        met = [rate for rate, called in self._called.items() if called is _Called.MET]
        return max((rate for rate in met if rate < limit), default=None)

    @property
    def hi(self) -> float | None:
        """The lowest missed rate with nothing doubtful above it."""
        doubtful = [rate for rate, called in self._called.items() if called is not _Called.MISSED]
        limit = max(doubtful, default=0.0)
        missed = [rate for rate, called in self._called.items() if called is _Called.MISSED]
        return min((rate for rate in missed if rate > limit), default=None)

    def enclose(self) -> None:
        """Halve from the start until a rate is met, double until one is missed."""
        search = self._search
        rate = search.start_rps
        while self._call(rate) is not _Called.MET and rate > search.lowest_rps:
            rate = max(search.lowest_rps, rate / 2)
        rate = max(self._called)
        while self._call(rate) is not _Called.MISSED and rate < search.highest_rps:
            rate = min(search.highest_rps, rate * 2)

    def raise_lower_end(self) -> None:
        """Halve, in ratio, the way from the met end to the nearest rate above it."""
        while self.lo is not None:
            above = min((rate for rate in self._called if rate > self.lo), default=None)
            if above is None or not self._try_between(self.lo, above):
                return

    def bring_down_upper_end(self) -> None:
        """Halve, in ratio, the way from the missed end to the nearest rate below it."""
        while self.hi is not None:
            below = max((rate for rate in self._called if rate < self.hi), default=None)
            if below is None or not self._try_between(below, self.hi):
                return

    def _try_between(self, lower: float, upper: float) -> bool:
        """Call the rate in the middle; False where the two are near enough."""
        middle = float(f"{math.sqrt(lower * upper):.3g}")
        if upper <= self._search.ratio * lower * (1 + 1e-9) or middle in self._called:
            return False
        self._call(middle)
        return True

    def _call(self, rate: float) -> _Called:
        """Run seeds at one rate until enough agree, or two disagree.

        Points that say nothing (an invalid client) are tried again with further seeds, as often
        once more as there had to be.
        """
        if rate in self._called:
            return self._called[rate]
        search = self._search
        answers: list[bool] = []
        for seed in range(search.first_seed, search.first_seed + 2 * search.num_agreeing):
            trial = self._measure(rate, seed)
            if trial is None:
                raise _OutOfTime
            self.trials.append(trial)
            if trial.meets is not None:
                answers.append(trial.meets)
            if len(set(answers)) > 1 or len(answers) == search.num_agreeing:
                break
        called = _Called.OPEN
        if len(answers) == search.num_agreeing and len(set(answers)) == 1:
            called = _Called.MET if answers[0] else _Called.MISSED
        self._called[rate] = called
        return called
