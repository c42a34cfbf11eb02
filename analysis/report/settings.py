"""What a person may choose about a report; everything else follows from the run."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ReportSettings", "Slo"]


@dataclass(frozen=True, slots=True)
class Slo:
    """When a point counts as good enough. The page prints it beside every answer it gives.

    The defaults are those of a voice agent: half a second is where a pause in a conversation
    begins to be felt as one, and one reply in a hundred may fail or stutter.
    """

    audible_ttfa_p95_ms: float = 500.0
    underrun_rate: float = 0.01
    failure_rate: float = 0.01
    wer: float = 0.10

    def __str__(self) -> str:
        return (
            f"p95 audible TTFA ≤ {self.audible_ttfa_p95_ms:g} ms, underruns ≤"
            f" {100 * self.underrun_rate:g} %, failures ≤ {100 * self.failure_rate:g} %, WER ≤"
            f" {100 * self.wer:g} % where measured, load sustained, not invalid"
        )


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
    price_per_hour: float | None = None
    currency: str = "USD"
    has_audio: bool = True
    audio_budget_bytes: int = 8_000_000
    num_worst_clips: int = 10
    num_median_clips: int = 5
    title: str | None = None
