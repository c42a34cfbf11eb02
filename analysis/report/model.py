"""What a report says, before any format: HTML, Markdown and terminal print these same strings.

A `Cell` is one figure with its words; the number behind it is for charts and sorting. Nothing
downstream formats a number that a reader could compare with another format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = [
    "Cell",
    "Column",
    "Decision",
    "EngineView",
    "Fact",
    "Finding",
    "MetricView",
    "PointView",
    "RateView",
    "ReportModel",
    "Table",
    "Term",
    "Tone",
]


class Tone(StrEnum):
    """How a statement is meant. Never carried by colour alone: the words say it, too."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure. `note` holds what must stand beside it: n, interval, failures."""

    text: str
    value: float | None = None
    note: str = ""
    tone: Tone = Tone.NONE


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; `term` links to its definition where it has one.

    `rank`: 0 is always shown; where there is little room (a narrow terminal), columns of the
    highest rank are left out first.
    """

    title: str
    term: str | None = None
    is_number: bool = True
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A table that every format renders."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of a decision: for whom, the figure, its conditions."""

    who: str
    cell: Cell


@dataclass(frozen=True, slots=True)
class Decision:
    """One question that a team decides by, answered for each engine; `details` are reasons.

    `term` is the word that it turns on, for its definition. `is_open`: its details are the answer
    as much as its figure is, so no page folds them.
    """

    question: str
    tone: Tone
    findings: tuple[Finding, ...]
    note: str = ""
    details: tuple[str, ...] = ()
    term: str | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class MetricView:
    """One metric of one point: three percentiles of the cohort, and of the successes apart."""

    name: str
    unit: str
    n: int
    missing: int
    not_reached: int
    p50: Cell
    p95: Cell
    p99: Cell
    successes: str
    raw: Mapping[str, Any]  # the mapping of metrics.json, for charts


@dataclass(frozen=True, slots=True)
class PointView:
    """One engine at one rate with one seed. `is_complete`: it was not cut short."""

    point_id: str
    engine: str
    rate_rps: float
    seed: int
    is_complete: bool
    achieved: Cell
    n: int
    failures: Cell
    outcomes: Mapping[str, int]
    verdict: Cell
    reasons: tuple[str, ...]
    load: Cell
    metrics: Mapping[str, MetricView]
    underruns: Cell
    wer: Cell
    raw: Mapping[str, Any]  # the mapping of metrics.json, for charts


@dataclass(frozen=True, slots=True)
class RateView:
    """One engine at one rate over all its seeds: what the answers at the top are read from.

    verdict, load: the worst of its seeds.
    """

    engine: str
    rate_rps: float
    seeds: tuple[int, ...]
    n: int
    failures: Cell
    verdict: Cell
    load: Cell
    metrics: Mapping[str, MetricView]
    underruns: Cell
    raw: Mapping[str, Any]  # the mapping of metrics.json, for charts

    @property
    def is_carried(self) -> bool:
        """Whether the engine kept up and the client's figures count."""
        return self.load.text == "sustained" and self.verdict.text != "invalid"


@dataclass(frozen=True, slots=True)
class EngineView:
    """One engine: what it said it is, its points by rate and seed, and each rate over seeds."""

    name: str
    series: int
    facts: tuple[Fact, ...]
    points: tuple[PointView, ...]
    pooled: tuple[RateView, ...]
    wer: Cell
    speech: Mapping[str, Any] | None  # the mapping of `summarise_wer`, None if nobody listened

    @property
    def rates(self) -> tuple[float, ...]:
        """Rates in order, each once."""
        return tuple(sorted({point.rate_rps for point in self.points}))

    def over_seeds(self, rate_rps: float) -> RateView | None:
        """One rate over all its seeds."""
        return next((each for each in self.pooled if each.rate_rps == rate_rps), None)

    def at(self, rate_rps: float) -> tuple[PointView, ...]:
        """All seeds of one rate."""
        return tuple(point for point in self.points if point.rate_rps == rate_rps)


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what it is."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Term:
    """A word the report uses and what it means."""

    name: str
    title: str
    definition: str
    unit: str


@dataclass(frozen=True, slots=True)
class ReportModel:
    """Everything a report prints. `conditions` hold for every figure on the page."""

    title: str
    is_simulated: bool
    status: str
    created_utc: str
    conditions: tuple[Fact, ...]
    decisions: tuple[Decision, ...]
    engines: tuple[EngineView, ...]
    points_table: Table
    more_table: Table
    outcomes_table: Table
    text_table: Table
    interruptions_table: Table
    speech_table: Table
    start_delay_table: Table
    environment: tuple[Fact, ...]
    commands: tuple[str, ...]
    terms: tuple[Term, ...]
    notes: tuple[str, ...]

    @property
    def points(self) -> tuple[PointView, ...]:
        """All points, engine by engine."""
        return tuple(point for engine in self.engines for point in engine.points)
