"""The only place that says pass or fail.

Absolute rules look at a run; regression rules hold it against a base, request by request. With too
little evidence the answer is "inconclusive", with the number of requests that would be enough. An
invalid point cannot pass, and it cannot fail either: its figures say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from analysis.compare import condition_differences, supported
from analysis.errors import NotComparableError, RulesError
from analysis.estimates import Estimate, estimate
from analysis.evidence import PointEvidence, RunEvidence, machine_differences
from analysis.gate_rules import Evidence, GateRules, IfUnmeasured, Rule
from analysis.pairing import difference_of, metric_values, pair_points, share_values
from analysis.percentiles import MIN_N_FOR_INTERVAL
from analysis.stats.bootstrap import Difference, mean_statistic, quantile_statistic

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
    n: requests it rests on. needed_n: how many would be enough, where that can be told.
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
    n: int = 0
    needed_n: int | None = None


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


# -- absolute -------------------------------------------------------------------------------------


def _absolute(
    rule: Rule, points: Sequence[PointEvidence], wer: Mapping[str, Any] | None
) -> RuleResult:
    found = estimate(points, rule.metric, rule.percent, wer=wer)
    limit = rule.max if rule.max is not None else rule.min
    assert limit is not None
    if found.value is None:
        return _unmeasured(rule, points, found.why)
    # Turned so that larger is worse.
    sign = 1.0 if rule.max is not None else -1.0
    verdict, reason = _against_limit(found, limit, sign, rule.evidence)
    needed = None
    if verdict is RuleVerdict.INCONCLUSIVE:
        needed = found.needed_n(limit)
        reason = f"{reason}{f'; about {needed} requests would tell' if needed else ''}"
    return _result(
        rule.describe(), points, verdict, reason,
        value=found.value, lo=found.lo, hi=found.hi, limit=limit, n=found.n, needed_n=needed,
    )  # fmt: skip


def _against_limit(
    found: Estimate, limit: float, sign: float, evidence: Evidence
) -> tuple[RuleVerdict, str]:
    assert found.value is not None
    if evidence is Evidence.VALUE:
        is_met = sign * found.value <= sign * limit
        return (RuleVerdict.PASS if is_met else RuleVerdict.FAIL), "by its value alone"
    if found.lo is None or found.hi is None:
        if math.isinf(found.value) and sign > 0:
            return RuleVerdict.FAIL, "not reached"
        return RuleVerdict.INCONCLUSIVE, f"no interval ({found.why})"
    best, worst = sorted((sign * found.lo, sign * found.hi))
    if best > sign * limit:
        return RuleVerdict.FAIL, "the whole interval is beyond the limit"
    if worst <= sign * limit:
        return RuleVerdict.PASS, "the whole interval is within the limit"
    return RuleVerdict.INCONCLUSIVE, "the interval holds the limit"


def _unmeasured(rule: Rule, points: Sequence[PointEvidence], why: str) -> RuleResult:
    is_skipped = rule.if_unmeasured is IfUnmeasured.SKIP
    verdict = RuleVerdict.SKIPPED if is_skipped else RuleVerdict.INCONCLUSIVE
    return _result(rule.describe(), points, verdict, f"not measured: {why}", n=0)


# -- against a base -------------------------------------------------------------------------------


def _regression(rule: Rule, points: Sequence[PointEvidence], base: _Base) -> RuleResult:
    pairs = pair_points(base.at(points[0]), points)
    if not pairs:
        return _result(
            rule.describe(), points, RuleVerdict.INCONCLUSIVE,
            f"{base.run.source} has no point of this engine, rate and seed",
        )  # fmt: skip
    if not all(pair.has_same_prompts for pair in pairs):
        return _result(
            rule.describe(), points, RuleVerdict.INCONCLUSIVE,
            "the base said other prompts at the same place of the plan",
        )  # fmt: skip
    if base.other_machine is not None:
        return _result(
            rule.describe(), points, RuleVerdict.INCONCLUSIVE,
            f"the base comes from another machine ({base.other_machine})",
        )  # fmt: skip
    invalid = [pair.first for pair in pairs if pair.first.is_invalid]
    if invalid:
        return _result(
            rule.describe(), points, RuleVerdict.INCONCLUSIVE,
            f"the base is invalid at seed {invalid[0].seed}",
        )  # fmt: skip
    found = difference_of(
        pairs,
        metric_values(rule.metric) if rule.percent else share_values(rule.metric),
        quantile_statistic(rule.percent) if rule.percent else mean_statistic,
    )
    if found.value is None or found.first is None:
        return _unmeasured(rule, points, "no request has it on both sides")
    if supported(found, rule.percent).lo is None:
        least = MIN_N_FOR_INTERVAL.get(rule.percent or 0, 2)
        return _result(
            rule.describe(), points, RuleVerdict.INCONCLUSIVE,
            f"{found.num_pairs} pairs of requests are too few; {least} would be enough for an"
            " interval", value=found.value, n=found.num_pairs, needed_n=least,
        )  # fmt: skip
    return _judge_difference(rule, points, found)


def _judge_difference(rule: Rule, points: Sequence[PointEvidence], found: Difference) -> RuleResult:
    assert found.first is not None
    assert found.lo is not None
    assert found.hi is not None
    assert found.value is not None
    sign = -1.0 if rule.max_decrease is not None else 1.0
    limit = _allowed(rule, found.first)
    worse_lo, worse_hi = sorted((sign * found.lo, sign * found.hi))
    figures = {
        "value": found.value, "lo": found.lo, "hi": found.hi, "limit": sign * limit,
        "n": found.num_pairs,
    }  # fmt: skip
    if worse_lo > limit:
        return _result(
            rule.describe(), points, RuleVerdict.FAIL,
            "the whole interval of the difference is beyond the limit", **figures,
        )  # fmt: skip
    too_wide = _too_wide(rule, found, worse_lo, worse_hi)
    if too_wide is not None:
        reason = (
            "the difference is known too coarsely to call it none; about"
            f" {too_wide} requests would tell"
        )
        return _result(
            rule.describe(), points, RuleVerdict.INCONCLUSIVE, reason,
            needed_n=too_wide, **figures,
        )  # fmt: skip
    return _result(
        rule.describe(), points, RuleVerdict.PASS, "no regression beyond the limit is shown",
        **figures,
    )  # fmt: skip


def _allowed(rule: Rule, base_value: float) -> float:
    if rule.max_increase_percent is not None:
        is_finite = math.isfinite(base_value)
        return rule.max_increase_percent / 100 * abs(base_value) if is_finite else 0.0
    limit = rule.max_increase if rule.max_increase is not None else rule.max_decrease
    assert limit is not None
    return limit


def _too_wide(rule: Rule, found: Difference, lo: float, hi: float) -> int | None:
    """How many requests it would take, where the interval is wider than the rule allows."""
    if rule.must_detect_percent is None or found.first is None or found.first == 0:
        return None
    allowed = rule.must_detect_percent / 100 * abs(found.first)
    half = (hi - lo) / 2
    if not np.isfinite(half) or half <= allowed:
        return None
    return math.ceil(found.num_pairs * (half / allowed) ** 2)
