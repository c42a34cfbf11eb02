"""What could run now: the whole input of a policy besides the time."""

from __future__ import annotations

from dataclasses import dataclass, field

from reference_engine.batch import NUM_STAGES, Batch, Catalogue, Stage
from reference_engine.clock import NS_PER_MS
from reference_engine.config import Profile

__all__ = ["Decision", "Limits", "ReadySets", "ReadyWork", "Rest"]

# One insertion-ordered set of slots per stage.
ReadySets = tuple[dict[int, None], ...]


def _empty_sets() -> ReadySets:
    return tuple({} for _ in range(NUM_STAGES))


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers of a profile that policies obey (ns, rows, rows x codec frames)."""

    start_slack_ns: int
    startup_rows: int
    startup_slack_ns: int
    codec_work: int
    rescues_in_a_row: int

    @classmethod
    def of(cls, profile: Profile) -> Limits:
        """Read them from a profile."""
        return cls(
            start_slack_ns=int(profile.pacing.start_slack_ms * NS_PER_MS),
            startup_rows=profile.fill.startup_rows,
            startup_slack_ns=int(profile.fill.startup_slack_ms * NS_PER_MS),
            codec_work=profile.fill.codec_work,
            rescues_in_a_row=profile.fill.rescues_in_a_row,
        )


@dataclass(slots=True)
class ReadyWork:
    """Ready slots by stage, and the row-aligned lists that rank them.

    startup, playing: per stage, the slots whose listener has no sound yet, and the others; a slot
        stands in one of these ten sets at most.
    arrival_ns, deadline_ns, latest_start_ns: by slot (see `SlotTable`).
    pending: codec frames made and not yet decoded, by slot, for slots in a codec set.
    history: codec frames that are decoded again with them (0 where the codec keeps its state).
    width: prompt tokens left, by slot, for slots in a prefill set.
    reserve_ns: per stage, the measured time of one step.
    last_turn: by slot, when it last ran (counts turns). last_stage, rescues: of the turns before.

    Policies read and never write. Source: the scheduler; tests build their own.
    """

    catalogue: Catalogue
    limits: Limits
    arrival_ns: list[int]
    deadline_ns: list[int]
    latest_start_ns: list[int]
    pending: list[int]
    history: list[int]
    width: list[int]
    reserve_ns: list[int]
    last_turn: list[int]
    startup: ReadySets = field(default_factory=_empty_sets)
    playing: ReadySets = field(default_factory=_empty_sets)
    last_stage: Stage = Stage.CODEC
    rescues: int = 0


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing should run before `until_ns` (None: until something arrives)."""

    until_ns: int | None


Decision = Batch | Rest
