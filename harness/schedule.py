"""The plan of one point: every arrival, its phase and its prompt, fixed before the first send.

A pure function of scenario, rate and seed. The engine is not among them: two engines at the same
rate and seed get the same requests at the same moments, which is what makes them comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.arrivals import (
    Stream,
    constant_ns,
    poisson_ns,
    poisson_of_count_ns,
    random_stream,
    read_trace,
    trace_ns,
)
from harness.errors import ScenarioError
from harness.prompts import PromptSet, load_prompts
from harness.records import Phase
from harness.scenario import ArrivalCount, ArrivalProcess, PromptOrder, Scenario

__all__ = ["Arrival", "Schedule", "build_schedule"]

_NS_PER_S = 1_000_000_000
# A point beyond this is a slip of the pen, and its plan would not fit in memory.
_MAX_ARRIVALS = 5_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """One planned request. `scheduled_ns` counts from the start of its point."""

    index: int
    phase: Phase
    scheduled_ns: int
    prompt_id: str
    shard: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """All arrivals of one point, in order of time.

    Warm-up ends at `warmup_ns`, measurement at `measure_ns`, both counted from the start of the
    point; no arrival lies beyond the second.
    """

    point_id: str
    rate_rps: float
    seed: int
    warmup_ns: int
    measure_ns: int
    arrivals: tuple[Arrival, ...]

    def __len__(self) -> int:
        return len(self.arrivals)

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.arrivals)

    @property
    def num_warmup(self) -> int:
        """Arrivals that are stored but excluded from every figure."""
        return sum(arrival.phase is Phase.WARMUP for arrival in self.arrivals)

    @property
    def num_measured(self) -> int:
        """Arrivals in the measurement phase: the cohort of every figure."""
        return len(self.arrivals) - self.num_warmup

    @property
    def offered_rps(self) -> float:
        """Arrivals a second that the measurement phase really holds; near `rate_rps`."""
        return self.num_measured * _NS_PER_S / (self.measure_ns - self.warmup_ns)


def build_schedule(
    scenario: Scenario,
    *,
    rate_rps: float,
    seed: int,
    point_id: str = "",
    prompts: PromptSet | None = None,
    num_shards: int = 1,
) -> Schedule:
    """Plan one point.

    Args:
        scenario: arrival process, phases, prompts and their order.
        rate_rps: mean arrivals a second.
        seed: of arrivals and prompts.
        point_id: written with every arrival.
        prompts: already loaded; None loads the scenario's own set.
        num_shards: processes that share the sending, in turn.

    Raises:
        ScenarioError: no arrival falls into the measurement phase, or there are too many.
    """
    phases = scenario.phases
    warmup_ns = round(phases.warmup_s * _NS_PER_S)
    measure_ns = warmup_ns + round(phases.measure_s * _NS_PER_S)
    expected = rate_rps * measure_ns / _NS_PER_S
    if expected > _MAX_ARRIVALS:
        raise ScenarioError(
            f"arrivals.rates_rps: {rate_rps:g} for {measure_ns / _NS_PER_S:g} s is about "
            f"{expected:.0f} requests; a point may have {_MAX_ARRIVALS}"
        )
    times_ns = _times(scenario, warmup_ns, measure_ns, rate_rps=rate_rps, seed=seed)
    if not (times_ns >= warmup_ns).any():
        raise ScenarioError(
            f"arrivals.rates_rps: at {rate_rps:g} a second with seed {seed} no request falls into "
            f"the {phases.measure_s:g} s of measurement; raise the rate or phases.measure_s"
        )
    if prompts is None:
        prompts = load_prompts(scenario.prompts.set, tags=scenario.prompts.tags)
    num_warmup = int((times_ns < warmup_ns).sum())
    chosen = _prompt_ids(
        scenario, prompts, num_warmup, len(times_ns) - num_warmup, rate_rps=rate_rps, seed=seed
    )
    arrivals = tuple(
        Arrival(
            index=index,
            phase=Phase.WARMUP if time_ns < warmup_ns else Phase.MEASURE,
            scheduled_ns=time_ns,
            prompt_id=prompt_id,
            shard=index % num_shards,
        )
        for index, (time_ns, prompt_id) in enumerate(zip(times_ns.tolist(), chosen, strict=True))
    )
    return Schedule(point_id, rate_rps, seed, warmup_ns, measure_ns, arrivals)


def _times(
    scenario: Scenario, warmup_ns: int, measure_ns: int, *, rate_rps: float, seed: int
) -> NDArray[np.int64]:
    arrivals = scenario.arrivals
    if arrivals.process is ArrivalProcess.CONSTANT:
        return constant_ns(rate_rps, measure_ns)
    if arrivals.process is ArrivalProcess.TRACE:
        assert arrivals.trace_file is not None, "the scenario refuses a trace without a file"
        return trace_ns(read_trace(Path(arrivals.trace_file)), rate_rps, measure_ns)
    if arrivals.count is ArrivalCount.RANDOM:
        rng = random_stream(Stream.ARRIVALS, seed=seed, rate_rps=rate_rps)
        return poisson_ns(rate_rps, measure_ns, rng=rng)
    # Each phase from a stream of its own: how many warm up must not move what is measured.
    phases = (
        (Stream.WARMUP_ARRIVALS, 0, warmup_ns),
        (Stream.MEASURE_ARRIVALS, warmup_ns, measure_ns),
    )
    return np.concatenate(
        [
            poisson_of_count_ns(
                round(rate_rps * (end_ns - begin_ns) / _NS_PER_S),
                begin_ns,
                end_ns,
                rng=random_stream(stream, seed=seed),
            )
            for stream, begin_ns, end_ns in phases
        ]
    )


def _prompt_ids(
    scenario: Scenario,
    prompts: PromptSet,
    num_warmup: int,
    num_measured: int,
    *,
    rate_rps: float,
    seed: int,
) -> list[str]:
    """What each request says; where rates share their arrivals, they share their texts as well."""
    ids = [prompt.id for prompt in prompts.prompts]
    num = num_warmup + num_measured
    if scenario.prompts.order is PromptOrder.SEQUENTIAL:
        return (ids * -(-num // len(ids)))[:num]
    if scenario.arrivals.count is ArrivalCount.RANDOM:
        return _shuffled(ids, num, random_stream(Stream.PROMPTS, seed=seed, rate_rps=rate_rps))
    warmup = _shuffled(ids, num_warmup, random_stream(Stream.WARMUP_PROMPTS, seed=seed))
    return warmup + _shuffled(ids, num_measured, random_stream(Stream.MEASURE_PROMPTS, seed=seed))


def _shuffled(ids: Sequence[str], num: int, rng: np.random.Generator) -> list[str]:
    """Whole rounds, each in a new order: the mix of lengths is the same however many there are."""
    chosen: list[str] = []
    while len(chosen) < num:
        chosen += [ids[i] for i in rng.permutation(len(ids)).tolist()]
    return chosen[:num]
