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

    `is_detail`: left out where there is little room (a narrow terminal).
    """

    title: str
    term: str | None = None
    is_number: bool = True
    is_detail: bool = False


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

    `term` is the word that it turns on, for its definition.
    """

    question: str
    tone: Tone
    findings: tuple[Finding, ...]
    note: str = ""
    details: tuple[str, ...] = ()
    term: str | None = None


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
    """One engine at one rate with one seed."""

    point_id: str
    engine: str
    rate_rps: float
    seed: int
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
class EngineView:
    """One engine: what it said it is, and its points by rate and seed."""

    name: str
    series: int
    facts: tuple[Fact, ...]
    points: tuple[PointView, ...]
    wer: Cell
    speech: Mapping[str, Any] | None  # the mapping of `summarise_wer`, None if nobody listened

    @property
    def rates(self) -> tuple[float, ...]:
        """Rates in order, each once."""
        return tuple(sorted({point.rate_rps for point in self.points}))

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
    outcomes_table: Table
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
