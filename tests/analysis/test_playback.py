"""The ideal player: starts, stalls, deadlines, all exact."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.playback import (
    IMMEDIATE,
    MediaArrival,
    StartKind,
    StartRule,
    buffer_ms,
    delay_ms,
    simulate_playback,
)

RATE_HZ = 24_000
MS = 1_000_000


def arrival(at_ms: float, audio_ms: float, uncertainty_ms: float = 0) -> MediaArrival:
    return MediaArrival(
        round(at_ms * MS), round(audio_ms * RATE_HZ / 1000), round(uncertainty_ms * MS)
    )


def stalls_of(timeline) -> list[tuple[float, float]]:
    return [(s.start_ms, s.length_ms) for s in timeline.stalls]


SHORT_THEN_LATE = [arrival(100, 80), arrival(400, 640), arrival(900, 640)]


def test_chunk_after_the_buffer_ran_dry_is_one_underrun():
    """A chunk 30 ms too late stalls playback for exactly 30 ms."""
    timeline = simulate_playback([arrival(0, 100), arrival(130, 100)], RATE_HZ)

    assert [(100, 30)] == stalls_of(timeline)


def test_good_first_audio_bought_with_a_stall_shows_the_stall():
    """80 ms at 0.10 s, then 640 ms at 0.40 s: one stall of 220 ms from 0.18 s; ends 1.68 s."""
    timeline = simulate_playback(SHORT_THEN_LATE, RATE_HZ)

    assert [(180, 220)] == stalls_of(timeline)
    assert (100 * MS, 1680 * MS) == (timeline.start_ns, timeline.end_ns)


def test_buffered_start_trades_the_stall_for_delay():
    """The same under `buffer_ms` 200: starts 0.40 s, no stall, ends 1.76 s."""
    timeline = simulate_playback(SHORT_THEN_LATE, RATE_HZ, start=buffer_ms(200))

    assert [] == stalls_of(timeline)
    assert (400 * MS, 1760 * MS) == (timeline.start_ns, timeline.end_ns)
    assert "buffer_ms 200" == str(timeline.start)


def test_delayed_start_counts_from_the_first_playable_arrival():
    """220 ms is the required delay: with it, no stall; with 219, one of 1 ms."""
    enough = simulate_playback(SHORT_THEN_LATE, RATE_HZ, start=delay_ms(220))
    short = simulate_playback(SHORT_THEN_LATE, RATE_HZ, start=delay_ms(219))

    assert 220 * MS == enough.required_delay_ns
    assert [] == stalls_of(enough)
    assert [(399, 1)] == stalls_of(short)


def test_clip_shorter_than_the_buffer_starts_when_it_is_all_in():
    """The player will not wait for media that never comes."""
    timeline = simulate_playback([arrival(10, 50), arrival(60, 50)], RATE_HZ, start=buffer_ms(500))

    assert 60 * MS == timeline.start_ns


def test_onset_in_the_first_chunk_plays_after_its_own_silence():
    """400 ms of zeros at 20 ms, tone at 300: the tone plays at 420."""
    timeline = simulate_playback([arrival(20, 400), arrival(300, 500)], RATE_HZ)

    assert 420 * MS == timeline.sample_played_ns(9600)
    assert [] == stalls_of(timeline)


def test_onset_in_a_late_chunk_plays_when_that_chunk_comes():
    """The same with the tone at 600: dry at 420, 180 ms of stall, plays at 600."""
    timeline = simulate_playback([arrival(20, 400), arrival(600, 500)], RATE_HZ)

    assert 600 * MS == timeline.sample_played_ns(9600)
    assert [(420, 180)] == stalls_of(timeline)


def test_slack_is_the_time_left_before_a_chunk_was_due():
    """The first has none; the second was due 70 ms after it came; the third came 30 ms late."""
    timeline = simulate_playback([arrival(0, 100), arrival(30, 100), arrival(230, 10)], RATE_HZ)

    assert (None, 70 * MS, -30 * MS) == timeline.slack_ns


def test_header_alone_neither_starts_nor_feeds_the_player():
    """Chunks without samples have no due time."""
    timeline = simulate_playback([arrival(50, 0), arrival(300, 10), arrival(305, 0)], RATE_HZ)

    assert 300 * MS == timeline.start_ns
    assert (None, None, None) == timeline.slack_ns
    assert not timeline.is_continuity_applicable


def test_reply_in_one_chunk_has_no_continuity():
    """It is never called smooth."""
    assert not simulate_playback([arrival(5, 900)], RATE_HZ).is_continuity_applicable


def test_stall_below_a_millisecond_is_stored_and_no_underrun():
    """0.5 ms."""
    timeline = simulate_playback([arrival(0, 100), arrival(100.5, 100)], RATE_HZ)

    assert [(100, 0.5)] == stalls_of(timeline)
    assert () == timeline.underruns()


def test_stall_below_its_stamps_uncertainty_is_undecided():
    """20 ms late by a stamp that is uncertain by 25; beside it one that is certain."""
    timeline = simulate_playback(
        [arrival(0, 100), arrival(120, 100, 25), arrival(250, 100, 25)], RATE_HZ
    )

    assert [20] == [s.length_ms for s in timeline.undecided()]
    assert [30] == [s.length_ms for s in timeline.underruns()]


def test_late_stamp_on_the_first_chunk_can_hide_a_stall():
    """Stamped 80, perhaps there at 0: the chunk at 200 came in time, or 40 ms too late."""
    timeline = simulate_playback([arrival(80, 80, 80), arrival(80, 80), arrival(200, 80)], RATE_HZ)

    assert [] == stalls_of(timeline)
    assert [(2, 0, 40 * MS)] == [(s.index, s.least_ns, s.most_ns) for s in timeline.undecided()]
    assert () == timeline.underruns()


def test_doubt_about_the_first_chunk_ends_with_the_slack():
    """Once media has been gained, it does not matter when exactly playback began."""
    timeline = simulate_playback(
        [arrival(80, 200, 80), arrival(160, 80), arrival(270, 80)], RATE_HZ
    )

    assert [] == [s.index for s in timeline.undecided()]


def test_doubt_moves_the_start_under_a_buffer_rule_too():
    """The filling chunk may have come 30 ms before its stamp, so the next may be 30 ms late."""
    timeline = simulate_playback(
        [arrival(0, 50), arrival(60, 50, 30), arrival(160, 80)], RATE_HZ, start=buffer_ms(100)
    )

    assert [(2, 0, 30 * MS)] == [(s.index, s.least_ns, s.most_ns) for s in timeline.undecided()]


def test_stall_of_a_third_of_a_nanosecond_is_exact():
    """At 24 kHz a sample lasts 41,666 2/3 ns; the stall keeps the third."""
    timeline = simulate_playback([MediaArrival(0, 1), MediaArrival(41_667, 1)], RATE_HZ)

    assert [Fraction(1, 3)] == [s.exact_length_ns for s in timeline.stalls]


def test_delivery_in_bursts_is_later_not_smoother():
    """100 ms every 80 ms, or the same in two bursts: neither stalls, the burst starts later."""
    steady = [arrival(100 + 80 * i, 100) for i in range(20)]
    bursts = [arrival(820 if i < 10 else 1620, 100) for i in range(20)]
    first, second = (simulate_playback(path, RATE_HZ) for path in (steady, bursts))

    assert ([], []) == (stalls_of(first), stalls_of(second))
    assert (100 * MS, 820 * MS) == (first.start_ns, second.start_ns)


@pytest.mark.parametrize(
    ("arrivals", "words"),
    [
        ([arrival(5, 1), arrival(4, 1)], "before"),
        ([MediaArrival(0, -1)], "-1 samples"),
        ([], "nothing to play"),
        ([arrival(0, 0)], "nothing to play"),
    ],
)
def test_impossible_arrivals_are_refused(arrivals, words):
    """Backwards, negative, or without a sample."""
    with pytest.raises(ValueError, match=words):
        simulate_playback(arrivals, RATE_HZ)


def test_sample_beyond_the_clip_is_refused():
    """There is no such moment."""
    with pytest.raises(IndexError):
        simulate_playback([arrival(0, 10)], RATE_HZ).sample_played_ns(240)


def traces() -> st.SearchStrategy[list[MediaArrival]]:
    steps = st.lists(
        st.tuples(st.integers(0, 300 * MS), st.integers(0, 9000)), min_size=1, max_size=30
    )
    return steps.filter(lambda s: any(n for _, n in s)).map(_accumulate)


def _accumulate(steps: list[tuple[int, int]]) -> list[MediaArrival]:
    now = 0
    found = []
    for gap, samples in steps:
        now += gap
        found.append(MediaArrival(now, samples))
    return found


STARTS = st.one_of(
    st.just(IMMEDIATE),
    st.integers(0, 900).map(delay_ms),
    st.integers(0, 900).map(buffer_ms),
)
RATES = st.sampled_from([8000, 22_050, 24_000, 44_100])


@settings(max_examples=150, deadline=None)
@given(traces(), RATES, STARTS)
def test_playback_ends_at_start_plus_audio_plus_stalls(arrivals, rate, start):
    """The identity holds exactly, for every trace, rate and start rule."""
    timeline = simulate_playback(arrivals, rate, start=start)
    audio = Fraction(timeline.num_samples * 10**9, rate)
    stalls = sum((s.exact_length_ns for s in timeline.stalls), Fraction(0))

    assert timeline.exact_end_ns == timeline.start_ns + audio + stalls


def _lengths(arrivals: Sequence[MediaArrival], early: Sequence[bool]) -> list[Fraction]:
    """Stalls had the marked chunks come as early as their stamps allow: plain arithmetic."""
    free_ns = Fraction(0)
    found = []
    for index, (each, is_early) in enumerate(zip(arrivals, early, strict=True)):
        came_ns = each.arrival_ns - (each.uncertainty_ns if is_early else 0)
        found.append(max(Fraction(0), came_ns - free_ns) if index else Fraction(0))
        free_ns = (max(free_ns, came_ns) if index else came_ns) + Fraction(
            each.num_samples * 10**9, RATE_HZ
        )
    return found


DOUBTFUL = st.lists(
    st.tuples(st.integers(0, 120), st.integers(1, 100), st.integers(0, 60)), min_size=2, max_size=6
).map(lambda s: [arrival(sum(e[0] for e in s[: i + 1]), m, u) for i, (_, m, u) in enumerate(s)])


@settings(max_examples=60, deadline=None)
@given(DOUBTFUL)
def test_underrun_is_certain_or_undecided_as_trying_every_early_and_late_arrival_says(arrivals):
    """Certain: at least 1 ms however they came. Undecided: in some way, not in all of them."""
    ways = [_lengths(arrivals, early) for early in product([False, True], repeat=len(arrivals))]
    least = [min(way[i] for way in ways) for i in range(len(arrivals))]
    most = [max(way[i] for way in ways) for i in range(len(arrivals))]
    timeline = simulate_playback(arrivals, RATE_HZ)

    assert [i for i, ns in enumerate(least) if ns >= MS] == [s.index for s in timeline.underruns()]
    assert [i for i, (lo, hi) in enumerate(zip(least, most, strict=True)) if lo < MS <= hi] == [
        s.index for s in timeline.undecided()
    ]


@settings(max_examples=150, deadline=None)
@given(traces(), RATES, st.integers(0, 900))
def test_some_stall_happens_exactly_when_the_delay_is_less_than_required(arrivals, rate, value_ms):
    """`required_delay` is the smallest start delay that plays without a gap."""
    required = simulate_playback(arrivals, rate).required_delay_ns
    timeline = simulate_playback(arrivals, rate, start=delay_ms(value_ms))

    # Both are rounded to whole nanoseconds, so a difference below one proves nothing.
    if abs(required - value_ms * MS) > 1:
        assert (required > value_ms * MS) == bool(timeline.stalls)


@settings(max_examples=100, deadline=None)
@given(traces(), RATES)
def test_no_sample_plays_before_it_arrived_nor_before_its_predecessor(arrivals, rate):
    """First samples of chunks play in order and never before their chunk is in."""
    timeline = simulate_playback(arrivals, rate)
    heard = [(timeline.play_ns[i], a.arrival_ns) for i, a in enumerate(arrivals) if a.num_samples]

    assert all(played >= came for played, came in heard)
    assert sorted(played for played, _ in heard) == [played for played, _ in heard]


def test_start_rule_without_a_sensible_value_is_refused():
    """NaN and negative delays."""
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="start rule"):
            StartRule(StartKind.DELAY_MS, value)
