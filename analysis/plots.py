"""Static figures of a run as PNG and SVG, in one house style, from the report's own model.

Every figure says what it rests on: n, the interval, the start rule, and in large letters where the
numbers are a model's. Series differ by colour, marker and dash, so print and colour-blind eyes can
tell them apart.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.errors import RunDataError
from analysis.report.curves import curve, dodged, rate_ticks, read_percentile, read_share
from analysis.report.model import EngineView, ReportModel
from analysis.report.palette import INK_LIGHT, MARKERS, SERIES
from analysis.report.svg import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "FORMATS", "Format", "write_figures"]

Format = str
FORMATS: tuple[Format, ...] = ("png", "svg")
_SIZE_INCHES = (7.2, 4.4)
_DPI = 160
# An interval so many times higher than the highest value is cut, or it would flatten the curves.
_MAX_STRETCH = 2.0
_NOT_REACHED = "x"  # no engine's own marker
_LEGEND_LETTERS = 84  # that fit beside each other over the plot, keys included
_STYLE: Any = {  # matplotlib types its keys one by one
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture on every machine
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#565d68",
    "axes.labelcolor": INK_LIGHT,
    "axes.titleweight": "bold",
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e1e4e9",
    "grid.linewidth": 0.8,
    "text.color": INK_LIGHT,
    "xtick.color": "#565d68",
    "ytick.color": "#565d68",
    "legend.frameon": False,
    "svg.fonttype": "none",
    # Ids inside SVG files are hashes of this and not of the time: the same run, the same file.
    "svg.hashsalt": "earwitness",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}

_MARKER: Any = {
    "linewidth": 1.8,
    "markersize": 5.5,
    "markerfacecolor": "white",
    "markeredgewidth": 1.5,
}


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """A figure: its file name, the metric its n is of, and what draws it.

    `draw` gives False where there is nothing to draw.
    """

    name: str
    metric: str
    draw: Callable[[ReportModel, Any], bool]


def write_figures(
    model: ReportModel, folder: Path, *, formats: Sequence[Format] = FORMATS
) -> list[Path]:
    """Draw every figure that the run has data for; figures of an earlier time are removed.

    Args:
        model: of the report.
        folder: is made where it does not exist; files of other names in it are left alone.
        formats: `png`, `svg`; without any, the figures of an earlier time are removed all the same.

    Raises:
        RunDataError: the folder cannot be written.
    """
    written = _draw_all(model, folder, formats) if formats else []
    for stale in {folder / f"{spec.name}.{each}" for spec in FIGURES for each in FORMATS}:
        if stale not in written:
            _remove(stale)
    return written


def _draw_all(model: ReportModel, folder: Path, formats: Sequence[Format]) -> list[Path]:
    # Imported here: it takes a second, and only figures need it.
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    written = []
    with mpl.rc_context(_STYLE):
        for spec in FIGURES:
            figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
            FigureCanvasAgg(figure)
            axes = figure.add_subplot()
            if not spec.draw(model, axes):
                continue
            _sign(model, figure, axes, spec.metric)
            written += [_save(figure, folder / f"{spec.name}.{each}") for each in formats]
    return written


def _save(figure: Figure, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # No date inside: the file changes only when the picture does.
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=_DPI, metadata=metadata)
    except OSError as failure:
        raise RunDataError(f"{path}: cannot be written: {failure.strerror}") from failure
    return path


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except NotADirectoryError:
        pass  # no folder, no figures
    except OSError as failure:
        raise RunDataError(f"{path}: cannot be removed: {failure.strerror}") from failure


def _sign(model: ReportModel, figure: Figure, axes: Axes, metric: str) -> None:
    """Conditions under the plot, and a watermark on what was not measured."""
    facts = {fact.name: fact.text for fact in model.conditions}
    views = [view for engine in model.engines for view in engine.pooled]
    counts = sorted({size for view in views if (size := view.raw["metrics"][metric]["n"])})
    n = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    parts = [
        model.title,
        f"{n} a rate",
        "bars: 95 % intervals",
        f"start rule {facts['Start rule']}",
        facts["Arrivals"],
    ]
    verdicts = sorted({point.verdict.text for point in model.points} - {"valid"})
    if verdicts:
        parts.append(f"some points {' and '.join(verdicts)}")
    text = textwrap.fill(" · ".join(parts), 130)
    figure.supxlabel(text, fontsize=7.5, color="#565d68", x=0.01, ha="left")
    if model.is_simulated:
        axes.text(
            0.5, 0.5, "SIMULATED", transform=axes.transAxes, ha="center", va="center",
            fontsize=44, weight="bold", color="#b26a00", alpha=0.18, rotation=18, zorder=0,
        )  # fmt: skip


# -- figures --------------------------------------------------------------------------------------


def _latency(model: ReportModel, axes: Axes) -> bool:
    """p50 and p95 of every engine in one plot."""
    missing: list[_Gap] = []
    drawn: list[tuple[EngineView, Sequence[Point], str]] = []  # a part of a line each
    for engine in model.engines:
        for percent, dash in ((50, "--"), (95, "-")):
            found = curve(engine, read_percentile("audible_ttfa", percent))
            missing += [_Gap(rate_rps, engine.series) for rate_rps in found.missing]
            drawn += [
                (engine, dodged(each, engine, model.engines), dash) for each in found.segments
            ]
    if not drawn:
        return False
    ceiling = _ceiling([point for _, points, _ in drawn for point in points])
    for engine, points, dash in drawn:
        _draw(axes, engine, points, "", dash, ceiling=ceiling)
    # Engines and dashes apart: half the entries, and an engine that reached nothing has one, too.
    for engine in model.engines:
        colour, marker = _look(engine.series)
        axes.plot([], [], color=colour, marker=marker, label=engine.name, **_MARKER)
    for dash, name in (("--", "p50"), ("-", "p95")):
        axes.plot([], [], dash, color="#565d68", linewidth=1.8, label=name)
    axes.set_ylabel("audible TTFA (ms)")
    axes.set_ylim(0, ceiling * 1.06)
    _finish(model, axes, "Audible TTFA against offered rate", missing)
    return True


def _underruns(model: ReportModel, axes: Axes) -> bool:
    return _shares(model, axes, "underrun_rate", "Replies that stutter", "underrun rate (%)")


def _wer(model: ReportModel, axes: Axes) -> bool:
    return _shares(model, axes, "wer", "Word error rate", "WER (%)")


def _failures(model: ReportModel, axes: Axes) -> bool:
    if not any(point.failures.value for point in model.points):
        return False
    return _shares(model, axes, "failure_rate", "Requests that failed", "failed (%)")


def _shares(model: ReportModel, axes: Axes, name: str, title: str, label: str) -> bool:
    for engine in model.engines:
        for number, segment in enumerate(curve(engine, read_share(name)).segments):
            points = dodged(segment, engine, model.engines)
            _draw(axes, engine, points, "" if number else engine.name, "-")
    if not axes.has_data():
        return False
    axes.set_ylabel(label)
    # Never zoomed in on nothing: a flat zero is to look like one.
    axes.set_ylim(0, max(axes.get_ylim()[1] * 1.06, 5.0))
    _finish(model, axes, f"{title} against offered rate", [])
    return True


FIGURES = (
    FigureSpec("latency", "audible_ttfa", _latency),
    FigureSpec("underruns", "underrun_rate", _underruns),
    FigureSpec("wer", "wer", _wer),
    FigureSpec("failures", "failure_rate", _failures),
)
"""What `write_figures` draws, in order."""


# -- parts ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gap:
    """A rate at which a percentile was not reached."""

    rate_rps: float
    series: int


def _ceiling(points: Sequence[Point]) -> float:
    """Top of the axis: every value, and every interval that does not dwarf the values."""
    highest = max(point.y for point in points)
    ends = [point.hi for point in points if point.hi is not None]
    return max([highest * 1.15, *(end for end in ends if end <= _MAX_STRETCH * highest)])


def _draw(
    axes: Axes,
    engine: EngineView,
    points: Sequence[Point],
    label: str,
    dash: str,
    *,
    ceiling: float = math.inf,
) -> None:
    """A line with 95 % intervals.

    An interval without an upper end is an arrow; one that ends above `ceiling` is cut there, and
    the number stands beside it.
    """
    if not points:
        return
    colour, marker = _look(engine.series)
    xs, ys = [point.x for point in points], [point.y for point in points]
    axes.plot(xs, ys, dash, color=colour, marker=marker, label=label or None, zorder=3, **_MARKER)
    for point in points:
        if point.lo is None:
            continue
        top = point.hi if point.hi is not None else point.y
        axes.vlines(point.x, point.lo, min(top, ceiling), color=colour, linewidth=1.1, alpha=0.8)
        if top > ceiling:
            axes.annotate(
                f"↑ to {top:.0f} ", (point.x, ceiling), ha="right", va="top", fontsize=7.5,
                color=colour,
            )  # fmt: skip
        if point.is_open:
            axes.annotate(
                "", (point.x, 1.0), (point.x, point.y), xycoords=("data", "axes fraction"),
                textcoords="data", arrowprops={"arrowstyle": "->", "color": colour, "lw": 0.9},
            )  # fmt: skip


def _finish(model: ReportModel, axes: Axes, title: str, gaps: Iterable[_Gap]) -> None:
    """Axes from zero, ticks at the measured rates, a legend above the plot and off the data."""
    rates = sorted({point.rate_rps for point in model.points})
    axes.set_xlabel("offered rate (requests/s)")
    axes.set_xlim(left=0, right=rates[-1] * 1.06)
    ticks = rate_ticks(model.engines)
    axes.set_xticks(ticks, [f"{rate_rps:.3g}" for rate_rps in ticks])
    for number, gap in enumerate(sorted(gaps, key=lambda gap: gap.rate_rps)):
        colour, _ = _look(gap.series)
        axes.plot(
            gap.rate_rps, 0.985, marker=_NOT_REACHED, color=colour, clip_on=False,
            transform=axes.get_xaxis_transform(), linestyle="none",
            label=None if number else "not reached",
        )  # fmt: skip
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(4, _LEGEND_LETTERS // (max(map(len, labels)) + 8)))
    rows = -(-len(handles) // columns)
    axes.set_title(title, pad=10 + 17 * rows)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=columns, borderaxespad=0.3)


def _look(series: int) -> tuple[str, str]:
    return SERIES[series % len(SERIES)].light, MARKERS[series % len(MARKERS)]
