"""When requests leave: arrival processes as pure functions of a rate and a random stream.

Times are integer nanoseconds from the start of the point and fixed before the run, so that no
delay of one request can move another. Each use of randomness has its own named stream: the same
seed gives the same arrivals and prompts whatever the engine.

Poisson arrivals come in two forms. Plain (`poisson_ns`): how many fall into a phase is itself
random, by about the square root of it; rates have independent streams, so one unlucky draw marks
one point and not a curve; a longer run begins with the arrivals of a shorter one. Given their
number (`poisson_of_count_ns`): a short phase offers the rate that it states, and the rates of one
seed share one sequence of gaps, so that they differ in nothing but scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import ScenarioError

__all__ = [
    "Stream",
    "constant_ns",
    "poisson_ns",
    "poisson_of_count_ns",
    "random_stream",
    "read_trace",
    "trace_ns",
]

_NS_PER_S = 1_000_000_000
# Rates that differ by less than this many requests a second share their streams.
_RATE_STEP_RPS = 1e-6
_BLOCK = 4096


class Stream(IntEnum):
    """What a random stream decides. The numbers are part of every stored schedule: never re-use."""

    ARRIVALS = 0
    PROMPTS = 1
    WARMUP_ARRIVALS = 2
    WARMUP_PROMPTS = 3
    MEASURE_ARRIVALS = 4
    MEASURE_PROMPTS = 5


def random_stream(
    stream: Stream, *, seed: int, rate_rps: float | None = None
) -> np.random.Generator:
    """The generator for one use of randomness.

    Args:
        stream: what it decides.
        seed: of the point.
        rate_rps: rates have independent streams; None: the one that all rates of the seed share.
    """
    key: tuple[int, ...] = (int(stream),)
    if rate_rps is not None:
        key += (round(rate_rps / _RATE_STEP_RPS),)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def poisson_ns(rate_rps: float, until_ns: int, *, rng: np.random.Generator) -> NDArray[np.int64]:
    """Arrivals of a Poisson process in [0, until_ns), in order.

    Returns:
        [n] int64 ns; two may coincide.
    """
    until_s = until_ns / _NS_PER_S
    blocks: list[NDArray[np.float64]] = []
    reached_s = 0.0
    while reached_s <= until_s:
        block = rng.standard_exponential(_BLOCK) / rate_rps
        reached_s += float(block.sum())
        blocks.append(block)
    times_s = np.cumsum(np.concatenate(blocks))
    return _before(times_s, until_ns)


def poisson_of_count_ns(
    num: int, begin_ns: int, end_ns: int, *, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Arrivals of a Poisson process of which exactly `num` fall into [begin_ns, end_ns), in order.

    Given their number they are uniform order statistics. These are made of num + 1 exponential
    gaps, stretched to fill the phase: from equal generators, more arrivals are the same gaps on a
    smaller scale, and each comes no later than with fewer.

    Returns:
        [num] int64 ns; two may coincide.
    """
    sums = np.cumsum(rng.standard_exponential(num + 1))
    # Down, not to the nearest: the phase's end belongs to what comes after it.
    offsets_ns = np.floor(sums[:-1] / sums[-1] * (end_ns - begin_ns))
    times_ns: NDArray[np.int64] = begin_ns + offsets_ns.astype(np.int64)
    return times_ns


def constant_ns(rate_rps: float, until_ns: int) -> NDArray[np.int64]:
    """Arrivals every 1 / rate_rps seconds from 0, in [0, until_ns)."""
    num = int(np.ceil(until_ns / _NS_PER_S * rate_rps)) + 1
    # From the index, not by adding gaps: rounding must not add up.
    return _before(np.arange(num, dtype=np.float64) / rate_rps, until_ns)


def trace_ns(times_s: Sequence[float], rate_rps: float, until_ns: int) -> NDArray[np.int64]:
    """A recorded arrival pattern, stretched to a mean rate and repeated to fill [0, until_ns).

    The first arrival is at 0. A repetition starts one mean gap after the last arrival.

    Args:
        times_s: at least two recorded arrival times, in order.
        rate_rps: mean rate after stretching.
        until_ns: end of the point's arrivals.
    """
    recorded = np.asarray(times_s, dtype=np.float64)
    recorded = recorded - recorded[0]
    num = len(recorded)
    # num arrivals take num gaps, the last one being the mean gap before the repetition.
    period_recorded = recorded[-1] * num / (num - 1)
    stretch = (num / rate_rps) / period_recorded
    num_periods = int(np.ceil(until_ns / _NS_PER_S * rate_rps / num)) + 1
    starts = np.arange(num_periods, dtype=np.float64)[:, None] * (num / rate_rps)
    return _before((starts + recorded[None, :] * stretch).reshape(-1), until_ns)


def read_trace(path: Path) -> tuple[float, ...]:
    """Arrival times from a text file: seconds, one a line, in order; `#` begins a comment.

    Raises:
        ScenarioError: unreadable, not a number, times that go backwards, fewer than two, or all
            at one moment; the message names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        said = fault.strerror if isinstance(fault, OSError) else "is not UTF-8 text"
        raise ScenarioError(f"{path}: the arrival trace cannot be read: {said}") from None
    times: list[float] = []
    for number, line in enumerate(lines, start=1):
        word = line.partition("#")[0].strip()
        if word:
            times.append(_trace_time(word, times, f"{path}: line {number}"))
    if len(times) < 2 or times[0] == times[-1]:
        raise ScenarioError(f"{path}: a trace needs at least two arrivals at different times")
    return tuple(times)


def _trace_time(word: str, earlier: Sequence[float], where: str) -> float:
    try:
        time_s = float(word)
    except ValueError:
        raise ScenarioError(f"{where}: {word!r} is not a number of seconds") from None
    if not np.isfinite(time_s):
        raise ScenarioError(f"{where}: {word!r} is not a finite number of seconds")
    if earlier and time_s < earlier[-1]:
        raise ScenarioError(f"{where}: {word} comes before {earlier[-1]}; sort the trace by time")
    return time_s


def _before(times_s: NDArray[np.float64], until_ns: int) -> NDArray[np.int64]:
    # Cut in seconds first: what lies centuries off does not fit into nanoseconds.
    near_s = times_s[times_s <= until_ns / _NS_PER_S]
    times_ns = np.rint(near_s * _NS_PER_S).astype(np.int64)
    return times_ns[times_ns < until_ns]
