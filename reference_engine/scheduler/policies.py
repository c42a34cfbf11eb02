"""The policies: pure functions of (ready work, now) that say what runs next.

A policy picks an anchor; the anchor picks the stage and the width; compatible work of others
fills the batch. To add one, write a function with this signature and name it in `POLICIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from reference_engine.batch import Batch, Stage, Urgency
from reference_engine.config import PolicyName
from reference_engine.scheduler.ready import Decision, ReadyWork, Rest

__all__ = ["POLICIES", "Policy", "deadline_aware", "fcfs", "round_robin"]

Policy = Callable[[ReadyWork, int], Decision]

# Towards sound: what is nearest to a listener's ear goes first.
_TOWARDS_SOUND = (Stage.CODEC, Stage.PREFILL, Stage.PREDICTOR, Stage.TALKER, Stage.FRAME)
_NOBODY = -1


def deadline_aware(work: ReadyWork, now_ns: int) -> Decision:
    """Rescue, then first sound, then the earliest deadline once it is near enough, else rest.

    A stream is rescued when, after one more step given to somebody else, what is left of its next
    chunk could no longer be made in time. After `rescues_in_a_row` such turns a newcomer gets one,
    so neither side starves. Work that nothing presses waits until its slack is below
    `start_slack_ns`: steps are cheap per row and dear per call, so waiting makes fuller batches
    and leaves the device free for newcomers.
    """
    limits = work.limits
    is_awaited = any(work.startup)
    stage, slot, latest_ns = _most_pressed(work)
    if slot != _NOBODY:
        slack_ns = latest_ns - now_ns
        may_rescue = not is_awaited or work.rescues < limits.rescues_in_a_row
        if may_rescue and slack_ns < _one_other_step(work):
            return _assemble(work, stage, now_ns, anchor=slot, urgency=Urgency.RESCUE)
    if is_awaited:
        stage = next(stage for stage in _TOWARDS_SOUND if work.startup[stage])
        slot = min(work.startup[stage], key=work.arrival_ns.__getitem__)
        return _assemble(work, stage, now_ns, anchor=slot, urgency=Urgency.STARTUP)
    if slot == _NOBODY:
        return Rest(None)
    if latest_ns - now_ns <= limits.start_slack_ns:
        return _assemble(work, stage, now_ns, anchor=slot, urgency=Urgency.STEADY)
    return Rest(latest_ns - limits.start_slack_ns)


def round_robin(work: ReadyWork, now_ns: int) -> Decision:
    """Each stage in turn, and within it the rows that ran longest ago."""
    del now_ns
    for step in range(1, len(Stage) + 1):
        stage = Stage((work.last_stage + step) % len(Stage))
        slots = [*work.startup[stage], *work.playing[stage]]
        if slots:
            slots.sort(key=work.last_turn.__getitem__)
            return _take(work, stage, slots, width_of=slots[0], urgency=Urgency.TURN)
    return Rest(None)


def fcfs(work: ReadyWork, now_ns: int) -> Decision:
    """The request that came first; others at the same stage come along in order of arrival."""
    del now_ns
    oldest, stage = _NOBODY, Stage.CODEC
    for candidate in Stage:
        for sets in (work.startup, work.playing):
            for slot in sets[candidate]:
                if oldest == _NOBODY or work.arrival_ns[slot] < work.arrival_ns[oldest]:
                    oldest, stage = slot, candidate
    if oldest == _NOBODY:
        return Rest(None)
    slots = [*work.startup[stage], *work.playing[stage]]
    slots.sort(key=work.arrival_ns.__getitem__)
    return _take(work, stage, slots, width_of=oldest, urgency=Urgency.TURN)


def _most_pressed(work: ReadyWork) -> tuple[Stage, int, int]:
    """The playing stream whose work must start soonest: its stage, slot, and latest start.

    In the codec set a stream also waits for those before it: `codec_work` limits a call.
    """
    latest = work.latest_start_ns
    best_stage, best_slot, best_ns = Stage.CODEC, _NOBODY, 0
    for stage in _TOWARDS_SOUND:
        ready = work.playing[stage]
        if not ready:
            continue
        slot = min(ready, key=latest.__getitem__)
        at_ns = latest[slot]
        if stage is Stage.CODEC and len(ready) > 1:
            at_ns = min(at_ns, _latest_for_all(work))
        if best_slot == _NOBODY or at_ns < best_ns:
            best_stage, best_slot, best_ns = stage, slot, at_ns
    return best_stage, best_slot, best_ns


def _latest_for_all(work: ReadyWork) -> int:
    """When the codec must start so that everyone in its playing set is in time."""
    ready, latest = work.playing[Stage.CODEC], work.latest_start_ns
    pending, history, call_ns = work.pending, work.history, work.reserve_ns[Stage.CODEC]
    frames_before, best = 0, latest[next(iter(ready))]
    for slot in sorted(ready, key=latest.__getitem__):
        calls_before = frames_before // work.limits.codec_work
        best = min(best, latest[slot] - calls_before * call_ns)
        frames_before += pending[slot] + history[slot]
    return best


def _one_other_step(work: ReadyWork) -> int:
    """The longest that a turn given to a newcomer holds the device (ns)."""
    reserve_ns = work.reserve_ns
    return max((reserve_ns[stage] for stage in Stage if work.startup[stage]), default=0)


def _assemble(
    work: ReadyWork, stage: Stage, now_ns: int, *, anchor: int, urgency: Urgency
) -> Batch:
    """The anchor's batch: newcomers at its stage by arrival, then streams by latest start.

    While somebody waits for first sound, streams that are not pressed stay out beyond the limit
    of rows, since every row makes the step longer.
    """
    limits, latest = work.limits, work.latest_start_ns
    newcomers = work.startup[stage]
    streams = sorted(work.playing[stage], key=latest.__getitem__)
    room = None
    is_codec_rescue = urgency is Urgency.RESCUE and stage is Stage.CODEC
    if any(work.startup):
        room = limits.startup_rows
        if not is_codec_rescue:  # whose streams are pressed by those before them
            horizon_ns = now_ns + limits.startup_slack_ns
            # The anchor stays: where steps are long it is pressed before it is within the horizon.
            streams = [slot for slot in streams if slot == anchor or latest[slot] < horizon_ns]
    slots = sorted(newcomers, key=work.arrival_ns.__getitem__) if newcomers else []
    if is_codec_rescue:
        # A newcomer's two codec frames would be padded to the stream's whole chunk.
        slots = streams + slots
    else:
        slots += streams
    if slots[0] != anchor:
        slots.remove(anchor)
        slots.insert(0, anchor)
    return _take(work, stage, slots, width_of=anchor, urgency=urgency, room=room)


def _take(
    work: ReadyWork,
    stage: Stage,
    slots: list[int],
    *,
    width_of: int,
    urgency: Urgency,
    room: int | None = None,
) -> Batch:
    """As many of `slots`, in order, as one captured shape holds at the anchor's width."""
    catalogue = work.catalogue
    if stage is not Stage.CODEC and stage is not Stage.PREFILL:
        largest = catalogue.max_rows(stage)
        room = largest if room is None else min(room, largest)
        return catalogue.batch(stage, slots[:room], urgency=urgency)
    sizes = work.pending if stage is Stage.CODEC else work.width
    width = catalogue.width_bucket(stage, sizes[width_of])
    assert width is not None, "admission refuses what no bucket covers"
    room = catalogue.max_rows(stage, width)
    if stage is Stage.CODEC:
        row_work = width + work.history[width_of]
        room = min(room, max(1, work.limits.codec_work // row_work))
    slots = [slot for slot in slots if sizes[slot] <= width][:room]
    counts = [sizes[slot] for slot in slots]
    return catalogue.batch(stage, slots, width=width, counts=counts, urgency=urgency)


POLICIES: Mapping[PolicyName, Policy] = MappingProxyType(
    {
        PolicyName.DEADLINE_AWARE: deadline_aware,
        PolicyName.ROUND_ROBIN: round_robin,
        PolicyName.FCFS: fcfs,
    }
)
