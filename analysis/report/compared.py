"""Differences between engines in sentences, charts and tables, as `analysis.compare` found them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, replace

from rich.console import Console
from rich.text import Text

from analysis.compare import TEXT_WAIT, Comparison, Finding, MetricDifference, RateComparison
from analysis.compare_words import (
    Pair,
    difference_rows,
    means_words,
    pairs_of,
    sentence,
    signed_words,
    summary,
    verdict_words,
)
from analysis.report.curves import spread_ticks
from analysis.report.markup import EMPTY, Markup, el, join
from analysis.report.model import Cell, Column, Decision, ReportModel, Table, Tone
from analysis.report.model import Finding as DecisionFinding
from analysis.report.page import page_section
from analysis.report.sections import figure_markup, table_markup
from analysis.report.svg import Axis, Chart, Line, Point, Rule
from analysis.report.terminal import print_table
from analysis.report.words import metric_words, rate

__all__ = [
    "compared_section",
    "difference_chart",
    "difference_table",
    "merge_or_revert",
    "print_compared",
    "summary_markup",
]

_MAX_TITLE = 16  # letters of a name that heads a column
_CHARTED = (
    ("audible_ttfa", "p50"),
    ("audible_ttfa", "p95"),
    ("audible_received", "p95"),
    (TEXT_WAIT, "p50"),
    (TEXT_WAIT, "p95"),
)


def merge_or_revert(found: Comparison) -> Decision:
    """What the claims add up to, for each contender against the first.

    Worse anywhere: revert. Better somewhere and worse nowhere: merge. Neither: nothing is shown,
    which is not the same as equal.
    """
    findings = []
    for pair in pairs_of(found):
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
    names = dict.fromkeys(f"{each.statistic} {metric_words(each.metric)}" for each in claims)
    return f"{word} in {', '.join(names)}"


def summary_markup(found: Comparison) -> Markup:
    """One sentence a pair: what it comes to."""
    return join(*(el("p", el("strong", summary(pair))) for pair in pairs_of(found)))


def compared_section(found: Comparison, model: ReportModel, *, lead: Markup = EMPTY) -> Markup:
    """The differences at every rate, closed, and how sure they are; `lead` stands above them."""
    pairs = pairs_of(found)
    parts: list[object] = [lead]
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
                table_markup(difference_table(pair)),
                el("ul", *(_sentence(at) for at in pair.rates), cls="sentences"),
                cls="point",
            )
        )
    return page_section("compared", "One engine against the other", *parts)


def print_compared(found: Comparison, console: Console) -> None:
    """The same for a terminal: the answer, the table, and what to read it with."""
    for pair in pairs_of(found):
        console.print(Text(summary(pair), style="bold"))
        print_table(difference_table(pair), console)
        for at in pair.rates:
            if at.decomposition is not None and (words := means_words(at.decomposition)):
                console.print(Text(f"At {rate(at.rate_rps)}: {words}"))
    cautions = dict.fromkeys(text for at in found.rates for text in at.cautions)
    for text in (*(f"Read with care: {caution}" for caution in cautions), *found.notes):
        console.print(Text(f"Note: {text}"), soft_wrap=True)


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
            f"{rate(at.rate_rps)}: {signed_words(found.value, each)}, {verdict_words(at, each)}"
        )
    if not points:
        return None
    name = f"{statistic} {metric_words(metric)}"
    return Chart(
        chart_id=f"difference-{number}-{metric}-{statistic}".replace("_", "-"),
        title=f"{name}: {rates[0].second} minus {rates[0].first}",
        description="; ".join(words),
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


def difference_table(pair: Pair) -> Table:
    """Every metric that was compared, at every rate."""
    names = (pair.first, pair.second)
    is_short = all(len(name) <= _MAX_TITLE for name in names)
    first, second = names if is_short else ("first", "second")
    columns = (
        Column("metric", is_number=False),
        Column("rate"),
        Column(first),
        Column(second),
        Column("difference [95 % interval]"),
        Column("verdict", is_number=False),
    )
    is_paired = all(at.is_paired for at in pair.rates)
    how = "request by request where both sides have the figure" if is_paired else "unpaired"
    caption = (
        f"First {pair.first}, second {pair.second}, compared {how}; a difference is second minus"
        " first, a verdict is on the second. Intervals of percentiles come from a block bootstrap,"
        " those of shares are Newcombe's; what is called better or worse has passed Holm's"
        " correction for all metrics of its rate."
    )
    rows = tuple(
        (*(Cell(text) for text in astuple(row)[:-1]), Cell(row.verdict, tone=_tone(row.verdict)))
        for row in difference_rows(pair)
    )
    return Table(caption, columns, rows)


def _tone(verdict: str) -> Tone:
    return {"better": Tone.GOOD, "worse": Tone.BAD}.get(verdict, Tone.NONE)
