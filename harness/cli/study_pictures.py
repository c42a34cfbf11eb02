"""The figures of a simulator study: one file a cost table, so kinds of numbers never share axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.report.palette import INK_LIGHT, MARKERS, SERIES
from harness.cli.simulate_study import POLICIES, PROFILES, Study, ladder_rungs
from harness.cli.study_tables import LATENCY_LIMIT_MS, kind_words, num_seeds

__all__ = ["write_pictures"]

_SIZE_INCHES = (7.6, 4.6)
_GREY = "#565d68"
_STYLE: Any = {  # matplotlib types its keys one by one
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e1e4e9",
    "text.color": INK_LIGHT,
    "legend.frameon": False,
    "svg.hashsalt": "earwitness",
    "figure.facecolor": "white",
}
_LINES = ("-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)), (0, (4, 1)), (0, (1, 1)))
_TOO_LATE_MS = 2_000.0
# From vermilion (naive) to blue (everything on), each at least 3:1 against white.
_RAMP = (
    "#b3261e", "#c44e00", "#a86400", "#8a6d00", "#5f7300", "#2f7a34", "#00805c", "#007a82",
    "#0067a8", "#3b4cc0",
)  # fmt: skip


def write_pictures(study: Study, folder: Path) -> list[Path]:
    """Draw `curve-<cost>.svg`, `policy-<cost>.svg` and `ladder-<cost>.svg` for each table."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    written = []
    drawers = {"curve": _curve, "policy": _policy, "ladder": _ladder}
    with mpl.rc_context(_STYLE):
        for cost in sorted({point.job.cost for point in study.points}):
            for name, draw in drawers.items():
                figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
                FigureCanvasSVG(figure)
                axes = figure.add_subplot()
                draw(study, cost, axes)
                _sign(figure, axes, study, part=name, cost=cost)
                path = folder / f"{name}-{cost}.svg"
                figure.savefig(path, metadata={"Date": None})
                written.append(path)
    return written


def _sign(figure: Any, axes: Any, study: Study, *, part: str, cost: str) -> None:
    """Conditions below, and a watermark over everything."""
    points = study.of(part, cost=cost)
    sizes = [point.summary.num_requests for point in points]
    said = (
        f"Simulated, not measured. Cost table {cost} ({kind_words(cost)}).\n"
        f"{num_seeds(points)}, n = {min(sizes)} to {max(sizes)} a point; the worst seed's p95;"
        " crossed out: some requests had an underrun or failed"
    )
    figure.supxlabel(said, fontsize=7.5, color=_GREY, x=0.01, ha="left")
    axes.text(
        0.5, 0.5, "SIMULATED", transform=axes.transAxes, ha="center", va="center", fontsize=42,
        weight="bold", color="#b26a00", alpha=0.13, rotation=16, zorder=0,
    )  # fmt: skip
    axes.set_xlabel("arrivals a second (Poisson)")
    axes.set_ylabel("first audible PCM, p95 (ms)")


@dataclass(frozen=True, slots=True)
class _Series:
    """One line: its label, which points it has, and how it looks."""

    label: str
    keys: Mapping[str, object]
    tint: str
    marker: str
    dashes: Any = "-"
    marker_size: float = 6.0
    width: float = 1.7


def _told_apart(named: Sequence[tuple[str, Mapping[str, object]]]) -> list[_Series]:
    """Up to six series by colour, marker and dashes."""
    return [
        _Series(label, keys, SERIES[n].light, MARKERS[n], _LINES[n])
        for n, (label, keys) in enumerate(named)
    ]


def _lines(study: Study, axes: Any, part: str, series: Sequence[_Series]) -> None:
    """One line a series; points with underruns or failures are crossed out."""
    for line in series:
        keys = line.keys
        rates, values, flawed = [], [], []
        for rate in study.rates(part):
            value = study.worst_p95_ms(part, rate_rps=rate, **keys)
            if value is None or value > _TOO_LATE_MS:
                break
            rates.append(rate)
            values.append(value)
            points = study.of(part, rate_rps=rate, **keys)
            flawed.append(any(not point.summary.is_smooth for point in points))
        axes.plot(
            rates, values, color=line.tint, linestyle=line.dashes, marker=line.marker,
            markersize=line.marker_size, linewidth=line.width, label=line.label,
        )  # fmt: skip
        crossed = [(r, v) for r, v, bad in zip(rates, values, flawed, strict=True) if bad]
        axes.plot(
            *zip(*crossed, strict=True), "x", color=line.tint, markersize=12
        ) if crossed else None
    axes.set_yscale("log")
    axes.set_yticks([5, 10, 20, 50, 100, 200, 500, 1000, 2000])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(_no_ticks())
    axes.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _curve(study: Study, cost: str, axes: Any) -> None:
    series = [(name, {"cost": cost, "profile": name}) for name in PROFILES]
    _lines(study, axes, "curve", _told_apart(series))
    axes.axhline(LATENCY_LIMIT_MS, color=_GREY, linewidth=1, linestyle=(0, (1, 2)))
    axes.set_title("What a listener waits, by profile")


def _policy(study: Study, cost: str, axes: Any) -> None:
    series = [(name, {"cost": cost, "policy": name}) for name in POLICIES]
    _lines(study, axes, "policy", _told_apart(series))
    axes.set_title("What the policy is worth: profile ttfa, same chunks")


def _ladder(study: Study, cost: str, axes: Any) -> None:
    series = [
        # Ten lines are more than colours can tell apart: the rung's number is its marker.
        _Series(
            label=rung.removeprefix("ladder/"),
            keys={"cost": cost, "profile": rung},
            tint=_RAMP[number],
            marker=f"${number}$",
            marker_size=9.0,
            width=1.0,
        )
        for number, rung in enumerate(ladder_rungs())
    ]
    _lines(study, axes, "ladder", series)
    axes.set_xscale("log")
    axes.set_xticks(study.rates("ladder"))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(_no_ticks())
    axes.set_title("What each optimisation is worth")
