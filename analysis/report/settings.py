"""What a person may choose about a report; everything else follows from the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from analysis.cost import Pricing
from analysis.slo import Slo

__all__ = ["ReportSettings", "Slo"]


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """One report.

    target_rate_rps: the rate that the answers at the top are for; None: the highest that every
        engine sustained.
    audio_budget_bytes: of encoded clips inside the page; the worst of every point go first.
    num_worst_clips, num_median_clips: per point.
    """

    slo: Slo = field(default_factory=Slo)
    target_rate_rps: float | None = None
    pricing: Pricing | None = None
    has_audio: bool = True
    audio_budget_bytes: int = 8_000_000
    num_worst_clips: int = 10
    num_median_clips: int = 5
    title: str | None = None
