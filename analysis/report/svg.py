"""Charts as inline SVG: a few marks on two axes, nothing else. No script, no style attribute.

Colours come from CSS classes (`s0`..`s5` for series, `p0`..`p3` for parts), so that one drawing
serves a light page, a dark page and paper, under a content policy that forbids inline styles.
Every text goes through `escape`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from analysis.report.palette import DASHES
from analysis.report.scales import LinearScale, Scale, linear_scale, log_scale, tick_label

__all__ = [
    "Axis",
    "Band",
    "Chart",
    "Dots",
    "Line",
    "Mark",
    "Missing",
    "Point",
    "Rule",
    "Stack",
    "legend_key",
    "render_stack",
    "render_svg",
]

_WIDTH, _HEIGHT = 480, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 16, 46
_NOT_REACHED_BAND = 18  # px above the plot's top value, for values that are not finite


@dataclass(frozen=True, slots=True)
class Point:
    """One value, with its interval where there is one."""

    x: float
    y: float
    lo: float | None = None
    hi: float | None = None
    is_open: bool = False  # the interval's upper end was not reached


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by a line; `is_step` holds each value until the next."""

    points: tuple[Point, ...]
    series: int
    label: str = ""
    is_step: bool = False
    has_markers: bool = True
    is_thin: bool = False  # also without dashes: it stands alone


@dataclass(frozen=True, slots=True)
class Band:
    """The space between `lo` and `hi` of each point."""

    points: tuple[Point, ...]
    series: int


@dataclass(frozen=True, slots=True)
class Dots:
    """Points alone."""

    points: tuple[Point, ...]
    series: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Places where the value was not reached: a cross in the band above the plot."""

    xs: tuple[float, ...]
    series: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Stack:
    """Horizontal bars, one a row, made of parts in order. `total` is printed at the end."""

    labels: tuple[str, ...]
    parts: tuple[tuple[float, ...], ...]  # per row
    totals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the plot at one value, named."""

    at: float
    label: str


Mark = Line | Band | Dots | Missing | Rule


@dataclass(frozen=True, slots=True)
class Axis:
    """What is along an axis.

    `low` and `high` are included whatever the marks are; with `is_exact` they are the ends.
    `ticks` are labelled instead of round numbers.
    """

    label: str
    is_log: bool = False
    is_exact: bool = False
    low: float | None = None
    high: float | None = None
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture and its words. `description` says what is to be seen, for those who cannot."""

    chart_id: str
    title: str
    description: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]

    @property
    def has_values(self) -> bool:
        """Whether there is anything to draw an axis for."""
        return any(mark.points for mark in self.marks if not isinstance(mark, Missing | Rule))


@dataclass(frozen=True, slots=True)
class _Plot:
    """The two scales, and whether a band for unreached values is kept free."""

    x: Scale
    y: Scale


def render_svg(chart: Chart, *, watermark: str = "") -> str:
    """One `<svg>` element, sized by its view box; `watermark` lies across the plot."""
    plot = _plot(chart)
    body = [_grid(chart, plot)]
    if watermark:
        middle = (_TOP + _HEIGHT - _BOTTOM) / 2
        body.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, middle + 16, watermark, "ghost", "middle"))
    for mark in chart.marks:
        body.append(_MARKS[type(mark)](mark, plot))
    title, description = f"{chart.chart_id}-title", f"{chart.chart_id}-desc"
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' aria-labelledby="{escape(title)} {escape(description)}">'
        f'<title id="{escape(title)}">{escape(chart.title)}</title>'
        f'<desc id="{escape(description)}">{escape(chart.description)}</desc>'
        f"{''.join(body)}</svg>"
    )


def _plot(chart: Chart) -> _Plot:
    has_missing = any(isinstance(mark, Missing) and mark.xs for mark in chart.marks)
    top = _TOP + (_NOT_REACHED_BAND if has_missing else 0)
    xs, ys = list(_values(chart.marks, is_x=True)), list(_values(chart.marks, is_x=False))
    return _Plot(
        x=_scale(chart.x, xs, _LEFT, _WIDTH - _RIGHT),
        y=_scale(chart.y, ys, _HEIGHT - _BOTTOM, top),
    )


def _scale(axis: Axis, values: list[float], start: float, stop: float) -> Scale:
    if axis.is_log:
        return log_scale(values, start, stop)
    if axis.is_exact and axis.low is not None and axis.high is not None:
        return LinearScale(axis.low, axis.high, start, stop)
    ends = [end for end in (axis.low, axis.high) if end is not None]
    return linear_scale(values + ends, start, stop)


def _values(marks: Iterable[Mark], *, is_x: bool) -> Iterable[float]:
    for mark in marks:
        if isinstance(mark, Rule):
            if not is_x:
                yield mark.at
        elif isinstance(mark, Missing):
            if is_x:
                yield from mark.xs
        else:
            for point in mark.points:
                yield point.x if is_x else point.y
                if not is_x:
                    yield from (end for end in (point.lo, point.hi) if end is not None)


# -- axes -------------------------------------------------------------------------------------


def _grid(chart: Chart, plot: _Plot) -> str:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for value in plot.y.ticks():
        y = plot.y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 7, y + 4, tick_label(value), "tick", "end"))
    values = chart.x.ticks or plot.x.ticks(6)
    ticks = [(plot.x(value), tick_label(float(f"{value:.3g}"))) for value in values]
    for x, label in ticks:
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
        )
        parts.append(_text(x, bottom + 17, label, "tick", "middle"))
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(_text((_LEFT + right) / 2, _HEIGHT - 8, chart.x.label, "name", "middle"))
    middle = (_TOP + bottom) / 2
    parts.append(
        f'<text class="name" text-anchor="middle" transform="translate(13 {middle:.0f})'
        f' rotate(-90)">{escape(chart.y.label)}</text>'
    )
    return "".join(parts)


def _text(x: float, y: float, text: str, css: str, anchor: str) -> str:
    return (
        f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


# -- marks ------------------------------------------------------------------------------------


def _series(number: int) -> str:
    """The class with its colour; engines beyond the palette take it from the start again."""
    return f"s{number % len(DASHES)}"


def _line(mark: Line, plot: _Plot) -> str:
    if not mark.points:
        return ""
    commands = []
    for number, point in enumerate(mark.points):
        x, y = plot.x(point.x), plot.y(point.y)
        if number and mark.is_step:
            commands.append(f"H{x:.1f}V{y:.1f}")
        else:
            commands.append(f"{'L' if number else 'M'}{x:.1f} {y:.1f}")
    has_dash = mark.series and not mark.is_thin
    dash = f' stroke-dasharray="{DASHES[mark.series % len(DASHES)]}"' if has_dash else ""
    weight = " thin" if mark.is_thin else ""
    path = f'<path class="line{weight}" d="{"".join(commands)}"{dash}/>'
    intervals = "".join(_interval(point, plot) for point in mark.points)
    markers = (
        "".join(_marker(point, plot, mark.series) for point in mark.points)
        if mark.has_markers or len(mark.points) == 1  # alone it has no line to be seen by
        else ""
    )
    return f'<g class="{_series(mark.series)}">{intervals}{path}{markers}</g>'


def _interval(point: Point, plot: _Plot) -> str:
    if point.lo is None:
        return ""
    x, low = plot.x(point.x), plot.y(point.lo)
    foot = f"M{x - 3:.1f} {low:.1f}h6"
    if point.hi is not None:
        high = plot.y(point.hi)
        head = f"M{x - 3:.1f} {high:.1f}h6"
        return f'<path class="whisker" d="{foot}M{x:.1f} {low:.1f}V{high:.1f}{head}"/>'
    if point.is_open:  # an arrow out of the plot: the upper end is beyond every value
        return f'<path class="whisker" d="{foot}M{x:.1f} {low:.1f}V{_TOP + 2}m-4 6l4 -6l4 6"/>'
    return ""


def _marker(point: Point, plot: _Plot, series: int) -> str:
    x, y = plot.x(point.x), plot.y(point.y)
    shapes = (
        f"M{x - 3.5:.1f} {y:.1f}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
        f"M{x - 3.2:.1f} {y - 3.2:.1f}h6.4v6.4h-6.4z",
        f"M{x - 4:.1f} {y + 3.2:.1f}h8l-4 -7z",
        f"M{x:.1f} {y - 4.4:.1f}l4.4 4.4l-4.4 4.4l-4.4 -4.4z",
        f"M{x - 4:.1f} {y - 3.2:.1f}h8l-4 7z",
        f"M{x - 4:.1f} {y - 1.3:.1f}h8v2.6h-8zM{x - 1.3:.1f} {y - 4:.1f}h2.6v8h-2.6z",
    )
    return f'<path class="mark" d="{shapes[series % len(shapes)]}"/>'


def _band(mark: Band, plot: _Plot) -> str:
    ends = [(p, p.lo, p.hi) for p in mark.points if p.lo is not None and p.hi is not None]
    if not ends:
        return ""
    upper = [f"{plot.x(point.x):.1f} {plot.y(hi):.1f}" for point, _, hi in ends]
    lower = [f"{plot.x(point.x):.1f} {plot.y(lo):.1f}" for point, lo, _ in reversed(ends)]
    return f'<path class="band {_series(mark.series)}" d="M{"L".join(upper + lower)}Z"/>'


def _dots(mark: Dots, plot: _Plot) -> str:
    # One path of zero-length round strokes: a tenth of the bytes of one circle a point.
    places = "".join(f"M{plot.x(p.x):.1f} {plot.y(p.y):.1f}h0" for p in mark.points)
    return f'<path class="dots {_series(mark.series)}" d="{places}"/>' if places else ""


def _missing(mark: Missing, plot: _Plot) -> str:
    if not mark.xs:
        return ""
    places = "".join(f"M{plot.x(x) - 4:.1f} {_TOP + 1}l8 8m0 -8l-8 8" for x in mark.xs)
    # Above the crosses, so that none can lie on it.
    note = _text(_LEFT + 4, _TOP - 4, mark.label, "note", "start") if mark.label else ""
    return f'<path class="missing {_series(mark.series)}" d="{places}"/>{note}'


def _rule(mark: Rule, plot: _Plot) -> str:
    y = plot.y(mark.at)
    path = f"M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"
    name = _text(_WIDTH - _RIGHT - 2, y - 4, mark.label, "note", "end")
    return f'<path class="rule" d="{path}"/>{name}'


_MARKS: dict[type, Callable[..., str]] = {
    Line: _line,
    Band: _band,
    Dots: _dots,
    Missing: _missing,
    Rule: _rule,
}


def legend_key(mark: Line | Dots) -> str:
    """A small picture of a mark, to stand before its name; it says nothing to a screen reader."""
    if isinstance(mark, Dots):
        inner = f'<path class="dots {_series(mark.series)}" d="M9 7h0M17 7h0M25 7h0"/>'
    else:
        scale = LinearScale(0, 34, 0, 34)
        plot = _Plot(scale, LinearScale(0, 14, 0, 14))
        ends = (Point(1, 7), Point(33, 7))
        line = Line(ends, mark.series, has_markers=False, is_thin=mark.is_thin)
        inner = _line(line, plot)
        if mark.has_markers:
            marker = _marker(Point(17, 7), plot, mark.series)
            inner += f'<g class="{_series(mark.series)}">{marker}</g>'
    return f'<svg viewBox="0 0 34 14" aria-hidden="true">{inner}</svg>'


# -- stacked bars -----------------------------------------------------------------------------

_ROW, _ROW_LABEL, _TOTAL = 26, 128, 64


def render_stack(chart_id: str, title: str, description: str, stack: Stack) -> str:
    """Horizontal stacked bars, one row a label."""
    height = _ROW * len(stack.labels) + 34
    longest = max((sum(parts) for parts in stack.parts), default=1.0)
    scale = linear_scale([longest], _ROW_LABEL, _WIDTH - _TOTAL)
    rows = [
        _stack_row(number, label, parts, total, scale)
        for number, (label, parts, total) in enumerate(
            zip(stack.labels, stack.parts, stack.totals, strict=True)
        )
    ]
    bottom = _ROW * len(stack.labels) + 6
    ticks = "".join(
        f'<line class="grid" x1="{scale(v):.1f}" x2="{scale(v):.1f}" y1="2" y2="{bottom}"/>'
        + _text(scale(v), bottom + 14, tick_label(v), "tick", "middle")
        for v in scale.ticks(4)
    )
    name = f"{escape(chart_id)}-title {escape(chart_id)}-desc"
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{name}">'
        f'<title id="{escape(chart_id)}-title">{escape(title)}</title>'
        f'<desc id="{escape(chart_id)}-desc">{escape(description)}</desc>'
        f"{ticks}{''.join(rows)}</svg>"
    )


def _stack_row(number: int, label: str, parts: Sequence[float], total: str, scale: Scale) -> str:
    y = number * _ROW + 5
    drawn, at = [], 0.0
    for part, length in enumerate(parts):
        x, end = scale(at), scale(at + length)
        drawn.append(
            f'<rect class="p{part}" x="{x:.1f}" y="{y}" width="{end - x:.1f}" height="{_ROW - 9}"/>'
        )
        at += length
    return (
        _text(_ROW_LABEL - 8, y + 13, label, "tick", "end")
        + "".join(drawn)
        + _text(scale(at) + 5, y + 13, total, "tick strong", "start")
    )
