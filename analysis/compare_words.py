"""A comparison in words, tables and JSON: computed sentences, never an adjective more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from analysis.compare import (
    TEXT_WAIT,
    Comparison,
    Decomposition,
    Finding,
    MetricDifference,
    RateComparison,
)
from analysis.number_words import NOT_MEASURED, count, number, quantity, rate, share
from analysis.percentiles import MIN_N_FOR_INTERVAL

__all__ = [
    "DifferenceRow",
    "Pair",
    "comparison_json",
    "comparison_markdown",
    "difference_rows",
    "interval_words",
    "means_words",
    "pairs_of",
    "sentence",
    "signed_words",
    "summary",
    "verdict_words",
]

_HEADLINE_STATISTICS = ("p95", "p50")
# Below this a part of a difference is not worth a word.
_WORTH_SAYING_MS = 1.0
# Below this a share of bad replies is not held against a winner in the same breath.
_WORTH_A_WORD = 0.01
_FLAWS = (("underrun_rate", "replies stutter"), ("failure_rate", "requests fail"))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two contenders at every rate that both have."""

    first: str
    second: str
    rates: tuple[RateComparison, ...]


def pairs_of(found: Comparison) -> list[Pair]:
    """Each contender with the first one, in order."""
    groups: dict[tuple[str, str], list[RateComparison]] = {}
    for at in found.rates:
        groups.setdefault((at.first, at.second), []).append(at)
    return [Pair(first, second, tuple(rates)) for (first, second), rates in groups.items()]


def summary(pair: Pair) -> str:
    """What two contenders come to, over all rates, in one sentence."""
    claims = {at.rate_rps: _claim(at) for at in pair.rates}
    headline = _headline(pair.rates[0])
    parts = []
    for winner in (pair.second, pair.first):
        won = [at for at in pair.rates if (c := claims[at.rate_rps]) and c.winner == winner]
        if won:
            loser = pair.first if winner == pair.second else pair.second
            amounts = [claims[at.rate_rps] for at in won]
            parts.append(
                f"{winner} is heard sooner{headline.after} than {loser} at"
                f" {_rates(won, pair)}{_lead(amounts)}{_flaws(won, winner)}"
            )
    open_ = [at for at in pair.rates if claims[at.rate_rps] is None]
    if open_ and parts:
        parts.append(f"no difference is shown at {_rates(open_, pair)}")
    elif open_:
        parts.append(
            f"No difference in {headline.what} is shown between {pair.first} and {pair.second} at"
            f" {_rates(open_, pair)}, which is not to say that they are equal"
        )
    return f"{'; '.join(parts)}."


@dataclass(frozen=True, slots=True)
class _Claim:
    """Who is heard sooner at one rate, and the statistic that shows it."""

    winner: str
    shown: MetricDifference


def _claim(found: RateComparison) -> _Claim | None:
    headline = _headline(found)
    for statistic in _HEADLINE_STATISTICS:
        each = _find(found, headline.metric, statistic)
        if each.finding in (Finding.BETTER, Finding.WORSE):
            winner = found.second if each.finding is Finding.BETTER else found.first
            return _Claim(winner, each)
    return None


def _rates(chosen: Sequence[RateComparison], pair: Pair) -> str:
    if len(chosen) == len(pair.rates) > 1:
        return f"each of the {len(chosen)} rates compared"
    return ", ".join(rate(at.rate_rps) for at in chosen)


def _lead(claims: Sequence[_Claim | None]) -> str:
    """By how much, over the rates of one winner; nothing where a side reached nothing."""
    leads = [
        abs(claim.shown.difference.value)
        for claim in claims
        if claim is not None
        and claim.shown.difference.value is not None
        and math.isfinite(claim.shown.difference.value)
    ]
    if not leads:
        return ""
    low, high = number(min(leads)), number(max(leads))
    amount = low if low == high else f"{low} to {high}"
    statistics = sorted({claim.shown.statistic for claim in claims if claim is not None})
    return f" ({' or '.join(statistics)} by {amount} ms)"


def _flaws(won: Sequence[RateComparison], winner: str) -> str:
    """What a listener would hold against the winner, at its worst rate, and the other's as well."""
    parts = []
    for metric, words in _FLAWS:
        worst = max(won, key=lambda at: _side(at, metric, winner) or 0.0)
        value = _side(worst, metric, winner)
        if value is not None and value > _WORTH_A_WORD:
            where = f" at {rate(worst.rate_rps)}" if len(won) > 1 else ""
            loser = worst.first if winner == worst.second else worst.second
            against = share(_side(worst, metric, loser))
            parts.append(f"{share(value)} of its {words}{where} (against {against})")
    return f", but {' and '.join(parts)}" if parts else ""


def _side(found: RateComparison, metric: str, who: str) -> float | None:
    difference = _find(found, metric, "share").difference
    return difference.first if who == found.first else difference.second


def sentence(found: RateComparison) -> str:
    """Who wins at this rate, by how much, how sure, and by what means."""
    start = f"At {rate(found.rate_rps)}"
    headline = _headline(found)
    headlines = [_find(found, headline.metric, statistic) for statistic in _HEADLINE_STATISTICS]
    claim = _claim(found)
    if claim is None:
        told = [d for d in headlines if d.finding is Finding.NOT_SHOWN] or headlines
        but = " after correction" if told[0].difference.is_clear else ""
        parts = [f"{start} no difference in {headline.what} is shown{but} between {found.first} and"
                 f" {found.second}: {_amount(told[0], found)}."]  # fmt: skip
    else:
        flaws = _flaws([found], claim.winner)
        parts = [
            f"{start} {claim.winner} is heard sooner{headline.after}{flaws}:"
            f" {_amount(claim.shown, found)}."
        ]
    if found.decomposition is not None and (means := means_words(found.decomposition)):
        parts.append(means)
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
    pairs = count(difference.num_pairs, "pair")
    if not found.is_paired:
        pairs = f"{count(difference.num_pairs, 'request')}, unpaired"
    seeds = count(difference.num_seeds, "seed")
    return (
        f"{each.statistic} {each.metric} {quantity(difference.first, each.unit)} for {found.first},"
        f" {quantity(difference.second, each.unit)} for {found.second}, {_gap(each)}"
        f" ({interval_words(each)}; {pairs}, {seeds})"
    )


def _gap(each: MetricDifference) -> str:
    value = each.difference.value
    if value is None or math.isinf(value):
        return "a difference that no number bounds"
    return f"a difference of {signed_words(value, each)}"


def signed_words(value: float | None, each: MetricDifference) -> str:
    """A difference with its sign."""
    if value is None:
        return NOT_MEASURED
    if math.isinf(value):
        return "unbounded"
    return f"{100 * value:+.1f} points" if each.unit == "share" else f"{value:+.1f} {each.unit}"


def interval_words(each: MetricDifference) -> str:
    """The interval of a difference, or why it has none."""
    if each.finding is Finding.TOO_FEW:
        return f"no interval, {each.statistic} needs {_least_n(each)} requests"
    return f"95 % interval {_range_words(each)}"


def _range_words(each: MetricDifference) -> str:
    lo, hi = _ends(each)
    unit = "points" if each.unit == "share" else each.unit
    if lo is not None and hi is not None:
        return f"{lo} to {hi} {unit}"
    return _open_range(lo, hi, f" {unit}")


def _open_range(lo: str | None, hi: str | None, unit: str = "") -> str:
    """A range that lacks an end."""
    if lo is not None:
        return f"at least {lo}{unit}"
    return "unbounded" if hi is None else f"at most {hi}{unit}"


def _ends(each: MetricDifference) -> list[str | None]:
    """Both ends of an interval as bare numbers; None where nothing bounds it."""
    scale = 100 if each.unit == "share" else 1
    return [
        None if end is None or math.isinf(end) else f"{scale * end:+.1f}"
        for end in (each.difference.lo, each.difference.hi)
    ]


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One metric at one rate, as every table prints it."""

    metric: str
    rate: str
    first: str
    second: str
    difference: str
    verdict: str


def difference_rows(pair: Pair) -> list[DifferenceRow]:
    """Metric by metric, each at every rate."""
    names = dict.fromkeys((d.metric, d.statistic) for at in pair.rates for d in at.differences)
    return [
        _difference_row(at, _find(at, metric, statistic))
        for metric, statistic in names
        for at in pair.rates
    ]


def _difference_row(at: RateComparison, each: MetricDifference) -> DifferenceRow:
    found = each.difference
    name = f"{each.statistic} {each.metric}"
    if found.value is None:
        blanks = (NOT_MEASURED,) * 2
        return DifferenceRow(name, rate(at.rate_rps), *blanks, "–", verdict_words(at, each))
    lo, hi = _ends(each)
    range_ = f"{lo}, {hi}" if lo is not None and hi is not None else _open_range(lo, hi)
    if each.finding is Finding.TOO_FEW:
        range_ = "no interval"
    return DifferenceRow(
        name,
        rate(at.rate_rps),
        quantity(found.first, each.unit),
        quantity(found.second, each.unit),
        f"{signed_words(found.value, each)} [{range_}]",
        verdict_words(at, each),
    )


def verdict_words(at: RateComparison, each: MetricDifference) -> str:
    """What is shown about the second; a clear interval that is only chance of many is told so."""
    if each.finding is Finding.NOT_SHOWN and each.difference.is_clear:
        num = sum(other.adjusted_p is not None for other in at.differences)
        return f"not after correction for {count(num, 'metric')}"
    if each.finding is Finding.TOO_FEW:
        return f"too few: {each.difference.num_pairs} of {_least_n(each)}"
    return each.finding.value.replace("_", " ")


def _least_n(each: MetricDifference) -> int:
    """Requests that a percentile's interval needs; a share's needs one."""
    return MIN_N_FOR_INTERVAL[int(each.statistic.removeprefix("p"))]


def means_words(found: Decomposition) -> str:
    """Where a mean difference comes from; empty where there is none to speak of."""
    if abs(found.total_ms) < _WORTH_SAYING_MS:
        return ""
    return (
        f"Of {found.total_ms:+.1f} ms on average over {count(found.num_pairs, 'pair')} heard on"
        f" both sides, {found.first_playable_ms:+.1f} ms come from the first playable chunk"
        f" (speed), {found.leading_silence_ms:+.1f} ms from leading silence (trimming) and"
        f" {found.stalls_ms:+.1f} ms from the player standing still."
    )


def _others(found: RateComparison) -> Iterator[str]:
    """Whatever else is shown, good or bad."""
    headline = _headline(found).metric
    for each in found.differences:
        if each.metric == headline or each.finding not in (Finding.BETTER, Finding.WORSE):
            continue
        yield (
            f"{found.second} is {each.finding.value} in {each.statistic} {each.metric}:"
            f" {quantity(each.difference.first, each.unit)} to"
            f" {quantity(each.difference.second, each.unit)}."
        )


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Plain JSON; what is not reached is null with a status."""
    return {
        "schema_version": 1,
        "contenders": list(found.contenders),
        "summary": [summary(pair) for pair in pairs_of(found)],
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
    """For a pull request: the answer, a table a pair, then how sure and by what means."""
    lines = [f"# {' against '.join(found.contenders)}"]
    for pair in pairs_of(found):
        lines += ["", f"**{summary(pair)}**", "", f"## {pair.second} against {pair.first}", ""]
        head = ("metric", "rate", pair.first, pair.second, "difference", "verdict")
        lines += [_table_row(head), "|:--|--:|--:|--:|--:|:--|"]
        lines += [_table_row(astuple(row)) for row in difference_rows(pair)]
        lines += ["", "<details><summary>Rate by rate</summary>", ""]
        lines += [f"- {sentence(at)}" for at in pair.rates]
        lines += ["", "</details>"]
    if found.notes:
        lines += ["", "What differs between the runs:", ""]
        lines.extend(f"- {note}" for note in found.notes)
    return "\n".join(lines) + "\n"


def _table_row(texts: Sequence[str]) -> str:
    """Folders may be named with what parts columns."""
    return f"| {' | '.join(text.replace('|', '/') for text in texts)} |"
