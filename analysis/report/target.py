"""Which rate the answers at the top of a report are for, and why that one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.report.model import EngineView, RateView
from analysis.report.settings import ReportSettings
from analysis.report.words import point_value, rate
from analysis.slo import Slo

__all__ = ["Target", "choose_target"]


@dataclass(frozen=True, slots=True)
class Target:
    """A rate that was measured, and the sentence that says why it was taken."""

    rate_rps: float
    why: str


def choose_target(engines: Sequence[EngineView], settings: ReportSettings) -> Target:
    """The chosen rate, else the highest at which most engines meet the objective.

    Where none meets it at any rate: the lowest rate that every engine sustained, or the lowest of
    all. A chosen rate that was not measured gives way to the nearest. Rates that not every engine
    has come last.
    """
    common = set.intersection(*(set(engine.rates) for engine in engines))
    rates = sorted(common or {each for engine in engines for each in engine.rates})
    chosen = settings.target_rate_rps
    if chosen is not None:
        nearest = min(rates, key=lambda each: abs(each - chosen))
        is_measured = nearest == chosen
        why = "" if is_measured else f"{rate(nearest)} is the measured rate nearest {rate(chosen)}."
        return Target(nearest, why)
    meeting = {each: _meeting(engines, each, settings.slo) for each in rates}
    best = max(rates, key=lambda each: (len(meeting[each]), each))
    if meeting[best]:
        return Target(best, _met_words(best, meeting[best], engines))
    carried = [each for each in rates if all(_is_carried(engine, each) for engine in engines)]
    lowest = min(carried, default=rates[0])
    kept_up = " that was sustained" if carried and lowest != rates[0] else ""
    why = f"No rate that was measured meets the objective; {rate(lowest)} is the lowest{kept_up}."
    return Target(lowest, why)


def _met_words(rate_rps: float, names: Sequence[str], engines: Sequence[EngineView]) -> str:
    if len(names) == len(engines):
        who = "" if len(engines) == 1 else " for every engine"
        return f"{rate(rate_rps)} is the highest rate that meets the objective{who}."
    return (
        f"{rate(rate_rps)} is the highest rate that meets the objective for {', '.join(names)};"
        " no rate meets it for every engine."
    )


def _meeting(engines: Sequence[EngineView], rate_rps: float, slo: Slo) -> list[str]:
    return [engine.name for engine in engines if _meets(engine, rate_rps, slo)]


def _is_carried(engine: EngineView, rate_rps: float) -> bool:
    view = engine.over_seeds(rate_rps)
    return view is not None and view.is_carried


def _meets(engine: EngineView, rate_rps: float, slo: Slo) -> bool:
    """Sustained, and no figure beyond its limit; underruns and words only where they were seen."""
    view = engine.over_seeds(rate_rps)
    if view is None or not view.is_carried:
        return False
    ttfa = view.metrics["audible_ttfa"].p95.value
    return (
        ttfa is not None
        and ttfa <= slo.audible_ttfa_p95_ms
        and _is_within(view, "failure_rate", slo.failure_rate)
        and _is_within(view, "underrun_rate", slo.underrun_rate)
        and (engine.wer.value is None or engine.wer.value <= slo.wer)
    )


def _is_within(view: RateView, name: str, limit: float) -> bool:
    found = point_value(view.raw, name)
    return found is None or found.value is None or found.value <= limit
