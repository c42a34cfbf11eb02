"""The ledger of slots and positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_engine.cache import SlotLedger


def test_slots_are_given_out_from_the_lowest_and_never_the_padding_slot():
    """1, 2, 3, then nothing."""
    ledger = SlotLedger(3, positions_per_slot=10)

    assert [1, 2, 3, None] == [ledger.take(5) for _ in range(4)]


def test_a_released_slot_is_the_next_one_given_out():
    """The lowest free slot comes first."""
    ledger = SlotLedger(3, positions_per_slot=10)
    for _ in range(3):
        ledger.take(1)
    ledger.release(3)
    ledger.release(1)

    assert 1 == ledger.take(1)


def test_a_request_waits_for_positions_although_slots_are_free():
    """A budget of 12: ten are reserved, five must wait, two may enter."""
    ledger = SlotLedger(4, positions_per_slot=10, budget_positions=12)
    ledger.take(10)

    assert ledger.take(5) is None
    assert 2 == ledger.take(2)


def test_a_request_that_could_never_fit_is_a_mistake():
    """Waiting would not help, so it is told at once."""
    ledger = SlotLedger(2, positions_per_slot=10, budget_positions=8)

    assert 8 == ledger.largest_request
    with pytest.raises(ValueError, match=r"9 positions: expected 1\.\.8"):
        ledger.take(9)


def test_a_slot_cannot_be_released_twice():
    """It would otherwise be handed to two owners."""
    ledger = SlotLedger(2, positions_per_slot=10)
    ledger.take(1)
    ledger.release(1)

    with pytest.raises(ValueError, match="slot 1 is not taken"):
        ledger.release(1)


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(1, 10)), max_size=60))
def test_nothing_is_lost_or_doubled(steps: list[tuple[bool, int]]):
    """Any sequence of takes and releases: owners are distinct, sums agree, the end is the start."""
    ledger = SlotLedger(4, positions_per_slot=10, budget_positions=25)
    owned: dict[int, int] = {}
    for is_take, number in steps:
        if is_take:
            slot = ledger.take(number)
            if slot is not None:
                assert slot not in owned
                assert 1 <= slot <= 4
                owned[slot] = number
        elif owned:
            slot = sorted(owned)[number % len(owned)]
            ledger.release(slot)
            del owned[slot]
        assert sum(owned.values()) == ledger.positions_reserved <= 25
        assert len(owned) == ledger.num_taken == 4 - ledger.num_free
    for slot in owned:
        ledger.release(slot)

    assert 4 == ledger.num_free
    assert 0 == ledger.positions_reserved
