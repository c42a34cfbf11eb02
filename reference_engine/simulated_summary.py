"""What a simulated point comes to: first audible sound, underruns, load.

The same definitions as for measured runs (nearest rank over the whole cohort, failures worse than
any latency, a stall of 1 ms is an underrun), computed here for the engine's own tables and tests;
a test holds the two equal on one run folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reference_engine.batch import Stage
from reference_engine.clock import NS_PER_MS, NS_PER_S
from reference_engine.messages import SAMPLE_RATE_HZ, EndReason
from reference_engine.simulate import SimulatedRequest, Simulation

__all__ = ["PointSummary", "Replay", "replay", "summarise"]

_UNDERRUN_NS = NS_PER_MS


@dataclass(frozen=True, slots=True)
class Replay:
    """A reply through a player that starts at its first chunk (ns).

    audible_ns: when the onset is played, None where it never is. min_slack_ns: the narrowest
    chunk after the first, None where there was one chunk.
    """

    audible_ns: int | None
    num_underruns: int
    min_slack_ns: int | None
    end_ns: int | None


@dataclass(frozen=True, slots=True)
class PointSummary:
    """One profile at one rate with one seed; latencies in ms, None: not reached.

    num_failed: requests without audible sound, refused ones among them. num_heard: requests of
    which anything came. num_underrun: those of them with an underrun. mean_concurrent: streams
    between arrival and the end of their playback. device_share: of the time, spent in steps and
    the gaps before them. frame_rows: mean rows of a codec-frame step.
    """

    num_requests: int
    num_failed: int
    num_heard: int
    num_underrun: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    min_slack_ms: float | None
    mean_concurrent: float
    device_share: float
    frame_rows: float
    num_unfinished: int

    @property
    def is_smooth(self) -> bool:
        """Everybody heard something, without a gap, and nobody was left over."""
        return not self.num_failed and not self.num_underrun and not self.num_unfinished


def replay(request: SimulatedRequest) -> Replay:
    """Play one reply."""
    if not request.chunks:
        return Replay(None, 0, None, None)
    onset = request.known_onset_sample
    due_ns = request.chunks[0].arrival_ns
    num_samples, num_underruns = 0, 0
    audible_ns: int | None = None
    slacks: list[int] = []
    for chunk in request.chunks:
        slack_ns = due_ns - chunk.arrival_ns
        if num_samples:
            slacks.append(slack_ns)
            num_underruns += slack_ns <= -_UNDERRUN_NS
        due_ns = max(due_ns, chunk.arrival_ns)
        if onset is not None and num_samples <= onset < num_samples + chunk.num_samples:
            audible_ns = due_ns + (onset - num_samples) * NS_PER_S // SAMPLE_RATE_HZ
        num_samples += chunk.num_samples
        due_ns += chunk.num_samples * NS_PER_S // SAMPLE_RATE_HZ
    return Replay(audible_ns, num_underruns, min(slacks, default=None), due_ns)


def summarise(simulation: Simulation, *, from_ns: int = 0) -> PointSummary:
    """Figures over the requests that arrived at `from_ns` or later."""
    cohort = [request for request in simulation.requests if request.arrival.at_ns >= from_ns]
    replays = [replay(request) for request in cohort]
    latencies = sorted(
        math.inf
        if played.audible_ns is None or request.reason is not EndReason.COMPLETE
        else (played.audible_ns - request.arrival.at_ns) / NS_PER_MS
        for request, played in zip(cohort, replays, strict=True)
    )
    slacks = [played.min_slack_ns for played in replays if played.min_slack_ns is not None]
    meters = simulation.meters
    frames = [meters.stages[stage] for stage in (Stage.FRAME, Stage.TALKER)]
    num_steps = sum(meter.num_steps for meter in frames)
    busy_ns = sum(meter.busy_ns for meter in meters.stages)
    return PointSummary(
        num_requests=len(cohort),
        num_failed=sum(math.isinf(latency) for latency in latencies),
        num_heard=sum(bool(request.chunks) for request in cohort),
        num_underrun=sum(played.num_underruns > 0 for played in replays),
        p50_ms=_rank(latencies, 50),
        p95_ms=_rank(latencies, 95),
        p99_ms=_rank(latencies, 99),
        min_slack_ms=min(slacks) / NS_PER_MS if slacks else None,
        mean_concurrent=_mean_concurrent(cohort, replays),
        device_share=busy_ns / simulation.end_ns if simulation.end_ns else 0.0,
        frame_rows=sum(meter.num_rows for meter in frames) / num_steps if num_steps else 0.0,
        num_unfinished=sum(request.reason is None and not request.refusal for request in cohort),
    )


def _rank(ranked: Sequence[float], percent: int) -> float | None:
    """Nearest rank; None where it falls on a request that never sounded, or on nobody."""
    if not ranked:
        return None
    value = ranked[-(-len(ranked) * percent // 100) - 1]
    return value if math.isfinite(value) else None


def _mean_concurrent(cohort: Sequence[SimulatedRequest], replays: Iterable[Replay]) -> float:
    """Streams in progress or playing, averaged over the time in which the cohort arrived."""
    if len(cohort) < 2:
        return 0.0
    span_ns = cohort[-1].arrival.at_ns - cohort[0].arrival.at_ns
    busy_ns = sum(
        max(played.end_ns, request.finished_ns or 0) - request.arrival.at_ns
        for request, played in zip(cohort, replays, strict=True)
        if played.end_ns is not None
    )
    return busy_ns / span_ns if span_ns else 0.0
