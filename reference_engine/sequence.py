"""A request in progress, and the row-aligned table of what the scheduler knows about each slot.

The table is plain lists indexed by slot: a scheduling turn touches a few integers per row and
makes no object per row. Every list has `num_slots` entries; slot 0 is padding and belongs to
nobody. Only the scheduler writes here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from reference_engine.messages import Job, RequestStats, Sink

__all__ = ["UNLIMITED", "Place", "Sequence", "SlotTable"]

UNLIMITED = 1 << 60


class Place(IntEnum):
    """Where a slot is. The first five are the ready sets, numbered as the stages."""

    PREFILL = 0
    TALKER = 1
    PREDICTOR = 2
    FRAME = 3
    CODEC = 4
    ROUTING = 5  # first sound not yet confirmed by the delivery
    LEADING = 6  # far enough ahead of its listener; in the wake heap
    STARVED = 7  # the next text token is not here yet
    FREE = 8


NUM_READY_PLACES = 5


@dataclass(slots=True)
class Sequence:
    """One admitted request: the cold facts that no step looks at."""

    job: Job
    sink: Sink
    slot: int
    epoch: int
    stats: RequestStats
    chunk_index: int = 0
    chunk_frames: int = 0
    first_routed_ns: int | None = None
    is_length_limited: bool = False


class SlotTable:
    """Row-aligned state of all slots.

    epoch: which admission holds the slot (0: nobody). place: where it is.
    is_playing: its listener has sound. arrival_ns: submission.
    deadline_ns: when its listener runs dry, less the margin (playing only).
    latest_start_ns: when the rest of its next chunk must start at the latest (playing only).
    made, decoded: codec frames generated, and given to the codec.
    stop_at: value of `made` at which something else is to be decided.
    chunk_end: value of `made` at which the next chunk is whole.
    text_limit: codec frames that the text known so far allows.
    max_frames: limit by guards and room. end_frame: number of frames where the model ended.
    eos_from: value of `made` from which the model may end.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.sequences: list[Sequence | None] = [None] * num_slots
        self.epoch = [0] * num_slots
        self.place = [Place.FREE] * num_slots
        self.is_playing = [False] * num_slots
        self.arrival_ns = [0] * num_slots
        self.deadline_ns = [0] * num_slots
        self.latest_start_ns = [0] * num_slots
        self.made = [0] * num_slots
        self.decoded = [0] * num_slots
        self.stop_at = [0] * num_slots
        self.chunk_end = [0] * num_slots
        self.text_limit = [0] * num_slots
        self.max_frames = [0] * num_slots
        self.end_frame = [UNLIMITED] * num_slots
        self.eos_from = [UNLIMITED] * num_slots

    def clear(self, slot: int) -> None:
        """Forget who had the slot."""
        self.sequences[slot] = None
        self.epoch[slot] = 0
        self.place[slot] = Place.FREE
        self.is_playing[slot] = False
        self.end_frame[slot] = UNLIMITED
        self.eos_from[slot] = UNLIMITED

    def sequence(self, slot: int) -> Sequence:
        """Who has the slot; it must be somebody."""
        sequence = self.sequences[slot]
        assert sequence is not None, f"slot {slot} is free"
        return sequence

    def check(self) -> None:
        """Row-aligned lists agree with each other; for tests and the debug build of the loop."""
        for slot in range(1, self.num_slots):
            is_held = self.sequences[slot] is not None
            assert is_held == (self.epoch[slot] != 0) == (self.place[slot] != Place.FREE), slot
            if is_held:
                assert 0 <= self.decoded[slot] <= self.made[slot] <= self.max_frames[slot], slot
                assert self.made[slot] <= self.end_frame[slot], slot
