"""Who gets the next free inference thread."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engines.embedded.scheduler import (
    ReadyWork,
    deadline_first,
    fifo,
    next_playback_deadline_ns,
    retry_after_s,
)

READY = st.lists(
    st.builds(
        ReadyWork,
        arrival_seq=st.integers(0, 50),
        playback_deadline_ns=st.none() | st.integers(0, 10**12),
    ),
    min_size=1,
    unique_by=lambda work: work.arrival_seq,
)


def test_a_listener_without_sound_goes_before_one_who_runs_dry():
    """First sound comes first, however late the other's next chunk is."""
    silent = ReadyWork(7)
    dry = ReadyWork(1, playback_deadline_ns=0)

    assert silent == deadline_first([dry, silent])


def test_of_two_silent_listeners_the_older_goes_first():
    """Waiting requests are served in order of arrival."""
    assert ReadyWork(2) == deadline_first([ReadyWork(5), ReadyWork(2), ReadyWork(9)])


def test_of_two_playing_listeners_the_one_who_runs_dry_first_goes_first():
    """The earliest playback deadline wins, whoever came first."""
    later, sooner = ReadyWork(1, 900), ReadyWork(2, 500)

    assert sooner == deadline_first([later, sooner])


def test_equal_deadlines_go_to_the_older_request():
    """Ties are broken by arrival, so the choice never depends on the order of the list."""
    older, younger = ReadyWork(1, 500), ReadyWork(2, 500)

    assert older == deadline_first([younger, older])


def test_fifo_stays_with_the_oldest_request():
    """A playing request keeps its thread although a younger one waits for sound."""
    oldest = ReadyWork(1, playback_deadline_ns=10**12)

    assert oldest == fifo([ReadyWork(2), oldest, ReadyWork(3, 1)])


@given(READY)
def test_no_silent_listener_is_passed_over(ready):
    """Whenever one waits for first sound, the choice is such a one."""
    chosen = deadline_first(ready)

    assert (chosen.playback_deadline_ns is None) == any(
        work.playback_deadline_ns is None for work in ready
    )


@given(READY, st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_the_list(ready, random):
    """Both rules are functions of the set of ready work."""
    shuffled = random.sample(ready, len(ready))

    assert (deadline_first(ready), fifo(ready)) == (deadline_first(shuffled), fifo(shuffled))


def test_the_first_chunk_starts_the_listener():
    """150 ns of audio handed over at 1000 lasts until 1150."""
    assert 1150 == next_playback_deadline_ns(None, 1000, audio_ns=150)


def test_a_chunk_in_time_extends_playback_from_where_it_ends():
    """The listener still has audio until 1150, so 100 more last until 1250."""
    assert 1250 == next_playback_deadline_ns(1150, 1100, audio_ns=100)


def test_a_late_chunk_restarts_playback_when_it_comes():
    """A stall is not owed back: from 1300, 100 ns last until 1400."""
    assert 1400 == next_playback_deadline_ns(1150, 1300, audio_ns=100)


def test_the_retry_hint_is_half_the_queue_in_service_times():
    """64 open requests of 500 ms on 2 threads: 32 have ended after 8 s."""
    assert 8 == retry_after_s(64, 2, mean_service_ns=500_000_000)


def test_the_retry_hint_stays_within_its_bounds():
    """At least a second before anything was measured, at most a minute."""
    assert [1, 60] == [
        retry_after_s(1, 1, mean_service_ns=0),
        retry_after_s(10_000, 1, mean_service_ns=10**9),
    ]
