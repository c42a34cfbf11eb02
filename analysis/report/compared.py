"""Differences between engines in sentences, charts and tables, as `analysis.compare` found them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.compare import TEXT_WAIT, Comparison, Finding, MetricDifference, RateComparison
from analysis.compare_words import interval_words, sentence, signed_words, value_words
from analysis.report.curves import spread_ticks
from analysis.report.markup import Markup, el
from analysis.report.model import Cell, Column, Decision, ReportModel, Table, Tone
from analysis.report.model import Finding as DecisionFinding
from analysis.report.page import page_section
from analysis.report.sections import figure_markup, table_markup
from analysis.report.svg import Axis, Chart, Line, Point, Rule
from analysis.report.words import rate

__all__ = ["compared_section", "difference_chart", "difference_table", "merge_or_revert"]

_TONES = {
    Finding.BETTER: Tone.GOOD,
    Finding.WORSE: Tone.BAD,
    Finding.NOT_SHOWN: Tone.NONE,
    Finding.TOO_FEW: Tone.NONE,
    Finding.NOT_MEASURED: Tone.NONE,
}
_CHARTED = (
    ("audible_ttfa", "p50"),
    ("audible_ttfa", "p95"),
    ("audible_received", "p95"),
    (TEXT_WAIT, "p50"),
    (TEXT_WAIT, "p95"),
)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two contenders and every rate that both have."""

    first: str
    second: str
    rates: tuple[RateComparison, ...]


def merge_or_revert(found: Comparison) -> Decision:
    """What the claims add up to, for each contender against the first.

    Worse anywhere: revert. Better somewhere and worse nowhere: merge. Neither: nothing is shown,
    which is not the same as equal.
    """
    findings = []
    for pair in _pairs(found):
        claims = [each for at in pair.rates for each in at.differences]
        worse = [each for each in claims if each.finding is Finding.WORSE]
        better = [each for each in claims if each.finding is Finding.BETTER]
        if worse and better:
            cell = Cell("a trade", note=f"{_named(better, 'better')}; {_named(worse, 'worse')}")
            cell = replace(cell, tone=Tone.WARN)
        elif worse:
            cell = Cell("revert", note=_named(worse, "worse"), tone=Tone.BAD)
        elif better:
            cell = Cell("merge", note=_named(better, "better"), tone=Tone.GOOD)
        else:
            cell = Cell("undecided", note="no difference is shown, which is not equality")
        findings.append(DecisionFinding(f"{pair.second} against {pair.first}", cell))
    tones = [finding.cell.tone for finding in findings]
    worst = next((tone for tone in (Tone.BAD, Tone.WARN, Tone.GOOD) if tone in tones), Tone.NONE)
    note = "Claims have passed a correction for the number of metrics."
    return Decision("Merge or revert?", worst, tuple(findings), note)


def _named(claims: Sequence[MetricDifference], word: str) -> str:
    names = dict.fromkeys(f"{each.statistic} {each.metric}".replace("_", " ") for each in claims)
    return f"{word} in {', '.join(names)}"


def _pairs(found: Comparison) -> list[_Pair]:
    names = dict.fromkeys((at.first, at.second) for at in found.rates)
    return [
        _Pair(
            first,
            second,
            tuple(at for at in found.rates if (at.first, at.second) == (first, second)),
        )
        for first, second in names
    ]


def compared_section(found: Comparison, model: ReportModel) -> Markup:
    """Sentences, differences against rate, and the table behind them."""
    parts: list[object] = [el("ul", *(_sentence(at) for at in found.rates), cls="sentences")]
    pairs = _pairs(found)
    for number, pair in enumerate(pairs):
        charts = [
            figure_markup(difference_chart(pair.rates, metric, statistic, number), model)
            for metric, statistic in _charted(pair.rates)
        ]
        parts.append(
            el(
                "details",
                el("summary", f"{pair.second} against {pair.first}: differences at every rate"),
                el("div", *charts, cls="grid-charts"),
                table_markup(difference_table(pair.rates)),
                cls="point",
                open=len(pairs) == 1,
            )
        )
    return page_section("compared", "One engine against the other", *parts)


def _charted(rates: Sequence[RateComparison]) -> list[tuple[str, str]]:
    """Those of the charted differences that this comparison is about."""
    compared = {(each.metric, each.statistic) for at in rates for each in at.differences}
    return [wanted for wanted in _CHARTED if wanted in compared]


def _sentence(at: RateComparison) -> Markup:
    """Who is heard sooner, in bold; by what means and with which doubts, after it."""
    claim, _, rest = sentence(at).partition(": ")
    return el("li", el("strong", f"{claim}: "), rest)


def difference_chart(
    rates: Sequence[RateComparison], metric: str, statistic: str, number: int = 0
) -> Chart | None:
    """Second minus first against rate, with 95 % intervals; None where nothing is finite."""
    points, words = [], []
    for at in rates:
        each = next(d for d in at.differences if (d.metric, d.statistic) == (metric, statistic))
        found = each.difference
        if found.value is None or not math.isfinite(found.value):
            words.append(f"{rate(at.rate_rps)}: {signed_words(found.value, each)}")
            continue
        lo, hi = (end if end is not None and math.isfinite(end) else None
                  for end in (found.lo, found.hi))  # fmt: skip
        is_open = lo is not None and hi is None
        points.append(Point(at.rate_rps, found.value, lo, hi, is_open))
        words.append(
            f"{rate(at.rate_rps)}: {signed_words(found.value, each)}, {each.finding.value}"
        )
    if not points:
        return None
    name = f"{statistic} {metric}".replace("_", " ")
    return Chart(
        chart_id=f"difference-{number}-{metric}-{statistic}".replace("_", "-"),
        title=f"{name}: {rates[0].second} minus {rates[0].first}",
        description="; ".join(words).replace("_", " "),
        x=Axis(
            "offered rate (requests/s)",
            is_exact=True,
            low=0.0,
            high=max(at.rate_rps for at in rates) * 1.06,
            ticks=spread_ticks([at.rate_rps for at in rates]),
        ),
        y=Axis("difference (ms)"),
        marks=(Rule(0.0, "no difference"), Line(tuple(points), number % 6, name)),
    )


_COLUMNS = (
    Column("rate"),
    Column("metric", is_number=False),
    Column("first"),
    Column("second"),
    Column("difference"),
    Column("95 % interval"),
    Column("p, adjusted"),
    Column("pairs"),
    Column("finding", is_number=False),
)


def difference_table(rates: Sequence[RateComparison]) -> Table:
    """Every metric that was compared, at every rate."""
    rows = tuple(_row(at, each) for at in rates for each in at.differences)
    paired = "request by request" if all(at.is_paired for at in rates) else "unpaired"
    caption = (
        f"First {rates[0].first}, second {rates[0].second}, compared {paired}. Intervals come"
        " from a block bootstrap; a finding has passed Holm's correction for all metrics of its"
        " rate."
    )
    return Table(caption, _COLUMNS, rows)


def _row(at: RateComparison, each: MetricDifference) -> tuple[Cell, ...]:
    found = each.difference
    finding = Cell(each.finding.value.replace("_", " "), tone=_TONES[each.finding])
    interval = interval_words(each).removeprefix("95 % interval ")
    p_value = "–" if each.adjusted_p is None else f"{each.adjusted_p:.2g}"
    if found.value is None:
        blank = Cell("not measured")
        figures: tuple[Cell, ...] = (blank, blank, blank, Cell("–"), Cell("–"))
    else:
        figures = (
            Cell(value_words(found.first, each)),
            Cell(value_words(found.second, each)),
            Cell(signed_words(found.value, each)),
            Cell(interval),
            Cell(p_value),
        )
    name = f"{each.statistic} {each.metric}".replace("_", " ")
    return (Cell(rate(at.rate_rps)), Cell(name), *figures, Cell(str(found.num_pairs)), finding)
