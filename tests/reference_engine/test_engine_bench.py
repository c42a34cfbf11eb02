"""What the host costs: limits on a quiet machine, and that the bench itself is sound."""

from __future__ import annotations

import itertools

import pytest

from reference_engine.clock import thread_cpu_ns
from reference_engine.config import load_profile
from reference_engine.engine_bench import TurnCosts, measure_turns


def measured(num_streams: int, num_turns: int) -> TurnCosts:
    return measure_turns(
        load_profile("ttfa"), num_streams=num_streams, num_turns=num_turns, cpu_ns=thread_cpu_ns
    )


def test_every_stream_takes_part_and_none_ever_ends():
    """Full codec-frame steps of all streams are among the turns that are timed."""
    ticks = itertools.count(step=1_000)
    costs = measure_turns(
        load_profile("ttfa"), num_streams=16, num_turns=60, cpu_ns=lambda: next(ticks)
    )

    assert (16, 60) == (costs.num_streams, costs.num_turns)
    assert costs.num_full > 10
    # The fake clock ticks once between the two readings of a turn.
    assert (1.0, 1.0) == (costs.p50_us, costs.p99_us)


@pytest.mark.bench
def test_a_scheduling_turn_is_a_small_part_of_a_step():
    """64 streams: p50 <= 100 us, p99 <= 250 us of CPU time; 256 streams at most four times that."""
    best = {
        num: min((measured(num, 5_000) for _ in range(3)), key=lambda costs: costs.p99_us)
        for num in (64, 256)
    }
    for costs in best.values():
        print(costs)

    assert best[64].p50_us <= 100
    assert best[64].p99_us <= 250
    assert best[64].full_p50_us <= 100
    assert best[64].full_p99_us <= 250
    assert best[256].p50_us <= 4 * best[64].p50_us
    assert best[256].full_p50_us <= 4 * best[64].full_p50_us
