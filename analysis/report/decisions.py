"""The questions a team decides by, answered from the points at the top of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.capacity import Capacity, CapacityStatus
from analysis.cost import Pricing, cost_at_capacity
from analysis.metrics import PointValue
from analysis.number_words import quantity
from analysis.report.model import (
    Cell,
    Decision,
    EngineView,
    Finding,
    MetricView,
    RateView,
    Tone,
)
from analysis.report.settings import ReportSettings
from analysis.report.target import Target, choose_target
from analysis.report.words import (
    NOT_MEASURED,
    count,
    num_hits,
    number,
    offered_note,
    point_value,
    rate,
    share_of,
)
from analysis.slo import Slo

__all__ = ["decide", "reason_words"]

_MAX_ERRORS = 3
_ORDER = (Tone.BAD, Tone.WARN, Tone.GOOD, Tone.NONE)


def decide(
    engines: Sequence[EngineView],
    settings: ReportSettings,
    *,
    start_rule: str,
    capacities: Sequence[Capacity],
) -> tuple[Decision, ...]:
    """One decision a question, each with a finding for every engine.

    Args:
        engines: with their points.
        settings: objective, target rate, prices.
        start_rule: the player's; it is printed with every figure about gaps.
        capacities: as `analysis.capacity` read them; empty leaves out their question.
    """
    if not engines:
        return ()
    target = choose_target(engines, settings)
    return (
        _trust(engines),
        _failures(engines, settings.slo),
        _wait(engines, target, settings.slo),
        *((_capacity(capacities),) if capacities else ()),
        _gaps(engines, target, settings.slo, start_rule),
        _speech(engines, settings.slo),
        *_cost(capacities, settings.pricing),
    )


def _worst(tones: Iterable[Tone]) -> Tone:
    found = set(tones)
    return next((tone for tone in _ORDER if tone in found), Tone.NONE)


# -- questions ------------------------------------------------------------------------------------


def _trust(engines: Sequence[EngineView]) -> Decision:
    findings = []
    for engine in engines:
        verdicts = Counter(point.verdict.text for point in engine.points)
        words = ", ".join(
            f"{verdicts[name]} {name}" for name in ("valid", "suspect", "invalid") if verdicts[name]
        )
        tone = _worst(point.verdict.tone for point in engine.points)
        of_all = count(len(engine.points), "point")
        findings.append(Finding(engine.name, Cell(words, None, f"of {of_all}", tone)))
    return _decision(
        "Can the numbers be trusted?", findings, term="verdict", details=_reasons(engines)
    )


def _reasons(engines: Sequence[EngineView]) -> tuple[str, ...]:
    """What was found, each kind once, with its range over points, the most common first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for engine in engines:
        for point in engine.points:
            for reason in point.raw["validity"]["reasons"]:
                found.setdefault(reason["code"], []).append(reason)
    common = sorted(found.values(), key=len, reverse=True)
    return tuple(f"{reason_words(reasons)} ({count(len(reasons), 'point')})" for reasons in common)


def reason_words(reasons: Sequence[Mapping[str, Any]]) -> str:
    """`dispatch lag p99: 12.1 ms (limit 5 ms) – give it more CPU`, for reasons of one kind.

    Over several points the ranges of values and limits (a limit on lateness depends on the rate),
    with the remedy of the worst.
    """
    code, unit = str(reasons[0]["code"]), ""
    if code.endswith("_ms"):
        code, unit = code.removesuffix("_ms"), "ms"
    elif code.endswith("_share"):
        unit = "share"
    text, worst = code.replace("_", " "), reasons[0]
    told = [reason for reason in reasons if reason["value"] is not None]
    if told and all(isinstance(reason["value"], int | float) for reason in told):
        ordered = sorted(told, key=lambda reason: abs(reason["value"]))
        is_floor = abs(ordered[0]["value"]) < ordered[0]["limit"]
        worst = ordered[0] if is_floor else ordered[-1]
        values, limits = (_span([r[key] for r in told], unit) for key in ("value", "limit"))
        text += f": {values} ({'at least' if is_floor else 'limit'} {limits})"
    elif told:
        text += f": {', '.join(dict.fromkeys(str(reason['value']) for reason in told))}"
        text += f" (expected {worst['limit']})" if worst["limit"] is not None else ""
    return f"{text} – {worst['remedy']}" if worst["remedy"] else text


def _span(values: Sequence[float], unit: str) -> str:
    """`5 ms`, or `5 ms to 12 ms`."""
    low, high = (quantity(pick(values), unit) for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def _failures(engines: Sequence[EngineView], slo: Slo) -> Decision:
    """How many requests failed, at which rate the most, and what was said about it."""
    findings = []
    for engine in engines:
        found = [point_value(view.raw, "failure_rate") for view in engine.pooled]
        rates = [
            (view.rate_rps, each)
            for view, each in zip(engine.pooled, found, strict=True)
            if each is not None and each.value is not None
        ]
        total = sum(each.n for _, each in rates)
        num_failed = sum(num_hits(each) for _, each in rates)
        if not total:
            findings.append(Finding(engine.name, Cell(NOT_MEASURED)))
            continue
        if not num_failed:
            text = f"none of {count(total, 'request')} failed"
            findings.append(Finding(engine.name, Cell(text, 0.0, tone=Tone.GOOD)))
            continue
        worst_rps, worst = max(rates, key=lambda item: item[1].value or 0.0)
        note = (
            f"{share_of(num_hits(worst), worst.n)} at {rate(worst_rps)}" if len(rates) > 1 else ""
        )
        is_beyond = (worst.value or 0.0) > slo.failure_rate
        tone = Tone.BAD if is_beyond else Tone.WARN
        text = f"{share_of(num_failed, total)} failed"
        findings.append(Finding(engine.name, Cell(text, num_failed / total, note, tone)))
    question = "Do requests fail?"
    details = tuple(_error_lines(engines))
    return _decision(question, findings, term="failure_rate", details=details, is_open=True)


def _error_lines(engines: Sequence[EngineView]) -> Iterator[str]:
    """The most frequent kinds of failure of each engine, over all its points."""
    for engine in engines:
        counts: Counter[tuple[str, str]] = Counter()
        for point in engine.points:
            for each in point.raw["errors"]:
                counts[str(each["outcome"]).replace("_", " "), str(each["text"])] += each["count"]
        who = f"{engine.name}: " if len(engines) > 1 else ""
        for (outcome, text), num in counts.most_common(_MAX_ERRORS):
            yield f"{who}{num} × {outcome}{f': {text}' if text else ''}"


def _wait(engines: Sequence[EngineView], target: Target, slo: Slo) -> Decision:
    findings = []
    for engine in engines:
        view = engine.over_seeds(target.rate_rps)
        metric = view.metrics.get("audible_ttfa") if view else None
        if view is None or metric is None:
            findings.append(Finding(engine.name, Cell(NOT_MEASURED)))
            continue
        parts = [_size(metric.n, view), metric.p95.note, f"p50 {metric.p50.text}"]
        silence, received = (view.metrics.get(n) for n in ("leading_silence", "audible_received"))
        if silence is not None and silence.p50.value:
            parts.append(f"of which {silence.p50.text} leading silence (median)")
        if received is not None:
            parts.append(f"received p95 {received.p95.text}")
        failed = point_value(view.raw, "failure_rate")
        if failed is not None:
            parts.append(f"failed {share_of(num_hits(failed), failed.n)}")
        parts.append(offered_note(view.rate_rps, view.raw))
        note = "; ".join(part for part in parts if part)
        tone = _wait_tone(metric, failed, slo)
        text = f"p95 {metric.p95.text}"
        findings.append(Finding(engine.name, Cell(text, metric.p95.value, note, tone)))
    definition = "Audible TTFA: from dispatch to the moment an ideal player plays the first sound."
    return _decision(
        f"How long until the first sound, at {rate(target.rate_rps)}?",
        findings,
        " ".join(text for text in (target.why, definition) if text),
        term="audible_ttfa",
    )


def _wait_tone(metric: MetricView, failed: PointValue | None, slo: Slo) -> Tone:
    """A fast engine that drops more requests than it may is not good."""
    if not metric.n:
        return Tone.NONE
    if metric.p95.value is None or metric.p95.value > slo.audible_ttfa_p95_ms:
        return Tone.BAD
    is_safe = failed is None or failed.value is None or failed.value <= slo.failure_rate
    return Tone.GOOD if is_safe else Tone.WARN


def _size(n: int, view: RateView) -> str:
    """`n = 31 over 2 seeds`."""
    return f"n = {n}" + (f" over {len(view.seeds)} seeds" if len(view.seeds) > 1 else "")


def _capacity(capacities: Sequence[Capacity]) -> Decision:
    """The answer of `analysis.capacity`, with what the next rate missed."""
    findings = []
    for found in capacities:
        failed = next((p for p in found.curve if p.rate_rps == found.hi_rps), None)
        note = f"at {rate(failed.rate_rps)}: {_few(failed.misses)}" if failed else ""
        if found.status is CapacityStatus.NO_DATA:
            cell = Cell(NOT_MEASURED, note="the client was invalid at every rate")
        elif found.lo_rps is None:
            text = f"below {rate(found.hi_rps)}" if found.hi_rps else "no rate that was measured"
            cell = Cell(text, None, note, Tone.BAD)
        elif found.hi_rps is None:
            note = "no higher rate was measured that misses it"
            cell = Cell(f"at least {rate(found.lo_rps)}", found.lo_rps, note, Tone.GOOD)
        else:
            text = f"{rate(found.lo_rps)}, below {rate(found.hi_rps)}"
            cell = Cell(text, found.lo_rps, note, Tone.GOOD)
        if odd := _not_monotone(found):
            note = f"{cell.note}; {odd}" if cell.note else odd
            cell = replace(cell, note=note, tone=_worst((cell.tone, Tone.WARN)))
        findings.append(Finding(found.engine, cell))
    objective = capacities[0].objective
    note = f"Objective: {objective}."
    return _decision("Highest rate inside the objective?", findings, note, term="capacity")


def _not_monotone(found: Capacity) -> str:
    """Rates that missed the objective below one that met it: an interval alone would hide them."""
    told = [point for point in found.curve if point.num_trials]
    met = [point.rate_rps for point in told if point.num_met == point.num_trials]
    missed = [p for p in told if p.num_met < p.num_trials and p.rate_rps < max(met, default=0.0)]
    if not missed:
        return ""
    rates = ", ".join(f"{rate(point.rate_rps)} ({_few(point.misses)})" for point in missed)
    above = ", ".join(rate(each) for each in met if each > missed[0].rate_rps)
    return f"not in order: {rates} missed it, yet {above} met it"


def _few(texts: Sequence[str]) -> str:
    """The first reasons; the table of points has all of them."""
    more = f" and {len(texts) - 2} more" if len(texts) > 2 else ""
    return f"{', '.join(texts[:2])}{more}"


def _gaps(engines: Sequence[EngineView], target: Target, slo: Slo, start_rule: str) -> Decision:
    findings = []
    for engine in engines:
        view = engine.over_seeds(target.rate_rps)
        found = point_value(view.raw, "underrun_rate") if view else None
        if view is None or found is None or found.value is None:
            findings.append(Finding(engine.name, _no_continuity(view)))
            continue
        needed, length = (
            point_value(view.raw, name) for name in ("start_delay_for_1_percent", "underrun_length")
        )
        parts = [f"{view.underruns.note} ({_size(found.n, view)})"]
        if length is not None and length.value is not None:
            parts.append(f"median of their longest gaps {number(length.value, 'ms')}")
        delay = number(needed.value if needed else None, "ms")
        parts.append(f"start delay for ≤ 1 % gaps: {delay}")
        tone = _share_tone(found.value, found.hi, slo.underrun_rate)
        text = f"{view.underruns.text} of replies stutter"
        findings.append(Finding(engine.name, Cell(text, found.value, "; ".join(parts), tone)))
    note = f"Start rule of the player: {start_rule}. A gap is at least 1 ms long."
    question = f"Does it play without gaps, at {rate(target.rate_rps)}?"
    return _decision(question, findings, note, term="underrun")


def _share_tone(value: float, hi: float | None, limit: float) -> Tone:
    """Zero of a handful does not show that at most 1 % stutter; only the interval can."""
    if value > limit:
        return Tone.BAD
    return Tone.GOOD if hi is not None and hi <= limit else Tone.NONE


def _no_continuity(view: RateView | None) -> Cell:
    """Why nothing is known of gaps at a rate."""
    failed = None if view is None else point_value(view.raw, "failure_rate")
    if failed is None or failed.value is None or failed.value == 1:
        return Cell(NOT_MEASURED, note="no reply was heard at this rate")
    return Cell("not applicable", note="no reply came in several chunks of known length")


def _speech(engines: Sequence[EngineView], slo: Slo) -> Decision:
    findings = []
    for engine in engines:
        value = engine.wer.value
        if value is None or engine.speech is None:
            findings.append(Finding(engine.name, engine.wer))
            continue
        tone = _share_tone(value, engine.speech["hi"], slo.wer)
        cell = Cell(f"WER {engine.wer.text}", value, engine.wer.note, tone)
        findings.append(Finding(engine.name, cell))
    return _decision("Is it speech, and the right words?", findings, term="wer")


def _cost(capacities: Sequence[Capacity], pricing: Pricing | None) -> tuple[Decision, ...]:
    """The price at the rate that meets the objective; only where a price was given."""
    if pricing is None:
        return ()
    findings = []
    for found in capacities:
        cost = cost_at_capacity(found, pricing)
        if cost is None:
            note = "no rate meets the objective, or no text was recorded"
            findings.append(Finding(found.engine, Cell(NOT_MEASURED, note=note)))
            continue
        text = f"{number(cost.per_million_characters)} {cost.currency} per million characters"
        findings.append(Finding(found.engine, Cell(text, cost.per_million_characters, cost.basis)))
    return (_decision("What does it cost?", findings, term="capacity"),)


def _decision(
    question: str,
    findings: Sequence[Finding],
    note: str = "",
    *,
    term: str,
    details: tuple[str, ...] = (),
    is_open: bool = False,
) -> Decision:
    tone = _worst(finding.cell.tone for finding in findings)
    if len(findings) > 1 and len({finding.cell for finding in findings}) == 1:
        findings = [Finding("every engine", findings[0].cell)]
    return Decision(question, tone, tuple(findings), note, details, term, is_open)
