"""A spin sees what the host takes away."""

from __future__ import annotations

import itertools

from harness.truth.noise import host_trouble, probe_noise

MS = 1_000_000


def test_gaps_are_counted_and_added_up():
    """A clock that ticks every 0.1 ms, with gaps of 3 and 7 ms in 20 ms."""
    ticks = [n * MS // 10 for n in range(50)]
    moments = [*ticks, *(t + 8 * MS for t in ticks), *(t + 20 * MS for t in ticks)]
    clock = itertools.chain(moments, itertools.count(30 * MS, MS // 10))
    noise = probe_noise(0.020, now_ns=lambda: next(clock))

    assert (2, 1) == (noise.num_gaps, noise.num_long_gaps)
    assert 7.1 == noise.longest_gap_ms
    assert noise.cpu is None


def test_quiet_host_is_no_trouble():
    """Little run delay, no stall."""
    assert host_trouble({"cpu": {"run_delay": 0.01, "steal": 0.0}, "stalls": []}) is None


def test_cpu_that_was_not_given_is_trouble():
    """Named with its share."""
    said = host_trouble({"cpu": {"run_delay": 0.3, "steal": 0.02}})

    assert "the client waited for a CPU 30% of the time; the hypervisor took 2% of the CPU" == said


def test_only_stalls_from_outside_are_the_hosts():
    """A callback of ours is no excuse."""
    own = {"cause": "callback", "length_ms": 50}
    foreign = {"cause": "cpu", "length_ms": 31}

    assert host_trouble({"stalls": [own]}) is None
    assert "1 stalls from outside, the longest 31 ms" == host_trouble({"stalls": [own, foreign]})
