"""Which pictures a report has, and what is in each. Drawing is `svg`'s, figures are the model's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.load import in_flight_over
from analysis.number_words import figure
from analysis.report.curves import Reader, curve, dodged, rate_ticks, read_percentile, read_share
from analysis.report.model import EngineView, PointView, ReportModel
from analysis.report.svg import (
    Axis,
    Band,
    Chart,
    Dots,
    Line,
    Mark,
    Missing,
    Point,
    Rule,
    Stack,
)
from analysis.report.tables import RunTables, numbers
from analysis.report.words import number, point_value, rate, share

__all__ = [
    "PARTS",
    "Decomposition",
    "decompose",
    "ecdf_chart",
    "in_flight_chart",
    "pass_chart",
    "percentile_chart",
    "share_chart",
    "slack_chart",
    "ttfa_over_time_chart",
]

PARTS = ("connect", "server wait", "leading silence", "player standing still")
_TITLES = {"audible_ttfa": "audible TTFA", "audible_received": "first sound received"}
# More dots than this are no easier to read, only slower to draw.
_MAX_DOTS = 1500
_MAX_STEPS = 600
_SHOWN_DELAY_MS = 200.0


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Mean parts of the wait for the first sound, one row a point."""

    stack: Stack
    table: tuple[tuple[str, ...], ...]
    description: str


# -- against rate ---------------------------------------------------------------------------------


def percentile_chart(
    engines: Sequence[EngineView], percent: int, *, metric: str = "audible_ttfa", is_log: bool
) -> Chart:
    """One percentile against the offered rate, a line an engine, with 95 % intervals."""
    marks: list[Mark] = []
    for engine in engines:
        marks += _marks(engine, engines, read_percentile(metric, percent))
    title = f"p{percent} {_TITLES[metric]}"
    scale = "log" if is_log else "linear"
    words = _curve_words(engines, f"p{percent}", metric)
    if metric == "audible_received":
        words += ". When the first sound arrived: a server that trims its leading silence lowers"
        words += " the audible TTFA and not this."
    return Chart(
        chart_id=f"curve-{metric}-p{percent}-{scale}".replace("_", "-"),
        title=f"{title} against offered rate",
        description=words,
        x=_rate_axis(engines),
        y=Axis(f"{title} (ms)", is_log=is_log),
        marks=tuple(marks),
    )


def share_chart(
    engines: Sequence[EngineView], name: str, *, title: str, chart_id: str
) -> Chart | None:
    """A share of a point (underruns, WER) against the offered rate; None where never measured."""
    marks: list[Mark] = []
    for engine in engines:
        marks += _marks(engine, engines, read_share(name))
    if not any(isinstance(mark, Line) and mark.points for mark in marks):
        return None
    return Chart(
        chart_id=chart_id,
        title=f"{title} against offered rate",
        description="; ".join(_share_words(engine, name) for engine in engines),
        x=_rate_axis(engines),
        y=Axis(f"{title[0].lower()}{title[1:]} (%)", high=5),
        marks=tuple(marks),
    )


def _rate_axis(engines: Sequence[EngineView]) -> Axis:
    """From zero to just past the highest rate, labelled at the rates that were measured."""
    highest = max(each for engine in engines for each in engine.rates)
    return Axis(
        "offered rate (requests/s)",
        is_exact=True,
        low=0.0,
        high=highest * 1.06,
        ticks=rate_ticks(engines),
    )


def _marks(engine: EngineView, engines: Sequence[EngineView], read: Reader) -> list[Mark]:
    found = curve(engine, read)
    label = "not reached" if found.missing else ""
    # The first carries the name; the rest of a broken line is the same one.
    names = [engine.name, *[""] * len(found.segments)]
    lines = [
        Line(dodged(segment, engine, engines), engine.series, name)
        for segment, name in zip(found.segments, names, strict=False)
    ]
    return [*lines, Missing(found.missing, engine.series, label)]


def _curve_words(engines: Sequence[EngineView], name: str, metric: str) -> str:
    parts = []
    for engine in engines:
        cells = [
            f"{rate(view.rate_rps)}: {getattr(view.metrics[metric], name).text}"
            for view in engine.pooled
            if metric in view.metrics
        ]
        parts.append(f"{engine.name} – {', '.join(cells)}")
    return f"{name}: {'; '.join(parts)}"


def _share_words(engine: EngineView, name: str) -> str:
    cells = [
        f"{rate(view.rate_rps)}: {share(found.value)}"
        for view in engine.pooled
        if (found := point_value(view.raw, name)) is not None and found.value is not None
    ]
    return f"{engine.name} – {', '.join(cells) or 'not measured'}"


# -- parts of the wait ----------------------------------------------------------------------------


def decompose(model: ReportModel, tables: RunTables) -> Decomposition | None:
    """Where the wait for the first sound goes, as means, which add up exactly.

    Only requests with a first sound have parts; their number stands in the table.
    """
    labels, parts, totals, rows = [], [], [], []
    has_seeds = len({point.seed for point in model.points}) > 1
    for point in model.points:
        heard = tables.cohort(point.point_id)
        heard = heard[heard["audible_ttfa"].notna() & heard["ttfp"].notna()]
        if heard.empty:
            continue
        total, first = numbers(heard["audible_ttfa"]), numbers(heard["ttfp"])
        connect = np.nan_to_num(numbers(heard["connect_time"]))
        silence = np.nan_to_num(numbers(heard["leading_silence"]))
        means = [
            float(part.mean())
            for part in (connect, first - connect, silence, total - first - silence)
        ]
        # Rounding of stamps can leave a part a hair below zero.
        parts.append(tuple(max(0.0, part) for part in means))
        where = rate(point.rate_rps)
        where += f" s{point.seed}" if has_seeds else ""
        where += "" if point.is_complete else " cut"
        labels.append(f"{_short(point.engine)} {where}")
        totals.append(number(float(total.mean()), "ms"))
        cells = (*(number(part, "ms") for part in means), number(float(total.mean()), "ms"))
        rows.append((point.engine, where, str(len(heard)), *cells))
    if not rows:
        return None
    description = "; ".join(
        f"{row[0]} at {row[1]}: "
        + ", ".join(f"{name} {cell}" for name, cell in zip(PARTS, row[3:7], strict=True))
        for row in rows
    )
    stack = Stack(tuple(labels), tuple(parts), tuple(totals))
    return Decomposition(stack, tuple(rows), description)


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"


# -- playback -------------------------------------------------------------------------------------


def pass_chart(engines: Sequence[EngineView], tables: RunTables, rate_rps: float) -> Chart | None:
    """Share of replies that play without a gap, by start delay, at one rate."""
    needs = [_values(engine.at(rate_rps), tables, "required_delay") for engine in engines]
    longest = max((float(needed[-1]) for needed in needs if len(needed)), default=0.0)
    end = max(_SHOWN_DELAY_MS, longest)
    marks: list[Mark] = []
    words = []
    for engine, needed in zip(engines, needs, strict=True):
        if not len(needed):
            continue
        at_once = int((needed <= 0).sum())
        points = [
            Point(0.0, 100 * at_once / len(needed)),
            *_ecdf(needed[at_once:], below=at_once, total=len(needed)),
            Point(end, 100.0),
        ]
        marks.append(
            Line(tuple(points), engine.series, engine.name, is_step=True, has_markers=False)
        )
        words.append(f"{engine.name}: {len(needed)} replies, worst needs {needed[-1]:.0f} ms")
    if not marks:
        return None
    marks.append(Rule(99.0, "99 %"))
    return Chart(
        chart_id="pass-by-delay",
        title=f"Replies without a gap by start delay, at {rate(rate_rps)}",
        description="; ".join(words),
        x=Axis("start delay after the first playable chunk (ms)"),
        y=Axis("replies without a gap (%)", high=100),
        marks=tuple(marks),
    )


def slack_chart(engines: Sequence[EngineView], tables: RunTables, rate_rps: float) -> Chart | None:
    """How long before its due time each chunk came, by its place in the reply."""
    marks: list[Mark] = []
    words = []
    for engine in engines:
        ids = [
            each
            for point in engine.at(rate_rps)
            for each in tables.cohort(point.point_id)["request_id"]
        ]
        chunks = tables.chunks[tables.chunks["request_id"].isin(ids)]
        chunks = chunks[chunks["slack_ns"].notna()]
        points = _slack_points(chunks)
        if not points:
            words.append(
                f"{engine.name}: no place in the reply that three chunks with a due time had"
            )
            continue
        if len(points) == 1:  # no band and no line: one marker with its range
            marks.append(Line(tuple(points), engine.series, engine.name))
        else:
            marks.append(Band(tuple(points), engine.series))
            marks.append(Line(_without_ends(points), engine.series, engine.name, has_markers=False))
        latest = float(numbers(chunks["slack_ns"]).min()) / 1e6
        words.append(f"{engine.name}: the latest chunk had {latest:.0f} ms of slack")
    if not marks:
        return None
    marks.append(Rule(0.0, "due"))
    return Chart(
        chart_id="slack-by-chunk",
        title=f"Deadline slack by chunk, at {rate(rate_rps)}",
        description="Median with the range from 5 % to 95 %. " + "; ".join(words),
        x=Axis("chunk number in the reply"),
        y=Axis("due time minus arrival (ms)"),
        marks=tuple(marks),
    )


def _slack_points(chunks: Any) -> list[Point]:
    points = []
    for seq, group in chunks.groupby("seq")["slack_ns"]:
        values = numbers(group) / 1e6
        if len(values) < 3:  # a range of two is none
            continue
        low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
        points.append(Point(float(seq), float(middle), float(low), float(high)))
    return points


def _without_ends(points: Iterable[Point]) -> tuple[Point, ...]:
    return tuple(Point(point.x, point.y) for point in points)


# -- distribution and time ------------------------------------------------------------------------


def ecdf_chart(engine: EngineView, tables: RunTables) -> Chart | None:
    """The whole distribution of audible TTFA; failures keep a curve from reaching 100 %."""
    marks: list[Mark] = []
    chosen = _spread(engine.rates, 5)
    for series, each in enumerate(chosen):
        points = engine.at(each)
        values = _values(points, tables, "audible_ttfa", only_ok=True)
        total = sum(len(tables.cohort(point.point_id)) for point in points)
        if len(values):
            steps = _ecdf(values, below=0, total=total)
            label = f"{rate(each)} (n = {total})"
            marks.append(Line(tuple(steps), series, label, is_step=True, has_markers=False))
    if not marks:
        return None
    return Chart(
        chart_id=f"ecdf-{engine.series}",
        title=f"{engine.name}: audible TTFA, all of it",
        description=_curve_words([engine], "p50", "audible_ttfa"),
        x=Axis("audible TTFA (ms)"),
        y=Axis("arrivals with sound by then (%)", high=100),
        marks=tuple(marks),
    )


def in_flight_chart(point: PointView, tables: RunTables, series: int) -> Chart | None:
    """Requests in flight and arrivals over the measurement phase."""
    record = tables.point(point.point_id)
    curve = in_flight_over(tables.all_of(point.point_id), record)
    if curve is None:
        return None
    begin = curve.times_ns[0]
    seconds = (np.append(curve.times_ns, curve.end_ns) - begin) / 1e9
    counts = np.append(curve.counts, curve.counts[-1])
    keep = _thinned(len(seconds), _MAX_STEPS)
    steps = tuple(Point(float(seconds[i]), float(counts[i])) for i in keep)
    scheduled = (numbers(tables.cohort(point.point_id)["scheduled_ns"]) - float(begin)) / 1e9
    arrivals = tuple(Point(float(x), 0.0) for x in scheduled[_thinned(len(scheduled), _MAX_DOTS)])
    return Chart(
        chart_id=f"inflight-{_slug(point.point_id)}",
        title="In flight",
        description=f"At most {int(curve.counts.max())} requests at once,"
        f" {figure(curve.mean, 2)} on average; {len(scheduled)} arrivals as dots on the axis.",
        x=Axis("time in the measurement phase (s)"),
        y=Axis("requests in flight"),
        marks=(
            Line(steps, series, "in flight", is_step=True, has_markers=False, is_thin=True),
            Dots(arrivals, 5, "arrival"),
        ),
    )


def ttfa_over_time_chart(point: PointView, tables: RunTables, series: int) -> Chart | None:
    """Audible TTFA of each request at the time of its arrival; drift and bursts show here."""
    cohort = tables.cohort(point.point_id)
    record = tables.point(point.point_id)
    if cohort.empty:
        return None
    begin = float(record.warmup_end_ns or cohort["scheduled_ns"].min())
    at_s = (numbers(cohort["scheduled_ns"]) - begin) / 1e9
    ttfa = numbers(cohort["audible_ttfa"])
    is_ok = cohort["outcome"].isin(["ok", "cancelled"]).to_numpy() & np.isfinite(ttfa)
    kept = np.flatnonzero(is_ok)
    drawn = kept[_thinned(len(kept), _MAX_DOTS)]
    thinned = f"; {len(drawn)} of {len(kept)} drawn" if len(drawn) < len(kept) else ""
    dots = tuple(Point(float(at_s[i]), float(ttfa[i])) for i in drawn)
    failed = at_s[(~cohort["outcome"].isin(["ok", "cancelled"])).to_numpy()]
    failed = failed[_thinned(len(failed), _MAX_STEPS)]
    return Chart(
        chart_id=f"time-{_slug(point.point_id)}",
        title="Audible TTFA over time",
        description=f"{len(kept)} requests with sound{thinned}, {len(failed)} failed.",
        x=Axis("time in the measurement phase (s)"),
        y=Axis("audible TTFA (ms)"),
        marks=(
            Dots(dots, series, "request"),
            Missing(tuple(map(float, failed)), 1, "failed" if len(failed) else ""),
        ),
    )


def _values(
    points: Iterable[PointView], tables: RunTables, column: str, *, only_ok: bool = False
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Finite values of a column over the cohorts of some points, in order."""
    parts = [np.empty(0)]
    for point in points:
        cohort = tables.cohort(point.point_id)
        if only_ok:
            cohort = cohort[cohort["outcome"].isin(["ok", "cancelled"])]
        parts.append(numbers(cohort[column]))
    values = np.concatenate(parts)
    return np.sort(values[np.isfinite(values)])


def _ecdf(
    ordered: np.ndarray[tuple[int], np.dtype[np.float64]], *, below: int, total: int
) -> list[Point]:
    keep = _thinned(len(ordered), _MAX_STEPS)
    return [Point(float(ordered[i]), 100 * (below + i + 1) / total) for i in keep]


def _thinned(size: int, most: int) -> list[int]:
    """Evenly spaced indices, the first and the last always among them."""
    if size <= most:
        return list(range(size))
    return sorted({round(i * (size - 1) / (most - 1)) for i in range(most)})


def _spread(rates: Sequence[float], most: int) -> list[float]:
    return [rates[i] for i in _thinned(len(rates), most)]


def _slug(text: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in text)
