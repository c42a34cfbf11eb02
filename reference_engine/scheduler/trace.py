"""What the policy saw and said, kept so that any decision can be replayed.

One preallocated block of integers, written as a ring of whole decisions: recording allocates
nothing and stops nothing. A replay rebuilds the ready work of one decision and asks the policy
again; the answer must be the same.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from reference_engine.batch import NUM_STAGES, Batch, Catalogue, Shape, Stage, Urgency
from reference_engine.scheduler.policies import Policy
from reference_engine.scheduler.ready import Decision, Limits, ReadyWork, Rest

__all__ = ["DecisionTrace", "TracedDecision"]

_ROW_FIELDS = 9  # set, slot, arrival, deadline, latest start, pending, history, width, last turn
_HEAD_FIELDS = 7 + NUM_STAGES  # rows, now, last stage, rescues, rest flag, chosen, shape; reserves
_NO_TIME = -1


@dataclass(frozen=True, slots=True)
class TracedDecision:
    """One decision: the policy's input, the time, and its answer."""

    work: ReadyWork
    now_ns: int
    decision: Decision


class DecisionTrace:
    """The last decisions of a scheduler.

    Args:
        catalogue, limits: those of the scheduler, which every decision shares.
        max_decisions: decisions kept; older ones are overwritten.
        max_rows: ready slots kept per decision; a decision with more is counted, not kept.
    """

    def __init__(
        self, catalogue: Catalogue, limits: Limits, *, max_decisions: int, max_rows: int
    ) -> None:
        self._catalogue, self._limits = catalogue, limits
        self._max_rows, self._max_decisions = max_rows, max_decisions
        # Answer rows follow input rows: slot and count of each chosen row.
        self._stride = _HEAD_FIELDS + max_rows * (_ROW_FIELDS + 2)
        self._data = array("q", bytes(8 * self._stride * max_decisions))
        self.num_recorded = 0
        self.num_too_large = 0

    def __len__(self) -> int:
        return min(self.num_recorded, self._max_decisions)

    def record(self, work: ReadyWork, now_ns: int, decision: Decision) -> None:
        """Write one decision down. Called once per turn by the scheduler."""
        sets = (*work.startup, *work.playing)
        num_rows = sum(map(len, sets))
        if num_rows > self._max_rows:
            self.num_too_large += 1
            return
        base = (self.num_recorded % self._max_decisions) * self._stride
        self.num_recorded += 1
        head = [num_rows, now_ns, int(work.last_stage), work.rescues, *work.reserve_ns]
        self._write(base, head)
        self._write_answer(base, num_rows, decision)
        at = base + _HEAD_FIELDS
        for index, ready in enumerate(sets):
            for slot in ready:
                row = [
                    index, slot, work.arrival_ns[slot], work.deadline_ns[slot],
                    work.latest_start_ns[slot], work.pending[slot], work.history[slot],
                    work.width[slot], work.last_turn[slot],
                ]  # fmt: skip
                self._write(at, row)
                at += _ROW_FIELDS

    def _write(self, at: int, values: list[int]) -> None:
        self._data[at : at + len(values)] = array("q", values)

    def _write_answer(self, base: int, num_rows: int, decision: Decision) -> None:
        at = base + 4 + NUM_STAGES
        if isinstance(decision, Rest):
            until = _NO_TIME if decision.until_ns is None else decision.until_ns
            self._write(at, [0, until, 0])
            return
        shape = decision.shape
        code = (shape.stage * 4096 + shape.rows) * 4096 + shape.width
        self._write(at, [len(decision.slots), code, int(decision.urgency)])
        counts = decision.counts or [0] * len(decision.slots)
        start = base + _HEAD_FIELDS + num_rows * _ROW_FIELDS
        self._write(start, [*decision.slots, *counts])

    def __getitem__(self, index: int) -> TracedDecision:
        """The decision `index` places after the oldest one kept."""
        if not 0 <= index < len(self):
            raise IndexError(f"decision {index} of {len(self)}")
        oldest = max(0, self.num_recorded - self._max_decisions)
        return self._read(((oldest + index) % self._max_decisions) * self._stride)

    def replay(self, index: int, policy: Policy) -> Decision:
        """Ask a policy what it would have done then."""
        traced = self[index]
        return policy(traced.work, traced.now_ns)

    def _read(self, base: int) -> TracedDecision:
        data = self._data
        num_rows, now_ns, last_stage, rescues = data[base : base + 4]
        work = self._empty_work(base, num_rows)
        work.last_stage, work.rescues = Stage(last_stage), rescues
        work.reserve_ns[:] = data[base + 4 : base + 4 + NUM_STAGES]
        for index in range(num_rows):
            at = base + _HEAD_FIELDS + index * _ROW_FIELDS
            which, slot, *values = data[at : at + _ROW_FIELDS]
            sets = work.startup if which < NUM_STAGES else work.playing
            sets[which % NUM_STAGES][slot] = None
            lists = (
                work.arrival_ns, work.deadline_ns, work.latest_start_ns, work.pending,
                work.history, work.width, work.last_turn,
            )  # fmt: skip
            for column, value in zip(lists, values, strict=True):
                column[slot] = value
        return TracedDecision(work, now_ns, self._read_answer(base, num_rows))

    def _empty_work(self, base: int, num_rows: int) -> ReadyWork:
        rows = (base + _HEAD_FIELDS + index * _ROW_FIELDS for index in range(num_rows))
        num_slots = max((self._data[at + 1] for at in rows), default=0) + 1
        columns: list[list[int]] = [[0] * num_slots for _ in range(7)]
        arrival, deadline, latest, pending, history, width, last_turn = columns
        return ReadyWork(
            catalogue=self._catalogue,
            limits=self._limits,
            arrival_ns=arrival,
            deadline_ns=deadline,
            latest_start_ns=latest,
            pending=pending,
            history=history,
            width=width,
            reserve_ns=[0] * NUM_STAGES,
            last_turn=last_turn,
        )

    def _read_answer(self, base: int, num_rows: int) -> Decision:
        data = self._data
        num_chosen, code, urgency = data[base + 4 + NUM_STAGES : base + _HEAD_FIELDS]
        if not num_chosen:
            return Rest(None if code == _NO_TIME else code)
        start = base + _HEAD_FIELDS + num_rows * _ROW_FIELDS
        slots = list(data[start : start + num_chosen])
        counts = list(data[start + num_chosen : start + 2 * num_chosen])
        stage, rows, width = Stage(code >> 24), code >> 12 & 4095, code & 4095
        if stage not in (Stage.PREFILL, Stage.CODEC):
            counts = []
        return Batch(Shape(stage, rows, width), slots, counts, slots[0], Urgency(urgency))
