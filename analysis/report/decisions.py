"""The questions a team decides by, answered from the points at the top of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.capacity import Capacity, CapacityStatus
from analysis.cost import Pricing, cost_at_capacity
from analysis.report.model import Cell, Decision, EngineView, Finding, PointView, Tone
from analysis.report.settings import ReportSettings
from analysis.report.words import NOT_MEASURED, count, number, point_value, rate
from analysis.slo import Slo

__all__ = ["decide", "reason_words", "target_rate"]

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
    target = target_rate(engines, settings)
    return (
        _trust(engines),
        _wait(engines, target, settings.slo),
        *((_capacity(capacities),) if capacities else ()),
        _gaps(engines, target, settings.slo, start_rule),
        _speech(engines, settings.slo),
        *_cost(capacities, settings.pricing),
    )


def target_rate(engines: Sequence[EngineView], settings: ReportSettings) -> float:
    """The rate the answers are for: the chosen one, else the highest that every engine sustained.

    Where none did, the lowest. A chosen rate that was not measured gives way to the nearest.
    """
    common = set.intersection(*(set(engine.rates) for engine in engines))
    rates = sorted(common or {rate for engine in engines for rate in engine.rates})
    chosen = settings.target_rate_rps
    if chosen is not None:
        return min(rates, key=lambda rate: abs(rate - chosen))
    carried = [
        each
        for each in rates
        if all(_is_sustained(point) for engine in engines for point in engine.at(each))
    ]
    return max(carried, default=rates[0])


def _is_sustained(point: PointView) -> bool:
    return point.load.text == "sustained" and point.verdict.text != "invalid"


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
    """`dispatch lag: 12.1 (limit 5) – give the client its own cores`, for reasons of one kind."""
    first = reasons[0]
    text = str(first["code"]).replace("_", " ")
    values = [reason["value"] for reason in reasons if reason["value"] is not None]
    if values and all(isinstance(value, int | float) for value in values):
        low, high = number(min(values)), number(max(values))
        text += f": {low}" if low == high else f": {low} to {high}"
    elif values:
        text += f": {', '.join(dict.fromkeys(map(str, values)))}"
    limit = first["limit"]
    if limit is not None:
        text += f" (limit {number(limit) if isinstance(limit, int | float) else limit})"
    return f"{text} – {first['remedy']}" if first["remedy"] else text


def _wait(engines: Sequence[EngineView], target: float, slo: Slo) -> Decision:
    findings = []
    for engine in engines:
        point = _worst_seed(engine.at(target), "audible_ttfa")
        metric = point.metrics.get("audible_ttfa") if point else None
        if point is None or metric is None:
            findings.append(Finding(engine.name, Cell(NOT_MEASURED)))
            continue
        received = point.metrics.get("audible_received")
        parts = [f"n = {metric.n}", metric.p95.note, f"p50 {metric.p50.text}"]
        if received is not None:
            parts.append(f"received p95 {received.p95.text}")
        parts.append(f"failed {point.failures.text}")
        is_fast = metric.p95.value is not None and metric.p95.value <= slo.audible_ttfa_p95_ms
        tone = Tone.GOOD if is_fast else Tone.BAD
        note = "; ".join(part for part in parts if part)
        text = f"p95 {metric.p95.text}"
        findings.append(Finding(engine.name, Cell(text, metric.p95.value, note, tone)))
    return _decision(
        f"How long until the first sound, at {rate(target)}?",
        findings,
        "Audible TTFA: from dispatch to the moment an ideal player plays the first sound.",
        term="audible_ttfa",
    )


def _worst_seed(points: Sequence[PointView], name: str) -> PointView | None:
    """With several seeds the worst one answers: an average of p95 values is no p95."""
    measured = [point for point in points if name in point.metrics]
    if not measured:
        return None

    def badness(point: PointView) -> float:
        value = point.metrics[name].p95.value
        return float("inf") if value is None else value

    return max(measured, key=badness)


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
        findings.append(Finding(found.engine, cell))
    objective = capacities[0].objective
    note = f"Objective: {objective}."
    return _decision("Highest rate inside the objective?", findings, note, term="capacity")


def _few(texts: Sequence[str]) -> str:
    """The first reasons; the table of points has all of them."""
    more = f" and {len(texts) - 2} more" if len(texts) > 2 else ""
    return f"{', '.join(texts[:2])}{more}"


def _gaps(engines: Sequence[EngineView], target: float, slo: Slo, start_rule: str) -> Decision:
    findings = []
    for engine in engines:
        points = [point for point in engine.at(target) if point.underruns.value is not None]
        if not points:
            note = "replies come in one chunk, so nothing can run dry"
            findings.append(Finding(engine.name, Cell("not applicable", note=note)))
            continue
        point = max(points, key=lambda each: each.underruns.value or 0.0)
        needed = point_value(point.raw, "start_delay_for_1_percent")
        delay = number(needed.value if needed else None, "ms")
        found = point_value(point.raw, "underrun_rate")
        assert found is not None
        assert found.value is not None
        note = f"{point.underruns.note} (n = {found.n}); start delay for ≤ 1 % gaps: {delay}"
        # Zero of a handful does not show that at most 1 % stutter; only the interval can.
        is_shown = found.hi is not None and found.hi <= slo.underrun_rate
        tone = Tone.GOOD if is_shown else Tone.NONE
        if found.value > slo.underrun_rate:
            tone = Tone.BAD
        text = f"{point.underruns.text} of replies stutter"
        findings.append(Finding(engine.name, Cell(text, found.value, note, tone)))
    note = f"Start rule of the player: {start_rule}. A gap is at least 1 ms long."
    return _decision(
        f"Does it play without gaps, at {rate(target)}?", findings, note, term="underrun"
    )


def _speech(engines: Sequence[EngineView], slo: Slo) -> Decision:
    findings = []
    for engine in engines:
        value = engine.wer.value
        if value is None:
            findings.append(Finding(engine.name, engine.wer))
            continue
        tone = Tone.GOOD if value <= slo.wer else Tone.BAD
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
) -> Decision:
    tone = _worst(finding.cell.tone for finding in findings)
    if len(findings) > 1 and len({finding.cell for finding in findings}) == 1:
        findings = [Finding("every engine", findings[0].cell)]
    return Decision(question, tone, tuple(findings), note, details, term)
