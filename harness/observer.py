"""Who is told how a run goes, from the first question to an engine to the last reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engines.base import EngineInfo
from harness.dispatcher import Progress
from harness.records import TransportOutcome
from harness.scenario import Point
from harness.schedule import Schedule

__all__ = ["Preflight", "RunObserver", "SilentObserver"]


@dataclass(frozen=True, slots=True)
class Preflight:
    """How the one request ended that an engine was sent before the load; in no figure.

    `duration_ms` is from dispatch to the end of the reply, null where nothing was dispatched.
    """

    prompt_id: str
    num_characters: int
    outcome: TransportOutcome
    http_status: int | None
    error_text: str | None
    duration_ms: float | None


class RunObserver(Protocol):
    """Called on the loop, so it must be quick."""

    def on_waiting(self, engine: str, reason: str) -> None:
        """An engine is not ready yet."""
        ...

    def on_engine(self, engine: str, info: EngineInfo) -> None:
        """An engine is there and said who it is."""
        ...

    def on_preflight(self, engine: str, found: Preflight) -> None:
        """An engine was tried with one request, and nothing in its answer forbids the load."""
        ...

    def on_point(self, point: Point, schedule: Schedule) -> None:
        """A point begins."""
        ...

    def on_progress(self, progress: Progress) -> None:
        """Four times a second."""
        ...


class SilentObserver:
    """Hears everything and says nothing."""

    def on_waiting(self, engine: str, reason: str) -> None:
        """Nothing."""

    def on_engine(self, engine: str, info: EngineInfo) -> None:
        """Nothing."""

    def on_preflight(self, engine: str, found: Preflight) -> None:
        """Nothing."""

    def on_point(self, point: Point, schedule: Schedule) -> None:
        """Nothing."""

    def on_progress(self, progress: Progress) -> None:
        """Nothing."""
