"""A capacity in words and as JSON: the interval, the curve, the objective, the doubts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from analysis.capacity import Capacity, CapacityStatus, CurvePoint
from analysis.cost import Pricing, cost_at_capacity
from analysis.evidence import SIMULATED_NOTE
from harness.records import RunKind

__all__ = ["capacity_json", "capacity_text"]

_STATUS = {
    CapacityStatus.ENCLOSED: "",
    CapacityStatus.ABOVE_ALL: "every rate that was tried meets it: the capacity is higher",
    CapacityStatus.BELOW_ALL: "no rate that was tried meets it: the capacity is lower",
    CapacityStatus.BUDGET: "the time was over before the interval was as narrow as asked",
    CapacityStatus.NO_DATA: "no point says anything: the client was invalid throughout",
}


def capacity_text(answers: Sequence[Capacity], *, pricing: Pricing | None = None) -> str:
    """For a terminal; with prices, what the lower end costs."""
    lines: list[str] = []
    for found in answers:
        lines.append(f"{found.engine}: {_interval(found)}")
        if found.is_simulated:
            lines.append(f"  {SIMULATED_NOTE}")
        lines.append(f"  objective: {found.objective}")
        if _STATUS[found.status]:
            lines.append(f"  {_STATUS[found.status]}")
        if found.listeners is not None:
            lines.append(f"  at the lower end about {found.listeners:.1f} listeners at once")
        cost = None if pricing is None else cost_at_capacity(found, pricing)
        if cost is not None:
            lines.append(f"  there it costs {cost}")
        lines.append("  rate/s   met   p95 audible TTFA   fitted   why not")
        lines.extend(_row(point) for point in found.curve)
        num_suspect = sum(point.num_suspect for point in found.curve)
        if num_suspect:
            lines.append(f"  {num_suspect} of the points are suspect: see their reports")
    return "\n".join(lines) + "\n"


def capacity_json(answers: Sequence[Capacity], *, pricing: Pricing | None = None) -> dict[str, Any]:
    """Plain JSON."""
    stored = []
    for found in answers:
        cost = None if pricing is None else cost_at_capacity(found, pricing)
        stored.append({**_answer_json(found), "cost": None if cost is None else asdict(cost)})
    return {"schema_version": 1, "answers": stored}


def _interval(found: Capacity) -> str:
    if found.lo_rps is None and found.hi_rps is None:
        return "capacity unknown"
    if found.lo_rps is None:
        return f"capacity below {found.hi_rps:g} requests/s"
    if found.hi_rps is None:
        return f"capacity at least {found.lo_rps:g} requests/s"
    return f"capacity between {found.lo_rps:g} and {found.hi_rps:g} requests/s"


def _row(point: CurvePoint) -> str:
    times = "not reached"
    if point.p95_ms:
        lowest, highest = min(point.p95_ms), max(point.p95_ms)
        times = f"{lowest:.0f} to {highest:.0f} ms" if lowest < highest else f"{lowest:.0f} ms"
    fitted = "void" if math.isnan(point.fitted) else f"{point.fitted:.2f}"
    met = f"{point.num_met}/{point.num_trials}"
    misses = "; ".join(point.misses[:2])
    return f"  {point.rate_rps:<8g} {met:<5} {times:<18} {fitted:<8} {misses}".rstrip()


def _answer_json(found: Capacity) -> dict[str, Any]:
    return {
        "engine": found.engine,
        "kind": (RunKind.SIMULATED if found.is_simulated else RunKind.MEASURED).value,
        "objective": found.objective,
        "status": found.status.value,
        "lo_rps": found.lo_rps,
        "hi_rps": found.hi_rps,
        "best_rps": found.best_rps,
        "listeners": found.listeners,
        "curve": [
            {
                "rate_rps": point.rate_rps,
                "num_trials": point.num_trials,
                "num_met": point.num_met,
                "num_void": point.num_void,
                "num_suspect": point.num_suspect,
                "fitted": None if math.isnan(point.fitted) else point.fitted,
                "p95_ms": list(point.p95_ms),
                "misses": list(point.misses),
                "listeners": point.listeners,
            }
            for point in found.curve
        ],
    }
