"""What one load of `earwitness gpu-check` showed: first routed PCM and underruns, rate by rate.

Random weights make noise, and noise has no onset. So their audio is not kept, nothing audible is
timed, and the one latency reported is that of the first samples to arrive, from which the server
has cut the codec frame that it assumes to be silent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RateFigures", "figure_lines", "read_figures"]

_FIRST_SAMPLES = "ttfp"


@dataclass(frozen=True, slots=True)
class RateFigures:
    """One point. Milliseconds from dispatch; None where too many requests never got there."""

    rate_rps: float
    num_requests: int
    num_failed: int
    first_routed_pcm_p50_ms: float | None
    first_routed_pcm_p95_ms: float | None
    underrun_share: float | None
    verdict: str


def read_figures(folder: Path) -> tuple[RateFigures, ...]:
    """Figures of a run whose metrics were derived; none where they were not."""
    derived = folder / "derived" / "metrics.json"
    if not derived.is_file():
        return ()
    return tuple(_point(each) for each in json.loads(derived.read_text())["points"])


def _point(point: dict[str, Any]) -> RateFigures:
    first, underruns = point["metrics"][_FIRST_SAMPLES], point["metrics"]["underrun_rate"]
    return RateFigures(
        rate_rps=point["rate_rps"],
        num_requests=point["n"],
        num_failed=point["n"] - point["outcomes"].get("ok", 0),
        first_routed_pcm_p50_ms=first["p50"]["value"],
        first_routed_pcm_p95_ms=first["p95"]["value"],
        underrun_share=underruns["value"]["value"],
        verdict=point["validity"]["verdict"],
    )


def figure_lines(figures: Sequence[RateFigures]) -> list[str]:
    """A small table."""
    if not figures:
        return []
    head = (
        f"{'requests/s':>12} {'n':>6} {'failed':>7} {'p50 ms':>9} {'p95 ms':>9} {'underruns':>10}"
    )
    return [
        f"{'':>4}first routed PCM after the silent frame",
        head,
        *(
            f"{each.rate_rps:>12g} {each.num_requests:>6} {each.num_failed:>7}"
            f" {_ms(each.first_routed_pcm_p50_ms):>9} {_ms(each.first_routed_pcm_p95_ms):>9}"
            f" {_percent(each.underrun_share):>10}  {each.verdict}"
            for each in figures
        ),
    ]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
