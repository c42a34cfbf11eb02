"""How accurate it is, for people: a row a point of what must hold, then what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from analysis.accuracy import Accuracy, Bar, Spread
from analysis.number_words import count, figure
from harness.cli.terminal import Terminal
from harness.truth.noise import HostNoise

if TYPE_CHECKING:
    from harness.cli.accuracy_command import AccuracyPoint

__all__ = ["print_points"]

_MIN_WIDTH = 100


def print_points(
    points: Sequence[AccuracyPoint], *, noise: Sequence[HostNoise], seconds: float
) -> None:
    """Print every point on stdout."""
    console = Terminal(highlight=False)
    # A table that is cut off is worse than one that wraps.
    console.width = max(console.width, _MIN_WIDTH)
    for each in noise:
        console.print(f"Host noise before the first point, {each}")
    console.print(_bars(points, seconds))
    for point in points:
        for line in _details(point):
            console.print(line, soft_wrap=True)
    for line in _verdict(points):
        console.print(line, soft_wrap=True)


def _verdict(points: Sequence[AccuracyPoint]) -> Iterator[str]:
    """What it comes to, and whose fault a miss is: the last words, as the exit code is."""
    missed = [point for point in points if not point.is_met]
    if not missed:
        yield f"\nMet: every figure holds at {count(len(points), 'point')}."
        return
    is_hosts_fault = all(point.trouble for point in missed)
    word = "Inconclusive: the host was too noisy to tell" if is_hosts_fault else "Not met"
    yield f"\n{word}, at {len(missed)} of {count(len(points), 'point')}:"
    for point in missed:
        what = ", ".join(_miss(bar) for bar in point.bars if not bar.is_met)
        host = f" (host: {point.trouble})" if point.trouble else ""
        yield f"  {point.transport.value}, {point.streams} in flight: {what}{host}"


def _miss(bar: Bar) -> str:
    if bar.value is None:
        return f"{bar.name}: no figure"
    sides = f"{'more' if bar.is_upper else 'less'} than {_figure(bar.limit, bar.unit)}"
    return f"{bar.name} {_figure(bar.value, bar.unit)}, {sides}"


def _bars(points: Sequence[AccuracyPoint], seconds: float) -> Table:
    """Every point beside every line; a figure on the wrong side of its line is marked."""
    table = Table(
        title=f"Measured against true, {seconds:g} s each; in brackets what must hold",
        title_justify="left",
    )
    table.add_column("replies\nin flight")
    for bar in points[0].bars:
        table.add_column(bar.name.replace(" ", "\n"), justify="right")
    for point in points:
        name = f"{point.transport.value}\n{point.streams}"
        table.add_row(name, *(_bar(bar) for bar in point.bars))
    return table


def _bar(bar: Bar) -> str:
    sign = "<=" if bar.is_upper else ">="
    limit = f"({sign} {_figure(bar.limit, bar.unit)})"
    if bar.value is None:
        return f"[red]no figure[/red]\n{limit}"
    value = _figure(bar.value, bar.unit)
    return f"{value}\n{limit}" if bar.is_met else f"[red]{value}\nmissed[/red]\n{limit}"


def _figure(value: float, unit: str) -> str:
    if unit == "share":
        text = f"{100 * value:.2f}".rstrip("0").rstrip(".")
        return f"{text} %"
    return f"{figure(value, 3)} ms" if unit == "ms" else f"{value:.0f}"


def _details(point: AccuracyPoint) -> Iterator[str]:
    accuracy = point.accuracy
    stamps, timing, playback = accuracy.stamps, accuracy.timing, accuracy.playback
    yield (
        f"\n{point.transport.value}, {point.streams} in flight: {accuracy.identity.num_requests} "
        f"replies, {stamps.num_chunks} chunks (p50 / p99 / max of each figure)"
    )
    if point.num_tries > 1:
        yield f"  try {point.num_tries}; the ones before were spoiled by the host"
    if point.trouble is not None:
        yield f"  host: {point.trouble}"
    yield (
        f"  {accuracy.stamp_source.value} stamps: {stamps.num_exact} of their own, off by "
        f"{_spread(stamps.kernel_error_us)} us; {stamps.num_shared} shared, in doubt by "
        f"{_spread(stamps.shared_width_ms)} ms"
    )
    yield (
        f"  moments of reading off by {_spread(stamps.user_error_us)} us; truth known to "
        f"{_spread(stamps.bracket_us)} us"
    )
    yield (
        f"  dispatch lag {_spread(timing.dispatch_lag_ms)} ms; read lag "
        f"{_spread(timing.read_lag_ms)} ms, p99 <= 5 ms in {timing.num_quiet_windows} of "
        f"{timing.num_windows} windows of 250 ms"
    )
    yield from _report(accuracy)
    yield (
        f"  underruns: {playback.num_true} true, {playback.num_missed} missed, "
        f"{playback.num_invented} invented, {playback.num_undecided} undecided; lengths wrong by "
        f"{_spread(playback.stall_error_ms)} ms"
    )
    for wrong in accuracy.identity.wrong_outcomes[:3]:
        yield f"  wrong ending: {wrong}"


def _report(accuracy: Accuracy) -> Iterator[str]:
    errors = accuracy.report.error_ms
    for name, words in (
        ("ttfb", "TTFB"),
        ("audible_ttfa", "audible TTFA"),
        ("audible_ttfa_clean", "audible TTFA of abrupt onsets"),
        ("leading_silence", "leading silence"),
        ("e2e", "end to end"),
    ):
        if name in errors:
            yield f"  {words} wrong by at most {_spread(errors[name])} ms"
    rate = accuracy.report.rate_error
    if rate is not None:
        yield f"  achieved rate wrong by {100 * abs(rate):.3f} %"


def _spread(spread: Spread) -> str:
    if spread.p50 is None or spread.p99 is None or spread.max is None:
        return "-"
    return " / ".join(figure(value, 3) for value in (spread.p50, spread.p99, spread.max))
