"""Which engine is better, at which rate, by how much, how sure, and by what means.

Same seeds give the same arrivals and prompts, so every difference is taken request by request. The
interval of a percentile's comes from a block bootstrap over them, that of a share's is Newcombe's.
What is claimed has passed a correction for looking at several metrics. Runs that differ in what
must be alike are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from analysis.errors import NotComparableError
from analysis.evidence import (
    SIMULATED_NOTE,
    PointEvidence,
    RunEvidence,
    load_evidence,
    machine_differences,
)
from analysis.metrics import Better, registry
from analysis.number_words import count
from analysis.pairing import (
    PointPair,
    Values,
    change_of_share,
    difference_of,
    metric_values,
    pair_points,
    text_wait_values,
    unpaired_change_of_share,
    unpaired_difference_of,
)
from analysis.percentiles import MIN_N_FOR_INTERVAL
from analysis.stats.bootstrap import NOTHING_TO_COMPARE, Difference, quantile_statistic
from analysis.stats.multiple import holm
from analysis.stats.share_change import ShareChange
from analysis.view import AnalysisSettings

__all__ = [
    "TEXT_WAIT",
    "Comparison",
    "Contender",
    "Decomposition",
    "Finding",
    "MetricDifference",
    "RateComparison",
    "compare",
    "condition_differences",
    "contenders",
    "contenders_of",
    "supported",
]

_SIGNIFICANT = 0.05
TEXT_WAIT = "final_text_to_audible"


class Finding(StrEnum):
    """What may be claimed about the second against the first."""

    BETTER = "better"
    WORSE = "worse"
    NOT_SHOWN = "not_shown"  # the interval holds 0, or only chance of many metrics
    TOO_FEW = "too_few"  # fewer requests than the percentile needs for any interval
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True)
class Contender:
    """One engine of one run."""

    label: str
    engine: str
    run: RunEvidence


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """One metric at one statistic. `adjusted_p` is corrected for all metrics of this rate."""

    metric: str
    statistic: str
    unit: str
    better: Better
    difference: Difference
    adjusted_p: float | None
    finding: Finding


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Where the mean difference in audible TTFA comes from; the three parts add up to it, in ms.

    Over the requests that were heard on both sides. A server that cuts its leading silence gains in
    the second part, one that computes faster in the first.
    """

    num_pairs: int
    total_ms: float
    first_playable_ms: float
    leading_silence_ms: float
    stalls_ms: float


@dataclass(frozen=True, slots=True)
class RateComparison:
    """Two contenders at one rate. `decomposition` only where both count from the dispatch."""

    rate_rps: float
    first: str
    second: str
    is_paired: bool
    differences: tuple[MetricDifference, ...]
    decomposition: Decomposition | None
    cautions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every contender against the first, at every rate that both have.

    notes: what differs between the runs and may explain a difference.
    """

    contenders: tuple[str, ...]
    notes: tuple[str, ...]
    rates: tuple[RateComparison, ...]


@dataclass(frozen=True, slots=True)
class _Compared:
    metric: str
    percent: int | None  # None: a share

    @property
    def statistic(self) -> str:
        return "share" if self.percent is None else f"p{self.percent}"

    @property
    def values(self) -> Values:
        """Of a percentile."""
        return text_wait_values if self.metric == TEXT_WAIT else metric_values(self.metric)


# Few on purpose: every further metric makes each claim harder.
_COMPARED = (
    _Compared("audible_ttfa", 50),
    _Compared("audible_ttfa", 95),
    _Compared("audible_received", 95),
    _Compared("ttfp", 50),
    _Compared("e2e", 50),
    _Compared("required_delay", 95),
    _Compared("underrun_rate", None),
    _Compared("failure_rate", None),
)
# Whole text against text in pieces: a latency from dispatch would count the writing of the text on
# one side only.
_COMPARED_AFTER_TEXT = (
    _Compared(TEXT_WAIT, 50),
    _Compared(TEXT_WAIT, 95),
    _Compared("required_delay", 95),
    _Compared("underrun_rate", None),
    _Compared("failure_rate", None),
)
_TEXT_NOTE = (
    "text is sent whole on one side and in pieces on the other; what is compared is the wait from"
    " the end of the text to the first sound"
)


def contenders_of(
    paths: Sequence[Path], *, settings: AnalysisSettings | None = None
) -> list[Contender]:
    """Every engine of every run, in order; the first is what the others are held against.

    Raises:
        RunFolderError, RulesError: a path is neither a run nor a baseline.
        NotComparableError: fewer than two engines in all.
    """
    return contenders([load_evidence(path, settings=settings) for path in paths])


def contenders(runs: Sequence[RunEvidence]) -> list[Contender]:
    """The same of runs that were read already.

    Raises:
        NotComparableError: fewer than two engines in all.
    """
    engines = [(run, engine) for run in runs for engine in run.engines]
    if len(engines) < 2:
        raise NotComparableError(
            f"{', '.join(run.source for run in runs)}: {count(len(engines), 'engine')} in all, a"
            " comparison needs two; name a second run"
        )
    is_named_twice = len({engine for _, engine in engines}) < len(engines)
    return [
        Contender(f"{Path(run.source).name}:{engine}" if is_named_twice else engine, engine, run)
        for run, engine in engines
    ]


def compare(of: Sequence[Contender], *, is_forced: bool = False, seed: int = 0) -> Comparison:
    """Hold every contender against the first.

    Args:
        of: at least two contenders.
        is_forced: compare also what differs in load, prompts, seeds or reading; requests are then
            paired only where their prompts agree.
        seed: of the resampling.

    Raises:
        NotComparableError: the runs differ in what must be alike, or have no rate in common.
    """
    first, *others = of
    notes = [f"{each.label}: {SIMULATED_NOTE}" for each in of if each.run.is_simulated]
    rates: list[RateComparison] = []
    for second in others:
        is_about_text = _is_text_comparison(first.run, second.run)
        differing = condition_differences(first.run, second.run)
        if differing and not is_forced:
            raise NotComparableError(
                f"{first.label} and {second.label} cannot be compared: {'; '.join(differing)};"
                " run both under one scenario, or insist with --force"
            )
        notes.extend(f"{second.label}: {text}" for text in differing)
        if is_about_text:
            notes.append(f"{second.label}: {_TEXT_NOTE}")
        notes.extend(f"{second.label}: {text}" for text in _environment(first.run, second.run))
        notes.extend(f"{second.label}: {text}" for text in _bases(first, second))
        matches = _matches(first, second, is_forced=is_forced)
        rates.extend(_at_rate(first, second, match, seed=seed) for match in matches)
    return Comparison(tuple(each.label for each in of), tuple(notes), tuple(rates))


def condition_differences(first: RunEvidence, second: RunEvidence) -> list[str]:
    """What must be alike and is not, in words. Whole text against pieces is a fair question."""
    ours, theirs = first.fingerprint.conditions, second.fingerprint.conditions
    asked = {"text_pacing"} if _is_text_comparison(first, second) else set()
    return [
        f"{key} is {ours.get(key)!r} and {theirs.get(key)!r}"
        for key in sorted({*ours, *theirs} - asked)
        if ours.get(key) != theirs.get(key)
    ]


def _is_text_comparison(first: RunEvidence, second: RunEvidence) -> bool:
    """Whether exactly one of the runs sent its texts whole."""
    pacings = (run.fingerprint.conditions.get("text_pacing") or {} for run in (first, second))
    return len({pacing.get("mode", "whole") == "whole" for pacing in pacings}) > 1


def _bases(first: Contender, second: Contender) -> list[str]:
    """A word where samples were attributed to chunks in different ways."""
    ours, theirs = (
        sorted({basis for point in c.run.points if point.engine == c.engine
                for basis in point.duration_bases})
        for c in (first, second)
    )  # fmt: skip
    if not ours or not theirs or ours == theirs:
        return []
    return [
        f"samples are timed by {'/'.join(ours)} and {'/'.join(theirs)} (audio formats differ), so"
        " times to the first sound are not on the same footing"
    ]


def _environment(first: RunEvidence, second: RunEvidence) -> list[str]:
    """What may differ, and must be told."""
    notes = [
        f"another machine ({text})"
        for text in machine_differences(first.fingerprint, second.fingerprint)
    ]
    for what in ("versions", "revision"):
        ours, theirs = getattr(first.fingerprint, what), getattr(second.fingerprint, what)
        notes.extend(
            f"{what}: {key} {ours.get(key)} and {theirs.get(key)}"
            for key in sorted({*ours, *theirs})
            if ours.get(key) != theirs.get(key)
        )
    return notes


@dataclass(frozen=True, slots=True)
class _Match:
    """All that two contenders did at one rate. `pairs`: none where they do not share a plan."""

    rate_rps: float
    first: Sequence[PointEvidence]
    second: Sequence[PointEvidence]
    pairs: Sequence[PointPair]


def _matches(first: Contender, second: Contender, *, is_forced: bool) -> list[_Match]:
    found = []
    for rate in first.run.rates_rps:
        ours, theirs = first.run.at(first.engine, rate), second.run.at(second.engine, rate)
        pairs = pair_points(ours, theirs)
        is_paired = all(pair.has_same_prompts for pair in pairs)
        if not is_paired and not is_forced:
            raise NotComparableError(
                f"{first.label} and {second.label} at {rate:g}/s said different prompts at the"
                " same place of the plan; run both under one scenario, or insist with --force"
            )
        if pairs and is_paired:
            # Of seeds that both have: the others would only add to one side.
            ours, theirs = [p.first for p in pairs], [p.second for p in pairs]
            found.append(_Match(rate, ours, theirs, pairs))
        elif is_forced and ours and theirs:
            found.append(_Match(rate, ours, theirs, ()))
    if not found:
        raise NotComparableError(_nothing_in_common(first, second))
    return found


def _nothing_in_common(first: Contender, second: Contender) -> str:
    who = f"{first.label} and {second.label}"
    points = [[p for p in c.run.points if p.engine == c.engine] for c in (first, second)]
    rates = [sorted({point.rate_rps for point in each}) for each in points]
    if set(rates[0]).isdisjoint(rates[1]):
        told = (", ".join(f"{rate:g}/s" for rate in each) or "none" for each in rates)
        return f"{who} have no rate in common: {' and '.join(told)}"
    seeds = (", ".join(map(str, sorted({point.seed for point in each}))) for each in points)
    return (
        f"{who} have no seed in common at any rate: {' and '.join(seeds)}; run both under the same"
        " seeds, or insist with --force, which compares them unpaired"
    )


def _at_rate(first: Contender, second: Contender, match: _Match, *, seed: int) -> RateComparison:
    is_about_text = _is_text_comparison(first.run, second.run)
    compared = _COMPARED_AFTER_TEXT if is_about_text else _COMPARED
    differences = [_difference(each, match, seed=seed) for each in compared]
    return RateComparison(
        rate_rps=match.rate_rps,
        first=first.label,
        second=second.label,
        is_paired=bool(match.pairs),
        differences=_judged(compared, differences),
        decomposition=None if is_about_text else _decompose(match.pairs),
        cautions=(
            *_cautions(first.label, match.first),
            *_cautions(second.label, match.second),
        ),
    )


def _difference(each: _Compared, match: _Match, *, seed: int) -> Difference:
    ours, theirs, pairs = match.first, match.second, match.pairs
    if each.percent is None:
        change = (
            change_of_share(pairs, each.metric)
            if pairs
            else unpaired_change_of_share(ours, theirs, each.metric)
        )
        return _of_share(change, num_seeds=min(len(ours), len(theirs)))
    statistic = quantile_statistic(each.percent)
    found = (
        difference_of(pairs, each.values, statistic, seed=seed)
        if pairs
        else unpaired_difference_of(ours, theirs, each.values, statistic, seed=seed)
    )
    return supported(found, each.percent)


def _of_share(change: ShareChange | None, *, num_seeds: int) -> Difference:
    if change is None:
        return NOTHING_TO_COMPARE
    return Difference(
        first=change.first,
        second=change.second,
        value=change.value,
        lo=change.interval.lo,
        hi=change.interval.hi,
        p_value=change.p_value,
        num_pairs=change.n,
        num_seeds=num_seeds,
    )


def _judged(
    compared: Sequence[_Compared], differences: Sequence[Difference]
) -> tuple[MetricDifference, ...]:
    measured = [i for i, found in enumerate(differences) if found.p_value is not None]
    corrected = holm([differences[i].p_value or 0.0 for i in measured])
    adjusted = dict(zip(measured, corrected, strict=True))
    judged = []
    for index, (each, found) in enumerate(zip(compared, differences, strict=True)):
        metric = registry()[each.metric]
        judged.append(
            MetricDifference(
                metric=each.metric,
                statistic=each.statistic,
                unit=metric.unit,
                better=metric.better,
                difference=found,
                adjusted_p=adjusted.get(index),
                finding=_finding(found, adjusted.get(index), metric.better),
            )
        )
    return tuple(judged)


def supported(found: Difference, percent: int) -> Difference:
    """The difference, its interval taken away where there are too few requests for one.

    The same numbers as for a single percentile: the resampled p95 of 20 values is only their
    maximum, however often it is resampled.
    """
    if found.num_pairs >= MIN_N_FOR_INTERVAL[percent]:
        return found
    return replace(found, lo=None, hi=None, p_value=None)


def _finding(found: Difference, adjusted_p: float | None, better: Better) -> Finding:
    if found.value is None:
        return Finding.NOT_MEASURED
    if adjusted_p is None:
        return Finding.TOO_FEW
    if not found.is_clear or adjusted_p >= _SIGNIFICANT:
        return Finding.NOT_SHOWN
    is_lower = found.hi is not None and found.hi < 0
    return Finding.BETTER if is_lower == (better is Better.LOWER) else Finding.WORSE


def _decompose(pairs: Sequence[PointPair]) -> Decomposition | None:
    parts = [part for pair in pairs for part in _parts(pair)]
    if not parts:
        return None
    first_playable, silence, stalls = np.array(parts).mean(axis=0)
    return Decomposition(
        num_pairs=len(parts),
        total_ms=float(first_playable + silence + stalls),
        first_playable_ms=float(first_playable),
        leading_silence_ms=float(silence),
        stalls_ms=float(stalls),
    )


def _parts(pair: PointPair) -> list[list[float]]:
    """Per request heard on both sides: differences in first playable, silence, stalls."""
    names = ("ttfp", "leading_silence", "silence_cost")
    sides = [[side.by_index(name) for name in names] for side in (pair.first, pair.second)]
    shared = set.intersection(*(set(values) for side in sides for values in side))
    found = []
    for index in sorted(shared):
        (a_ttfp, a_silence, a_cost), (b_ttfp, b_silence, b_cost) = (
            [values[index] for values in side] for side in sides
        )
        if np.isfinite([a_ttfp, b_ttfp]).all():
            stalls = (b_cost - b_silence) - (a_cost - a_silence)
            found.append([b_ttfp - a_ttfp, b_silence - a_silence, stalls])
    return found


def _cautions(label: str, points: Sequence[PointEvidence]) -> Iterator[str]:
    """What stands against the points of one contender at one rate, each thing once."""
    seeds: dict[str, list[int]] = {}
    for point in points:
        validity = point.summary["validity"]
        if validity["verdict"] != "valid":
            codes = ", ".join(reason["code"] for reason in validity["reasons"])
            seeds.setdefault(f"{validity['verdict']} ({codes})", []).append(point.seed)
        if point.summary["load"] == "overloaded":
            why = point.summary.get("load_reason")
            seeds.setdefault(f"overloaded ({why})", []).append(point.seed)
    for text, of in seeds.items():
        yield (
            f"{label} at {points[0].rate_rps:g}/s, seed{'' if len(of) == 1 else 's'}"
            f" {', '.join(map(str, of))}: {text}"
        )
