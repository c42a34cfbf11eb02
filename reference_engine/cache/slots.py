"""Which slots are free, and how many talker positions their owners may still come to need.

The device state is allocated once; who owns which part of it is decided here, on integers. Slot 0
is the padding slot and is never handed out.
"""

from __future__ import annotations

import heapq

__all__ = ["SlotLedger"]


class SlotLedger:
    """Free slots and reserved positions of one engine.

    A request reserves its worst case (prompt rows and codec frames) when it takes a slot, so
    nothing admitted is ever evicted for room. Under a budget smaller than all slots together, long
    requests wait although slots are free.
    """

    def __init__(
        self, num_slots: int, *, positions_per_slot: int, budget_positions: int | None = None
    ) -> None:
        """Start with slots `1 .. num_slots` free.

        Args:
            num_slots: slots to hand out, the padding slot not counted.
            positions_per_slot: what one slot holds at most.
            budget_positions: what all owners together may reserve; everything where None.
        """
        if num_slots < 1 or positions_per_slot < 1:
            raise ValueError("a ledger needs at least one slot and one position")
        self._num_slots = num_slots
        self._positions_per_slot = positions_per_slot
        self._budget = (
            num_slots * positions_per_slot if budget_positions is None else budget_positions
        )
        # The lowest free slot first: used rows stay together.
        self._free = list(range(1, num_slots + 1))
        self._reserved: dict[int, int] = {}
        self._positions_reserved = 0

    @property
    def num_free(self) -> int:
        """Slots without an owner."""
        return len(self._free)

    @property
    def num_taken(self) -> int:
        """Slots with an owner."""
        return len(self._reserved)

    @property
    def positions_reserved(self) -> int:
        """Positions all owners may come to need."""
        return self._positions_reserved

    @property
    def largest_request(self) -> int:
        """Positions of the largest request that could ever be taken."""
        return min(self._positions_per_slot, self._budget)

    def take(self, num_positions: int) -> int | None:
        """Give out the lowest free slot, or None while slots or positions do not suffice.

        Raises:
            ValueError: no positions, or more than could ever be given: waiting would not help.
        """
        if not 1 <= num_positions <= self.largest_request:
            raise ValueError(f"{num_positions} positions: expected 1..{self.largest_request}")
        if not self._free or self._positions_reserved + num_positions > self._budget:
            return None
        slot = heapq.heappop(self._free)
        self._reserved[slot] = num_positions
        self._positions_reserved += num_positions
        return slot

    def release(self, slot: int) -> None:
        """Take a slot and its positions back.

        Raises:
            ValueError: the slot has no owner; a double release would hand it out twice.
        """
        if slot not in self._reserved:
            raise ValueError(f"slot {slot} is not taken")
        self._positions_reserved -= self._reserved.pop(slot)
        heapq.heappush(self._free, slot)
