"""A comparison in words and as JSON: one computed sentence a rate, never an adjective more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from analysis.compare import (
    TEXT_WAIT,
    Comparison,
    Decomposition,
    Finding,
    MetricDifference,
    RateComparison,
)
from analysis.percentiles import MIN_N_FOR_INTERVAL

__all__ = [
    "comparison_json",
    "comparison_markdown",
    "interval_words",
    "sentence",
    "signed_words",
    "value_words",
]

_HEADLINE_STATISTICS = ("p95", "p50")
# Below this a part of a difference is not worth a word.
_WORTH_SAYING_MS = 1.0


def sentence(found: RateComparison) -> str:
    """Who wins at this rate, by how much, how sure, and by what means."""
    start = f"At {found.rate_rps:g}/s"
    headline = _headline(found)
    headlines = [_find(found, headline.metric, statistic) for statistic in _HEADLINE_STATISTICS]
    clear = [d for d in headlines if d.finding in (Finding.BETTER, Finding.WORSE)]
    if not clear:
        told = [d for d in headlines if d.finding is Finding.NOT_SHOWN] or headlines
        parts = [f"{start} no difference in {headline.what} is shown between {found.first} and"
                 f" {found.second}: {_amount(told[0], found)}."]  # fmt: skip
    else:
        best = clear[0]
        winner = found.second if best.finding is Finding.BETTER else found.first
        parts = [f"{start} {winner} is heard sooner{headline.after}: {_amount(best, found)}."]
    parts.extend(_means(found.decomposition))
    parts.extend(_others(found))
    if found.cautions:
        parts.append(f"Read with care: {'; '.join(dict.fromkeys(found.cautions))}.")
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class _Headline:
    metric: str
    what: str
    after: str


def _headline(found: RateComparison) -> _Headline:
    """What this comparison is about: the wait from dispatch, or from the end of the text."""
    if any(each.metric == "audible_ttfa" for each in found.differences):
        return _Headline("audible_ttfa", "audible TTFA", "")
    end = "the end of the text"
    return _Headline(TEXT_WAIT, f"the wait from {end} to the first sound", f" after {end}")


def _find(found: RateComparison, metric: str, statistic: str) -> MetricDifference:
    return next(d for d in found.differences if (d.metric, d.statistic) == (metric, statistic))


def _amount(each: MetricDifference, found: RateComparison) -> str:
    difference = each.difference
    if difference.value is None:
        return f"{each.statistic} {each.metric} was not measured on both sides"
    pairs = f"{difference.num_pairs} {'pairs' if found.is_paired else 'requests, unpaired'}"
    seeds = f"{difference.num_seeds} seed{'' if difference.num_seeds == 1 else 's'}"
    return (
        f"{each.statistic} {each.metric} {value_words(difference.first, each)} for {found.first},"
        f" {value_words(difference.second, each)} for {found.second}, a difference of"
        f" {signed_words(difference.value, each)} ({interval_words(each)}; {pairs}, {seeds})"
    )


def value_words(value: float | None, each: MetricDifference) -> str:
    """One side of a difference, with its unit."""
    if value is None or math.isinf(value):
        return "not reached"
    return f"{100 * value:.1f} %" if each.unit == "share" else f"{value:.1f} {each.unit}"


def signed_words(value: float | None, each: MetricDifference) -> str:
    """A difference or an end of its interval, with its sign."""
    if value is None or math.isinf(value):
        return "without bound" if value is None or value > 0 else "minus without bound"
    return f"{100 * value:+.1f} points" if each.unit == "share" else f"{value:+.1f} {each.unit}"


def interval_words(each: MetricDifference) -> str:
    """The interval of a difference, or why it has none."""
    if each.finding is Finding.TOO_FEW:
        least = MIN_N_FOR_INTERVAL.get(int(each.statistic.lstrip("p")), 2)
        return f"no interval, {each.statistic} needs {least} requests"
    found = each.difference
    return f"95 % interval {signed_words(found.lo, each)} to {signed_words(found.hi, each)}"


def _means(found: Decomposition | None) -> Iterator[str]:
    if found is None or abs(found.total_ms) < _WORTH_SAYING_MS:
        return
    yield (
        f"Of {found.total_ms:+.1f} ms on average over {found.num_pairs} pairs heard on both sides,"
        f" {found.first_playable_ms:+.1f} ms come from the first playable chunk (speed),"
        f" {found.leading_silence_ms:+.1f} ms from leading silence (trimming) and"
        f" {found.stalls_ms:+.1f} ms from stalls."
    )


def _others(found: RateComparison) -> Iterator[str]:
    """Whatever else is shown, good or bad."""
    headline = _headline(found).metric
    for each in found.differences:
        if each.metric == headline or each.finding not in (Finding.BETTER, Finding.WORSE):
            continue
        yield (
            f"{found.second} is {each.finding.value} in {each.statistic} {each.metric}:"
            f" {value_words(each.difference.first, each)} to"
            f" {value_words(each.difference.second, each)}."
        )


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Plain JSON; what is not reached is null with a status."""
    return {
        "schema_version": 1,
        "contenders": list(found.contenders),
        "notes": list(found.notes),
        "rates": [_rate_json(rate) for rate in found.rates],
    }


def _rate_json(found: RateComparison) -> dict[str, Any]:
    return {
        "rate_rps": found.rate_rps,
        "first": found.first,
        "second": found.second,
        "is_paired": found.is_paired,
        "sentence": sentence(found),
        "cautions": list(dict.fromkeys(found.cautions)),
        "decomposition": None if found.decomposition is None else asdict(found.decomposition),
        "differences": [_difference_json(each) for each in found.differences],
    }


def _difference_json(each: MetricDifference) -> dict[str, Any]:
    found = each.difference
    return {
        "metric": each.metric,
        "statistic": each.statistic,
        "unit": each.unit,
        "better": each.better.value,
        "first": _side_json(found.first),
        "second": _side_json(found.second),
        "difference": _side_json(found.value),
        "lo": _side_json(found.lo)["value"],
        "hi": _side_json(found.hi)["value"],
        "p_value": found.p_value,
        "adjusted_p": each.adjusted_p,
        "num_pairs": found.num_pairs,
        "num_seeds": found.num_seeds,
        "finding": each.finding.value,
    }


def _side_json(value: float | None) -> dict[str, Any]:
    if value is None:
        return {"value": None, "status": "not_measured"}
    if math.isinf(value):
        return {"value": None, "status": "not_reached"}
    return {"value": value, "status": "ok"}


def comparison_markdown(found: Comparison) -> str:
    """For a terminal or a pull request."""
    lines = [f"# {' against '.join(found.contenders)}", ""]
    lines.extend(f"- {sentence(rate)}" for rate in found.rates)
    for rate in found.rates:
        lines += ["", f"## {rate.first} and {rate.second} at {rate.rate_rps:g}/s", ""]
        lines += ["| metric | first | second | difference | interval | finding |"]
        lines += ["|---|---|---|---|---|---|"]
        lines.extend(_row(each) for each in rate.differences)
    if found.notes:
        lines += ["", "What differs between the runs:", ""]
        lines.extend(f"- {note}" for note in found.notes)
    return "\n".join(lines) + "\n"


def _row(each: MetricDifference) -> str:
    found = each.difference
    if found.value is None:
        return f"| {each.statistic} {each.metric} | n/a | n/a | n/a | n/a | not measured |"
    cells = (
        f"{each.statistic} {each.metric}",
        value_words(found.first, each),
        value_words(found.second, each),
        signed_words(found.value, each),
        interval_words(each),
        each.finding.value.replace("_", " "),
    )
    return f"| {' | '.join(cells)} |"
