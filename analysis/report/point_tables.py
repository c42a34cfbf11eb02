"""The tables of points: what each engine did at each rate, seed by seed and over all seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from analysis.metrics.playback import START_DELAYS_MS
from analysis.report.model import Cell, Column, EngineView, PointView, RateView, Table
from analysis.report.words import (
    NOT_MEASURED,
    count,
    number,
    offered_note,
    point_value,
    rate,
    share_cell,
    value_cell,
    with_note,
)

__all__ = [
    "interruptions_table",
    "more_table",
    "outcomes_table",
    "points_table",
    "start_delay_table",
    "text_table",
]

_Row = PointView | RateView

_NAMES = (Column("engine", is_number=False), Column("rate"))
# How it went stands before how fast it was: a latency of an overloaded point says little.
_POINT_COLUMNS = (
    *_NAMES,
    Column("failed", "failure_rate"),
    Column("load", "load", is_number=False),
    Column("verdict", "verdict", is_number=False),
    Column("audible TTFA p50", "audible_ttfa", rank=1),
    Column("audible TTFA p95", "audible_ttfa"),
    Column("received p95", "audible_received"),
    Column("leading silence", "leading_silence", rank=2),
    Column("stutter", "underrun_rate"),
)
_MORE_COLUMNS = (
    *_NAMES,
    Column("n"),
    Column("achieved", "achieved_rate"),
    Column("audible TTFA p99", "audible_ttfa"),
    Column("received p50", "audible_received"),
    Column("from schedule p95", "audible_ttfa_from_schedule"),
    Column("stalls p95", "stall_total"),
    Column("WER", "wer"),
)


def points_table(engines: Sequence[EngineView]) -> Table:
    """Every point, and every rate over its seeds; an unreached share is said, not hidden."""
    rows = tuple(
        (
            *_name_cells(row, engine),
            row.failures,
            row.load,
            row.verdict,
            _of(row, "audible_ttfa", 50),
            _of(row, "audible_ttfa", 95),
            _of(row, "audible_received", 95),
            _of(row, "leading_silence", 50),
            _stutter(row),
        )
        for engine in engines
        for row in _rows(engine)
    )
    caption = (
        "Every point. Percentiles are over all arrivals of the measurement phase, below them"
        " their 95 % interval; a failed request is worse than any latency. Received: when the"
        " first sound arrived, which a player that cuts leading silence could play. Leading"
        " silence: its median, a part of the audible TTFA. Stutter: the share of replies with a"
        " gap, and the median of their longest gaps."
    )
    return Table(caption, _POINT_COLUMNS, rows)


def more_table(points: Sequence[PointView]) -> Table:
    """What else was measured at every point."""
    has_seeds = _has_seeds(points)
    rows = tuple(
        (
            *_point_cells(point, has_seeds=has_seeds),
            Cell(str(point.n), point.n),
            point.achieved,
            _of(point, "audible_ttfa", 99),
            _of(point, "audible_received", 50),
            _of(point, "audible_ttfa_from_schedule", 95),
            _of(point, "stall_total", 95),
            _with_n(point, point.wer, "wer"),
        )
        for point in points
    )
    return Table("More of every point.", _MORE_COLUMNS, rows)


def outcomes_table(points: Sequence[PointView]) -> Table:
    """How requests ended; a column for every outcome that occurred."""
    totals = Counter[str]()
    for point in points:
        totals.update(point.outcomes)
    names = sorted(totals, key=lambda name: (name != "ok", -totals[name], name))
    columns = (
        *_NAMES,
        *(Column(name.replace("_", " "), f"outcome_{name}") for name in names),
    )
    has_seeds = _has_seeds(points)
    rows = tuple(
        (
            *_point_cells(point, has_seeds=has_seeds),
            *(Cell(str(point.outcomes.get(name, 0))) for name in names),
        )
        for point in points
    )
    return Table("How the requests of the measurement phase ended.", columns, rows)


def start_delay_table(points: Sequence[PointView]) -> Table:
    """How long a player would have to wait for replies to play without a gap."""
    names = tuple(f"pass_rate_{delay}ms" for delay in START_DELAYS_MS)
    columns = (
        *_NAMES,
        *(
            Column(f"no gap at +{delay} ms", name)
            for delay, name in zip(START_DELAYS_MS, names, strict=True)
        ),
        Column("delay for ≤ 1 % gaps", "start_delay_for_1_percent"),
        Column("delay needed p95", "required_delay"),
    )
    has_seeds = _has_seeds(points)
    rows = []
    for point in points:
        needed = point_value(point.raw, "start_delay_for_1_percent")
        rows.append(
            (
                *_point_cells(point, has_seeds=has_seeds),
                *(_with_n(point, share_cell(point_value(point.raw, name)), name) for name in names),
                Cell(number(needed.value if needed else None, "ms")),
                _of(point, "required_delay", 95),
            )
        )
    caption = (
        "Share of replies that play without a gap when the player starts so long after the first"
        " playable chunk, and the smallest start delay that leaves gaps in at most 1 % of them."
        " Replies that came in one chunk have no continuity and are left out."
    )
    return Table(caption, columns, tuple(rows))


def text_table(points: Sequence[PointView]) -> Table:
    """Text that was sent in pieces; no rows where none was."""
    columns = (
        *_NAMES,
        Column("text end to sound p50", "final_text_to_audible"),
        Column("text end to sound p95", "final_text_to_audible"),
        Column("audible TTFA p50", "audible_ttfa"),
        Column("audio before text end p50", "audio_before_text_end"),
    )
    fed = [point for point in points if _num_measured(point, "final_text_to_audible")]
    has_seeds = _has_seeds(points)
    rows = tuple(
        (
            *_point_cells(point, has_seeds=has_seeds),
            _of(point, "final_text_to_audible", 50),
            _of(point, "final_text_to_audible", 95),
            _of(point, "audible_ttfa", 50),
            _of(point, "audio_before_text_end", 50),
        )
        for point in fed
    )
    caption = (
        "Text in pieces: from the last piece to the first sound (below zero: it was heard before"
        " its text had ended), and the share of the audio that had come by then. Audible TTFA"
        " counts from dispatch, so it holds the writing of the text, too."
    )
    return Table(caption, columns, rows)


def interruptions_table(points: Sequence[PointView]) -> Table:
    """Replies that the listener cut off; no rows where none was."""
    columns = (
        *_NAMES,
        Column("cancelled", "outcome_cancelled"),
        Column("audible TTFA p50", "audible_ttfa"),
        Column("audible TTFA p50 after a cancel", "audible_ttfa_after_cancel"),
        Column("cancel to last byte p50", "cancel_to_last_byte"),
        Column("cancel to last byte p95", "cancel_to_last_byte"),
    )
    cut = [point for point in points if _num_cancelled(point)]
    has_seeds = _has_seeds(points)
    rows = tuple(
        (
            *_point_cells(point, has_seeds=has_seeds),
            Cell(str(_num_cancelled(point)), _num_cancelled(point), f"of {point.n}"),
            _of(point, "audible_ttfa", 50),
            value_cell(point_value(point.raw, "audible_ttfa_after_cancel"), "ms"),
            _last_byte(point, 50),
            _last_byte(point, 95),
        )
        for point in cut
    )
    caption = (
        "Interruptions: whether dropped work still stands in the way of the next listener, and"
        " how long a server keeps sending to one who has hung up."
    )
    return Table(caption, columns, rows)


# -- cells ----------------------------------------------------------------------------------------


def _rows(engine: EngineView) -> Iterator[_Row]:
    """Points in order; a rate of several seeds is led by all of them together."""
    for each in engine.rates:
        pooled = engine.over_seeds(each)
        if pooled is not None and len(pooled.seeds) > 1:
            yield pooled
        yield from engine.at(each)


def _name_cells(row: _Row, engine: EngineView) -> tuple[Cell, Cell]:
    if isinstance(row, PointView):
        return _point_cells(row, has_seeds=_has_seeds(engine.points))
    together = f"{count(len(row.seeds), 'seed')} together"
    return Cell(row.engine), Cell(rate(row.rate_rps), row.rate_rps, together)


def _point_cells(point: PointView, *, has_seeds: bool) -> tuple[Cell, Cell]:
    """Who and at which rate, and what else tells this row from its neighbours."""
    notes = (
        f"seed {point.seed}" if has_seeds else "",
        "" if point.is_complete else "interrupted",
        offered_note(point.rate_rps, point.raw),
    )
    note = ", ".join(text for text in notes if text)
    return Cell(point.engine), Cell(rate(point.rate_rps), point.rate_rps, note)


def _has_seeds(points: Sequence[PointView]) -> bool:
    return len({point.seed for point in points}) > 1


def _of(row: _Row, name: str, percent: int) -> Cell:
    """A cell of a table; n stands beside it where it is not that of the row."""
    metric = row.metrics.get(name)
    if metric is None:
        return Cell(NOT_MEASURED)
    found: Cell = getattr(metric, f"p{percent}")
    return found if metric.n in (row.n, 0) else with_note(found, f"n = {metric.n}")


def _with_n(row: _Row, cell: Cell, name: str) -> Cell:
    found = point_value(row.raw, name)
    is_own_n = cell.value is None or found is None or found.n == row.n
    return cell if is_own_n or found is None else with_note(cell, f"n = {found.n}")


def _stutter(row: _Row) -> Cell:
    """The share of replies with a gap, and how long the gaps are."""
    cell = _with_n(row, row.underruns, "underrun_rate")
    length = point_value(row.raw, "underrun_length")
    if length is None or length.value is None:
        return cell
    return with_note(cell, f"median {number(length.value, 'ms')}")


def _last_byte(point: PointView, percent: int) -> Cell:
    if _num_measured(point, "cancel_to_last_byte"):
        return _of(point, "cancel_to_last_byte", percent)
    return Cell("not applicable", note="a cancel closes the connection")


def _num_measured(point: PointView, name: str) -> int:
    metric = point.metrics.get(name)
    return 0 if metric is None else metric.n


def _num_cancelled(point: PointView) -> int:
    """By the scenario; what the run's own interrupt ended is no interruption by a listener."""
    return point.outcomes.get("cancelled", 0) - int(point.raw.get("num_interrupted", 0))
