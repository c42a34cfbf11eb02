"""When a queue is a burst and when it is overload, on a clock of numbers."""

from __future__ import annotations

import pytest

from reference_engine.clock import NS_PER_S
from reference_engine.standing_queue import StandingQueue

PATIENCE_S = 20.0


def queue(*, place_s: float | None = 0.5, max_wait_s: float | None = 5.0) -> StandingQueue:
    """A place came free every `place_s` until now, which is second 0."""
    made = StandingQueue(max_wait_s=max_wait_s, patience_s=PATIENCE_S)
    if place_s is not None:
        for step in range(-20, 1):
            made.look(1, ns((step - 1) * place_s))
            made.freed(1, ns(step * place_s))
    made.look(0, 0)
    return made


def ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def limit_after(made: StandingQueue, lengths: dict[float, int], at_s: float) -> int | None:
    """How many may wait at `at_s`, the queue having had such lengths from such seconds on."""
    for second, length in lengths.items():
        made.look(length, ns(second))
    return made.max_waiting(ns(at_s))


def test_a_long_queue_is_a_burst_at_first():
    """20 wait for 10 s, and nobody is refused on their account."""
    assert None is limit_after(queue(), {0: 20}, 19.9)


def test_a_wait_that_stays_too_long_is_overload():
    """A place every 0.5 s: within 5 s ten of them come free."""
    assert 10 == limit_after(queue(), {0: 20}, 20.0)


def test_a_queue_that_is_short_enough_may_stand_for_ever():
    """Nine wait, the tenth would for 5 s: allowed, so no queue is cut however long it stands."""
    assert None is limit_after(queue(), {0: 9}, 3_600.0)


def test_refusals_do_not_end_what_they_answer():
    """Once it stands, the queue is held just under its limit, and still counts as standing."""
    assert 10 == limit_after(queue(), {0: 20, 21: 9, 30: 5}, 60.0)


@pytest.mark.parametrize("length", [4, 0])
def test_it_is_over_when_the_wait_is_half_of_the_limit_or_nobody_waits(length):
    """Five places in 2.5 s: four that wait and the newcomer."""
    assert None is limit_after(queue(), {0: 20, 21: length, 22: 20}, 30.0)


def test_an_empty_queue_does_not_stand_however_slowly_places_come_free():
    """One place in 4 s is over half of 5 s for the first who waits."""
    made = queue(place_s=4.0)

    assert 1 == limit_after(made, {0: 1}, 25.0)
    assert None is limit_after(made, {26: 0}, 60.0)


def test_a_profile_without_a_longest_wait_never_calls_it_overload():
    """Then only the number that may wait counts."""
    assert None is limit_after(queue(max_wait_s=None), {0: 1_000}, 3_600.0)


def test_nothing_is_overload_before_a_place_came_free():
    """Nobody knows yet how long a wait is."""
    assert None is limit_after(queue(place_s=None), {0: 1_000}, 3_600.0)


def test_time_in_which_nobody_wants_a_place_says_nothing_of_how_often_one_comes():
    """An hour with nobody, then one who waits for 2 s."""
    made = queue(place_s=2.0)
    made.freed(0, ns(1))
    made.look(1, ns(3_600))
    made.freed(0, ns(3_602))

    assert pytest.approx(2.0, rel=0.05) == made.place_s


def test_a_refusal_is_a_wish_as_well():
    """Where nobody may queue: the place comes 3 s after it was wanted."""
    made = queue(place_s=None)
    made.wanted(ns(1))
    made.look(0, ns(2))
    made.wanted(ns(3))
    made.freed(0, ns(4))

    assert 3.0 == made.place_s


def test_one_long_pause_among_many_places_is_no_other_rate():
    """The guard lets nobody in for 4 s: a wait of 4.5 s becomes one of 6.5 s at most."""
    made = queue()
    made.look(8, ns(0))
    made.freed(8, ns(4))

    assert made.place_s is not None
    assert 9 * made.place_s < 6.5
