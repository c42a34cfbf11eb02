"""Arrival processes: exact, seeded, and with the statistics they claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

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

S = 1_000_000_000

rates = st.floats(0.05, 500)
seeds = st.integers(0, 2**63)


def _poisson(rate_rps: float, until_ns: int, seed: int = 1) -> np.ndarray:
    rng = random_stream(Stream.ARRIVALS, seed=seed, rate_rps=rate_rps)
    return poisson_ns(rate_rps, until_ns, rng=rng)


def test_constant_arrivals_do_not_drift():
    """At 200 a second, arrival 999 is planned at 4.995 s exactly."""
    times = constant_ns(200, 5 * S)

    assert (1000, 4_995_000_000) == (len(times), times[999])


@given(rates, st.integers(1, 20 * S))
@settings(max_examples=60, deadline=None)
def test_constant_arrivals_lie_on_multiples_of_the_gap(rate_rps: float, until_ns: int):
    """Each is within half a nanosecond's rounding of index / rate, and all before the end."""
    times = constant_ns(rate_rps, until_ns)
    exact = np.arange(len(times)) / rate_rps * S

    assert len(times) >= 1
    assert np.all(np.abs(times - exact) <= 1)
    assert times[-1] < until_ns <= round(len(times) / rate_rps * S) + 1


@given(rates, st.integers(1, 30 * S), seeds)
@settings(max_examples=60, deadline=None)
def test_poisson_arrivals_are_ordered_and_inside(rate_rps: float, until_ns: int, seed: int):
    """Never before 0, never at the end or after it, never backwards."""
    times = _poisson(rate_rps, until_ns, seed)

    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times < until_ns))


def test_arrivals_beyond_the_end_of_time_are_left_out():
    """A gap of more nanoseconds than 64 bits hold is not in the run, and no overflow."""
    assert 0 == len(_poisson(1e-300, 100 * S, 1))
    assert [0] == list(constant_ns(1e-300, 100 * S))


@given(rates, st.integers(1, 20 * S), st.integers(0, 20 * S), seeds)
@settings(max_examples=40, deadline=None)
def test_a_longer_run_begins_with_the_arrivals_of_a_shorter(
    rate_rps: float, short_ns: int, more_ns: int, seed: int
):
    """Lengthening a point appends to its plan and changes nothing in it."""
    short = _poisson(rate_rps, short_ns, seed)
    longer = _poisson(rate_rps, short_ns + more_ns, seed)

    assert np.array_equal(short, longer[: len(short)])


def test_poisson_gaps_are_exponential():
    """Kolmogorov-Smirnov against the exponential, and a dispersion of counts near 1."""
    times = _poisson(50, 400 * S)
    gaps_s = np.diff(times) / S
    counts = np.bincount((times // S).astype(int), minlength=400)

    assert stats.kstest(gaps_s, "expon", args=(0, 1 / 50)).pvalue > 0.01
    assert abs(counts.var() / counts.mean() - 1) < 0.25
    assert abs(len(times) / 400 / 50 - 1) < 0.02


def test_the_first_arrivals_of_a_seed_never_change():
    """Published plans can be built again: these are seed 1 at 2 a second."""
    assert [138_545_647, 2_309_547_899, 2_480_336_459] == _poisson(2.0, 60 * S)[:3].tolist()


def test_rates_and_seeds_have_independent_streams():
    """Doubling the rate is not the same plan at half the time scale."""
    slow, fast, other = _poisson(1, 50 * S), _poisson(2, 50 * S), _poisson(1, 50 * S, seed=2)

    assert not np.allclose(slow[:10], fast[:10] * 2)
    assert not np.array_equal(slow[:10], other[:10])


def _of_count(num: int, begin_ns: int, end_ns: int, seed: int = 1) -> np.ndarray:
    rng = random_stream(Stream.MEASURE_ARRIVALS, seed=seed)
    return poisson_of_count_ns(num, begin_ns, end_ns, rng=rng)


@given(st.integers(0, 300), st.integers(0, 30 * S), st.integers(1, 30 * S), seeds)
@settings(max_examples=60, deadline=None)
def test_arrivals_of_a_given_number_are_as_many_and_inside(
    num: int, begin_ns: int, length_ns: int, seed: int
):
    """That many, never before the phase, never at its end or after it, never backwards."""
    times = _of_count(num, begin_ns, begin_ns + length_ns, seed)

    assert num == len(times)
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= begin_ns) & (times < begin_ns + length_ns))


@given(st.integers(1, 200), st.integers(1, 200), seeds)
@settings(max_examples=40, deadline=None)
def test_more_arrivals_are_the_same_gaps_on_a_smaller_scale(num: int, more: int, seed: int):
    """One factor takes the arrivals of a low rate to the first ones of a higher rate."""
    few, many = _of_count(num, 0, 20 * S, seed), _of_count(num + more, 0, 20 * S, seed)
    scale = many[num - 1] / few[-1]

    assert scale <= 1
    assert np.all(np.abs(many[:num] - few * scale) <= 3)


def test_arrivals_of_a_given_number_are_uniform_order_statistics():
    """The k-th of n falls on average at k / (n + 1) of the phase, as the Beta distribution says."""
    places = np.array([_of_count(9, 0, S, seed) / S for seed in range(4000)])

    assert stats.kstest(places.reshape(-1), "uniform").pvalue > 0.01
    for k in (1, 5, 9):
        assert stats.kstest(places[:, k - 1], "beta", args=(k, 10 - k)).pvalue > 0.01


def test_a_trace_is_stretched_to_the_mean_rate():
    """Three arrivals over 4 s, replayed at 1.5 a second: a period of 2 s, with the same shape."""
    times = trace_ns([10.0, 11.0, 14.0], 1.5, 4 * S)

    # The recorded period is 4 s * 3 / 2 gaps = 6 s, so everything shrinks by a third.
    expected = [0, S / 3, 4 * S / 3, 2 * S, 2 * S + S / 3, 2 * S + 4 * S / 3]
    assert [round(t) for t in expected] == times.tolist()


@given(
    st.lists(st.floats(0, 1e4), min_size=2, max_size=20).filter(lambda t: max(t) - min(t) > 1e-3),
    st.floats(0.1, 100),
)
@settings(max_examples=60, deadline=None)
def test_a_trace_keeps_its_rate_over_many_periods(recorded: list[float], rate_rps: float):
    """Whatever the shape, 50 periods hold 50 times its arrivals (one more or less at the edge)."""
    recorded = sorted(recorded)
    num = 50 * len(recorded)
    times = trace_ns(recorded, rate_rps, round(num / rate_rps * S))

    assert abs(len(times) - num) <= len(recorded)
    assert np.all(np.diff(times) >= 0)


def test_a_trace_file_has_seconds_and_comments(tmp_path: Path):
    """One time a line; what follows a # is for people."""
    path = tmp_path / "trace.txt"
    path.write_text("# morning\n0.5\n\n0.75 # burst\n3\n")

    assert (0.5, 0.75, 3.0) == read_trace(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "at least two arrivals"),
        ("1\n", "at least two arrivals"),
        ("1\n1\n", "at least two arrivals at different times"),
        ("1\nx\n", "line 2: 'x' is not a number"),
        ("2\n1\n", "line 2: 1 comes before 2"),
        ("1\nnan\n", "line 2: 'nan' is not a finite"),
        ("1\ninf\n", "line 2: 'inf' is not a finite"),
    ],
)
def test_a_bad_trace_is_one_line_with_its_place(content: str, complaint: str, tmp_path: Path):
    """File, line, what was found."""
    path = tmp_path / "trace.txt"
    path.write_text(content)

    with pytest.raises(ScenarioError, match=complaint):
        read_trace(path)


def test_a_trace_file_that_is_missing_is_named(tmp_path: Path):
    """With the system's reason."""
    with pytest.raises(ScenarioError, match=r"trace\.txt: the arrival trace cannot be read"):
        read_trace(tmp_path / "trace.txt")
