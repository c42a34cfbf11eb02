"""The only place that says pass or fail.

Absolute rules look at a run; regression rules hold it against a base, request by request. Either
passes only where the data rule out that the limit is broken (against a base: by more than the rule
lets go unseen), and fails only where they rule out that it holds. In between the answer is
"inconclusive", with the number of requests that would be enough. An invalid point cannot pass, and
it cannot fail either: its figures say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from analysis.compare import condition_differences, supported
from analysis.errors import NotComparableError, RulesError
from analysis.estimates import Estimate, estimate
from analysis.evidence import PointEvidence, RunEvidence, machine_differences
from analysis.gate_rules import Evidence, GateRules, IfUnmeasured, Rule
from analysis.number_words import quantity, share, share_of
from analysis.pairing import PointPair, change_of_share, difference_of, metric_values, pair_points
from analysis.percentiles import MIN_N_FOR_INTERVAL
from analysis.stats.beyond import MOST_NEEDED, ClusteredShare, share_above
from analysis.stats.bootstrap import Interval, quantile_statistic
from analysis.stats.share_change import ShareChange

__all__ = ["GateVerdict", "RuleResult", "RuleVerdict", "judge"]


class RuleVerdict(StrEnum):
    """Of one rule at one engine and rate, and of the whole gate."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """One rule at one engine and rate.

    value, lo, hi: the figure, or the difference to the base; +inf: not reached; None: not there.
    unit: of those and of the limit. n: requests it rests on. needed_n: how many would be enough,
    where that can be told. beyond: of a percentile, the share of requests beyond its limit, which
    is what was judged. base: of a difference, the base's figure.
    """

    rule: str
    engine: str
    rate_rps: float
    verdict: RuleVerdict
    reason: str
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    limit: float | None = None
    unit: str = ""
    n: int = 0
    needed_n: int | None = None
    beyond: ClusteredShare | None = None
    base: float | None = None


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The answer and what it rests on.

    notes: what differs between the run and its base. is_simulated: a model's numbers were judged.
    """

    gate: str
    verdict: RuleVerdict
    results: tuple[RuleResult, ...]
    notes: tuple[str, ...]
    is_simulated: bool = False

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 inconclusive."""
        return {RuleVerdict.PASS: 0, RuleVerdict.FAIL: 1}.get(self.verdict, 3)


def judge(
    run: RunEvidence,
    rules: GateRules,
    *,
    base: RunEvidence | None = None,
    is_any_machine: bool = False,
) -> GateVerdict:
    """Judge a run.

    Args:
        run: what is judged.
        rules: the gate.
        base: what regression rules hold it against.
        is_any_machine: judge regressions although the base was measured on another machine.

    Raises:
        RulesError: a regression rule without a base, or rules that match no point.
        NotComparableError: run and base differ in load, prompts or reading.
    """
    if rules.needs_base and base is None:
        raise RulesError(
            f"gate {rules.name}: has rules against a base; name one with --against (a run folder,"
            " or a file of `earwitness baseline`)"
        )
    groups = list(_groups(run, rules))
    if not groups:
        raise RulesError(
            f"gate {rules.name}: no point of {run.source} is in its scope"
            f" (engine {rules.scope.engine or 'any'}, rates up to"
            f" {rules.scope.max_rate_rps or 'any'}); it has {', '.join(run.engines) or 'none'} at"
            f" {', '.join(f'{rate:g}/s' for rate in run.rates_rps)}"
        )
    notes = []
    against = None
    if base is not None and rules.needs_base:
        against = _Base(base, _other_machine(run, base, is_any_machine))
        notes.extend(machine_differences(base.fingerprint, run.fingerprint))
    results: list[RuleResult] = []
    for points in groups:
        results.extend(_at_points(points, rules, against, wer=run.wer.get(points[0].engine)))
    return GateVerdict(
        gate=rules.name,
        verdict=_overall(results),
        results=tuple(results),
        notes=tuple(notes),
        is_simulated=run.is_simulated,
    )


@dataclass(frozen=True, slots=True)
class _Base:
    run: RunEvidence
    other_machine: str | None

    def at(self, point: PointEvidence) -> list[PointEvidence]:
        """The base's points at this engine and rate; a base of one engine matches any name."""
        engines = self.run.engines
        engine = point.engine if point.engine in engines or len(engines) != 1 else engines[0]
        return self.run.at(engine, point.rate_rps)


def _other_machine(run: RunEvidence, base: RunEvidence, is_any_machine: bool) -> str | None:
    differing = condition_differences(base, run)
    if differing:
        raise NotComparableError(
            f"{run.source} cannot be held against {base.source}: {'; '.join(differing)}; run the"
            " base's scenario, or make a new baseline"
        )
    differing = machine_differences(base.fingerprint, run.fingerprint)
    return None if is_any_machine or not differing else "; ".join(differing)


def _groups(run: RunEvidence, rules: GateRules) -> Iterator[list[PointEvidence]]:
    for engine in run.engines:
        if rules.scope.engine not in (None, engine):
            continue
        for rate in run.rates_rps:
            limit = rules.scope.max_rate_rps
            points = run.at(engine, rate)
            if points and (limit is None or rate <= limit):
                yield points


def _overall(results: Sequence[RuleResult]) -> RuleVerdict:
    verdicts = {result.verdict for result in results}
    if any(result.rule == _VALIDITY and result.verdict is RuleVerdict.INCONCLUSIVE
           for result in results):  # fmt: skip
        return RuleVerdict.INCONCLUSIVE
    for verdict in (RuleVerdict.FAIL, RuleVerdict.INCONCLUSIVE, RuleVerdict.PASS):
        if verdict in verdicts:
            return verdict
    return RuleVerdict.INCONCLUSIVE  # everything was skipped: nothing was shown


# -- one engine at one rate -----------------------------------------------------------------------

_VALIDITY = "every point is valid enough"
_LOAD = "the load is sustained"


def _at_points(
    points: Sequence[PointEvidence],
    rules: GateRules,
    base: _Base | None,
    *,
    wer: Mapping[str, Any] | None,
) -> Iterator[RuleResult]:
    yield _validity(points, rules)
    if rules.require.load == "sustained":
        yield _load(points)
    for rule in rules.rules:
        if rule.is_regression:
            assert base is not None
            yield _regression(rule, points, base)
        else:
            yield _absolute(rule, points, wer)


def _validity(points: Sequence[PointEvidence], rules: GateRules) -> RuleResult:
    refused = ("invalid",) if rules.require.verdict == "suspect" else ("invalid", "suspect")
    bad = [p for p in points if p.summary["validity"]["verdict"] in refused]
    reasons = [
        f"seed {point.seed} is {point.summary['validity']['verdict']}:"
        f" {', '.join(reason['code'] for reason in point.summary['validity']['reasons'])}"
        for point in bad
    ]
    verdict = RuleVerdict.INCONCLUSIVE if bad else RuleVerdict.PASS
    return _result(_VALIDITY, points, verdict, "; ".join(reasons) or "no finding stands against it")


def _load(points: Sequence[PointEvidence]) -> RuleResult:
    reasons = [
        f"seed {point.seed}: {point.summary['load']}, {point.summary.get('load_reason')}"
        for point in points
        if point.summary["load"] != "sustained"
    ]
    verdict = RuleVerdict.FAIL if reasons else RuleVerdict.PASS
    return _result(_LOAD, points, verdict, "; ".join(reasons) or "requests in flight did not grow")


def _result(
    rule: str, points: Sequence[PointEvidence], verdict: RuleVerdict, reason: str, **figures: object
) -> RuleResult:
    values = {"n": sum(len(point.cohort) for point in points), **figures}
    return RuleResult(
        rule=rule,
        engine=points[0].engine,
        rate_rps=points[0].rate_rps,
        verdict=verdict,
        reason=reason,
        **values,  # type: ignore[arg-type]
    )


def _of_rule(
    rule: Rule,
    points: Sequence[PointEvidence],
    verdict: RuleVerdict,
    reason: str,
    **figures: object,
) -> RuleResult:
    return _result(rule.describe(), points, verdict, reason, unit=rule.unit, **figures)


def _unmeasured(rule: Rule, points: Sequence[PointEvidence], why: str) -> RuleResult:
    is_skipped = rule.if_unmeasured is IfUnmeasured.SKIP
    verdict = RuleVerdict.SKIPPED if is_skipped else RuleVerdict.INCONCLUSIVE
    return _of_rule(rule, points, verdict, f"not measured: {why}", n=0)


def _would_tell(needed_n: int | None) -> str:
    if needed_n is None:
        return "no number of requests that could be run would tell"
    return f"about {needed_n:,} requests would tell"


# -- absolute -------------------------------------------------------------------------------------


def _absolute(
    rule: Rule, points: Sequence[PointEvidence], wer: Mapping[str, Any] | None
) -> RuleResult:
    found = estimate(points, rule.metric, rule.percent, wer=wer)
    if found.value is None:
        return _unmeasured(rule, points, found.why)
    if rule.evidence is Evidence.VALUE:
        # Turned so that larger is worse.
        is_met = _sign(rule) * found.value <= _sign(rule) * _limit(rule)
        verdict = RuleVerdict.PASS if is_met else RuleVerdict.FAIL
        return _of_rule(rule, points, verdict, "by its value alone", **_figures(rule, found))
    if rule.percent is not None:
        return _by_requests(rule, points, found)
    return _by_interval(rule, points, found)


def _sign(rule: Rule) -> float:
    return -1.0 if rule.min is not None or rule.max_decrease is not None else 1.0


def _limit(rule: Rule) -> float:
    limit = rule.max if rule.max is not None else rule.min
    assert limit is not None
    return limit


def _figures(rule: Rule, found: Estimate) -> dict[str, Any]:
    return {
        "value": found.value, "lo": found.lo, "hi": found.hi, "limit": _limit(rule), "n": found.n,
    }  # fmt: skip


def _by_requests(rule: Rule, points: Sequence[PointEvidence], found: Estimate) -> RuleResult:
    """A percentile is within its limit where few enough requests are beyond it."""
    assert rule.percent is not None
    limit, sign = _limit(rule), _sign(rule)
    allowed = (100 - rule.percent if sign > 0 else rule.percent) / 100
    values = [sign * point.values(rule.metric).values for point in points]
    beyond = share_above(values, sign * limit, allowed=allowed)
    assert beyond is not None
    reason = (
        f"{share_of(beyond.num_hits, beyond.n)} of requests"
        f" {'above' if sign > 0 else 'below'} {quantity(limit, rule.unit)}, 95 % interval"
        f" {share(beyond.lo)} to {share(beyond.hi)}, {share(allowed)} may be"
    )
    needed = None
    if beyond.lo > allowed:
        verdict = RuleVerdict.FAIL
    elif beyond.hi <= allowed:
        verdict = RuleVerdict.PASS
    else:
        verdict = RuleVerdict.INCONCLUSIVE
        needed = beyond.needed_n(allowed)
        reason += f"; at this share {_would_tell(needed)}"
        if beyond.inflation_above > 1:
            alike = round(beyond.n / beyond.inflation_above)
            reason += f" (they come in clusters: these say as much as {max(1, alike)} apart)"
    return _of_rule(
        rule, points, verdict, reason, value=found.value, limit=limit, n=found.n, needed_n=needed,
        beyond=beyond,
    )  # fmt: skip


def _by_interval(rule: Rule, points: Sequence[PointEvidence], found: Estimate) -> RuleResult:
    assert found.value is not None
    limit, sign, figures = _limit(rule), _sign(rule), _figures(rule, found)
    if found.lo is None or found.hi is None:
        reason = f"no interval ({found.why})"
        return _of_rule(rule, points, RuleVerdict.INCONCLUSIVE, reason, **figures)
    best, worst = sorted((sign * found.lo, sign * found.hi))
    if best > sign * limit:
        reason = "the whole interval is beyond the limit"
        return _of_rule(rule, points, RuleVerdict.FAIL, reason, **figures)
    if worst <= sign * limit:
        reason = "the whole interval is within the limit"
        return _of_rule(rule, points, RuleVerdict.PASS, reason, **figures)
    if found.share is not None:
        needed = found.share.needed_n(limit)
    else:
        needed = _needed_n(found.n, found.value, end=found.hi if sign > 0 else found.lo, at=limit)
    reason = f"the interval holds the limit; at this value {_would_tell(needed)}"
    return _of_rule(
        rule, points, RuleVerdict.INCONCLUSIVE, reason, needed_n=needed, **figures
    )  # fmt: skip


def _needed_n(n: int, value: float, *, end: float, at: float) -> int | None:
    """How many would bring this end of the interval to `at`, the value staying where it is."""
    reach, distance = abs(end - value), abs(at - value)
    if not math.isfinite(reach) or not math.isfinite(distance) or distance == 0:
        return None
    needed = math.ceil(n * max(1.0, reach / distance) ** 2)
    return needed if needed <= MOST_NEEDED else None


# -- against a base -------------------------------------------------------------------------------


def _regression(rule: Rule, points: Sequence[PointEvidence], base: _Base) -> RuleResult:
    pairs = pair_points(base.at(points[0]), points)
    obstacle = _obstacle(pairs, base)
    if obstacle is not None:
        return _of_rule(rule, points, RuleVerdict.INCONCLUSIVE, obstacle)
    change = _share_change(rule, pairs) if rule.percent is None else _percentile_change(rule, pairs)
    if change is None:
        return _unmeasured(rule, points, "no request has it on both sides")
    if change.interval is None and rule.evidence is Evidence.INTERVAL:
        least = MIN_N_FOR_INTERVAL.get(rule.percent or 0, 2)
        return _of_rule(
            rule, points, RuleVerdict.INCONCLUSIVE,
            f"{change.n} pairs of requests are too few; {least} would be enough for an interval",
            value=change.value, n=change.n, needed_n=least, base=change.base,
        )  # fmt: skip
    return _judge_change(rule, points, change)


@dataclass(frozen=True, slots=True)
class _Change:
    """Of a figure against the base. `of_share`: what it rests on, where it is a share."""

    value: float
    base: float
    n: int
    interval: Interval | None
    of_share: ShareChange | None = None


def _share_change(rule: Rule, pairs: Sequence[PointPair]) -> _Change | None:
    found = change_of_share(pairs, rule.metric)
    if found is None:
        return None
    return _Change(found.value, found.first, found.n, found.interval, found)


def _percentile_change(rule: Rule, pairs: Sequence[PointPair]) -> _Change | None:
    assert rule.percent is not None
    statistic = quantile_statistic(rule.percent)
    found = supported(difference_of(pairs, metric_values(rule.metric), statistic), rule.percent)
    if found.value is None or found.first is None:
        return None
    has_interval = found.lo is not None and found.hi is not None
    interval = Interval(found.lo, found.hi) if has_interval else None  # type: ignore[arg-type]
    return _Change(found.value, found.first, found.num_pairs, interval)


def _obstacle(pairs: Sequence[PointPair], base: _Base) -> str | None:
    """Why nothing can be held against this base, if so."""
    if not pairs:
        return f"{base.run.source} has no point of this engine, rate and seed"
    if not all(pair.has_same_prompts for pair in pairs):
        return "the base said other prompts at the same place of the plan"
    if base.other_machine is not None:
        return f"the base comes from another machine ({base.other_machine})"
    invalid = [pair.first for pair in pairs if pair.first.is_invalid]
    return f"the base is invalid at seed {invalid[0].seed}" if invalid else None


def _judge_change(rule: Rule, points: Sequence[PointEvidence], change: _Change) -> RuleResult:
    """Fail beyond the limit; pass where a larger regression would have been seen; else neither."""
    interval = change.interval or Interval(change.value, change.value)
    figures: dict[str, Any] = {
        "value": change.value, "n": change.n, "base": change.base,
        "lo": interval.lo, "hi": interval.hi,
    }  # fmt: skip
    if not math.isfinite(change.base):
        reason = "the base does not reach this percentile, so nothing can be held against it"
        return _of_rule(rule, points, RuleVerdict.INCONCLUSIVE, reason, **figures)
    sign, limit = _sign(rule), rule.allowed_change(change.base)
    unseen = rule.unseen_change(change.base)
    figures["limit"] = sign * limit
    if rule.evidence is Evidence.VALUE:
        verdict = RuleVerdict.PASS if sign * change.value <= limit else RuleVerdict.FAIL
        return _of_rule(rule, points, verdict, "by its value alone", **figures)
    best, worst = sorted((sign * interval.lo, sign * interval.hi))
    size = _size_words(rule, worst, change.base)
    if best > limit:
        reason = "the whole interval of the difference is beyond the limit"
        return _of_rule(rule, points, RuleVerdict.FAIL, reason, **figures)
    if worst <= unseen:
        ruled_out = f"one of more than {size}" if worst > 0 else "any"
        reason = f"no regression beyond the limit is shown, and {ruled_out} is ruled out"
        return _of_rule(rule, points, RuleVerdict.PASS, reason, **figures)
    needed = _needed_pairs(rule, change, best, worst)
    reason = (
        f"a regression of {size} is not ruled out, and one of"
        f" {_size_words(rule, unseen, change.base)} must be; at this difference"
        f" {_would_tell(needed)}"
    )
    return _of_rule(
        rule, points, RuleVerdict.INCONCLUSIVE, reason, needed_n=needed, **figures
    )  # fmt: skip


def _needed_pairs(rule: Rule, change: _Change, best: float, worst: float) -> int | None:
    """How many would show either a regression or the lack of one; both ends larger is worse."""
    limit, unseen = rule.allowed_change(change.base), rule.unseen_change(change.base)
    value = _sign(rule) * change.value
    if change.of_share is not None and rule.max_decrease is None:
        return change.of_share.needed_n(limit=limit, unseen=unseen)
    enough = []
    if value < unseen:
        enough.append(_needed_n(change.n, value, end=worst, at=unseen))
    if value > limit:
        enough.append(_needed_n(change.n, value, end=best, at=limit))
    return min((n for n in enough if n is not None), default=None)


def _size_words(rule: Rule, change: float, base_value: float) -> str:
    """`12 ms (8 %)`; of a share in percentage points; of what is not reached, "any size"."""
    if math.isinf(change):
        return "any size"
    if rule.unit == "share":
        return f"{share(change).removesuffix(' %')} percentage points"
    part = f" ({share(change / abs(base_value))})" if base_value else ""
    return f"{quantity(change, rule.unit)}{part}"
