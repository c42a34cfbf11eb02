"""Who may enter: the queue, and the length at which a request is a runaway.

A request is refused at once if it can never fit, and otherwise waits in order
until a slot is free, its worst case fits the budget of positions and the device has time for one
stream more; nothing that was admitted is ever evicted, so no stream has to be rebuilt.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from reference_engine.batch import Catalogue, Stage
from reference_engine.cache import SlotLedger
from reference_engine.config import Profile
from reference_engine.errors import UnsayableError
from reference_engine.messages import Job, RequestStats, Sink

__all__ = ["Admission", "Waiting"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue, with the codec frames it may make at most."""

    job: Job
    sink: Sink
    stats: RequestStats
    max_frames: int


class Admission:
    """The queue in front of one engine's slots and positions."""

    def __init__(self, profile: Profile, catalogue: Catalogue) -> None:
        self._profile, self._catalogue = profile, catalogue
        self._ledger = SlotLedger(
            profile.slots,
            positions_per_slot=profile.positions_per_slot,
            budget_positions=profile.kv_budget_positions,
        )
        self.queue: deque[Waiting] = deque()

    @property
    def num_active(self) -> int:
        """Slots in use."""
        return self._ledger.num_taken

    @property
    def positions_held(self) -> int:
        """Talker positions promised to the requests in progress."""
        return self._ledger.positions_reserved

    def _max_frames(self, job: Job) -> int:
        """The codec frames a request may make, after all guards.

        A text still to come counts for as long as `max_new_tokens` and the slot's room allow.
        """
        limit = job.max_new_tokens - 1
        if limit < 1:
            raise UnsayableError(
                f"max_new_tokens: {job.max_new_tokens} makes no codec frame; at least 2 are needed"
            )
        room = self._ledger.largest_request - job.num_prompt_positions
        if job.is_text_complete:
            limit = min(limit, self._guard(job.num_characters))
        else:
            limit = min(limit, max(room, 1))
        if limit > room:
            raise UnsayableError(
                f"the request may need {job.num_prompt_positions + limit} positions, and a slot has"
                f" {room + job.num_prompt_positions}; shorten the text or lower max_new_tokens"
            )
        return limit

    def _guard(self, num_characters: int) -> int:
        guards = self._profile.guards
        return guards.min_frames + math.ceil(guards.frames_per_character * num_characters)

    def limit_once_known(self, job: Job, num_characters: int) -> int:
        """The codec frames of a request whose text has come to its end."""
        return min(self._max_frames(job), self._guard(num_characters))

    def check(self, job: Job) -> int:
        """The codec frames a request may make at most.

        Raises:
            UnsayableError: what it may need can never fit, or no captured shape covers it.
        """
        tokens = job.num_prefill_positions
        if tokens and self._catalogue.width_bucket(Stage.PREFILL, tokens) is None:
            raise UnsayableError(
                f"the prompt has {tokens} rows, the largest captured prefill has"
                f" {self._catalogue.max_width(Stage.PREFILL)}; shorten the text or instruction"
            )
        largest = max(job.chunk_ramp or (0,))
        if self._catalogue.width_bucket(Stage.CODEC, largest) is None:
            raise UnsayableError(
                f"a chunk of {largest} codec frames was asked for, the largest captured has"
                f" {self._catalogue.max_width(Stage.CODEC)}; ask for smaller chunks"
            )
        return self._max_frames(job)

    def take(self) -> tuple[int, Waiting] | None:
        """A slot for the request in front, or None while it does not fit.

        Nobody overtakes: a large request is not starved by small ones behind it.
        """
        if not self.queue:
            return None
        waiting = self.queue[0]
        slot = self._ledger.take(waiting.job.num_prompt_positions + waiting.max_frames)
        if slot is None:
            return None
        self.queue.popleft()
        return slot, waiting

    def release(self, slot: int) -> None:
        """The slot is free, and so are its positions."""
        self._ledger.release(slot)

    def drop(self, request_id: str) -> Waiting | None:
        """Take a request out of the queue."""
        for waiting in self.queue:
            if waiting.job.request_id == request_id:
                self.queue.remove(waiting)
                return waiting
        return None
