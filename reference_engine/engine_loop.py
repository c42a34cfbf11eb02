"""One scheduling turn after another: commands in, one step, chunks out.

`turn` is the whole of the loop's logic; `engine.Engine` calls it from a thread, the simulator and
the tests call it by hand on a virtual clock. Failures are per request: a step that raises ends the
rows it names, a row that is not finite ends that row, and the loop goes on.

Within a turn the host waits for the device once: the step is launched, the row flags of the step
before are read beside it, then its end is awaited and its results are taken.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from reference_engine.admission import Admission, Waiting
from reference_engine.batch import Batch, Catalogue, Stage, Urgency
from reference_engine.clock import Clock
from reference_engine.config import EosRead, Profile
from reference_engine.delivery import Delivery, Ending, Report, Router
from reference_engine.errors import StepError
from reference_engine.load import LoadModel
from reference_engine.messages import AppendText, Command, EndReason
from reference_engine.meters import Meters
from reference_engine.runner import RowFlag, Runner
from reference_engine.scheduler.ready import Rest
from reference_engine.scheduler.scheduler import DecodedRow, Scheduler
from reference_engine.scheduler.trace import DecisionTrace
from reference_engine.sequence import UNLIMITED, Sequence
from reference_engine.standing_queue import StandingQueue

__all__ = ["EngineLoop"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Flagged:
    """A launch whose row flags are still to be read."""

    stage: Stage
    slots: list[int]
    epochs: list[int]


class EngineLoop:
    """What one thread does for one device.

    Args:
        profile: how to serve.
        runner: who runs the steps.
        clock: real or virtual.
        make_delivery: builds the delivery around the loop's router.
        trace: where decisions are written down, if anywhere.

    Other threads leave commands in `_incoming` and reports in `_reports`, and take part in
    `_in_system` under the lock; everything else belongs to the thread that calls `turn`.
    """

    def __init__(
        self,
        profile: Profile,
        runner: Runner,
        clock: Clock,
        *,
        make_delivery: Callable[[Router], Delivery],
        trace: DecisionTrace | None = None,
    ) -> None:
        self.profile = profile
        self.catalogue = catalogue = Catalogue(profile)
        self.meters = Meters()
        self.admission = Admission(profile, catalogue)
        self.scheduler = Scheduler(
            profile, catalogue, text_lookahead=runner.text_lookahead, trace=trace
        )
        self.load = LoadModel(profile, catalogue, self.scheduler.reserves)
        self.router = Router(profile, clock, self._take_report)
        self._delivery = make_delivery(self.router)
        self._runner, self._clock = runner, clock
        self._lock = threading.Lock()
        self._wakeup = threading.Event()
        self._incoming: deque[Waiting | Command] = deque()
        self._reports: deque[Report] = deque()
        self._in_system: set[str] = set()
        self._by_id: dict[str, Sequence] = {}
        self._early_text: dict[str, list[AppendText]] = {}
        self._text: dict[int, tuple[int, int]] = {}  # slot -> tokens, characters known so far
        self._flagged: deque[_Flagged] = deque()
        self._doomed: dict[int, str] = {}
        self._epoch = 0
        self.standing_queue = StandingQueue(
            max_wait_s=profile.max_wait_s, patience_s=profile.standing_queue_s
        )

    def _take_report(self, report: Report) -> None:
        """From the delivery's thread."""
        self._reports.append(report)
        self._wakeup.set()

    def turn(self) -> Rest | None:
        """One scheduling turn. None: something ran, look again; else how long to rest."""
        self._take_commands()
        self._take_reports()
        self._check_delivery()
        self._admit()
        decision = self.scheduler.choose(self._clock.now_ns())
        if isinstance(decision, Batch):
            self._run(decision)
            return None
        if self._flagged:
            self._read_flags(None)
            self._finish_empty()
            return None
        return decision

    def _take_commands(self) -> None:
        while self._incoming:
            command = self._incoming.popleft()
            if isinstance(command, Waiting):
                self.admission.queue.append(command)
            elif isinstance(command, AppendText):
                self._extend(command)
            else:
                self._cancel(command.request_id)

    def _take_reports(self) -> None:
        table = self.scheduler.table
        while self._reports:
            report = self._reports.popleft()
            if table.epoch[report.slot] != report.epoch:
                continue  # over since
            if report.reason is not None:
                self._count_end(report.reason)
                self._release(report.slot)
                continue
            self.scheduler.routed(
                report.slot,
                num_samples=report.num_samples,
                routed_ns=report.routed_ns,
                now_ns=self._clock.now_ns(),
            )

    def _check_delivery(self) -> None:
        lost = self._delivery.recover()
        if lost is None:
            return
        self.meters.num_delivery_deaths += 1
        _LOG.error("the delivery thread died and was replaced; %d requests lost audio", len(lost))
        for sequence in lost:
            self._fail_sequence(sequence, "the delivery of a chunk was lost")

    def _admit(self) -> None:
        while self._has_time() and (taken := self.admission.take()) is not None:
            slot, waiting = taken
            self._epoch += 1
            now_ns = self._clock.now_ns()
            job, stats = waiting.job, waiting.stats
            sequence = Sequence(job, waiting.sink, slot, self._epoch, stats)
            stats.admitted_ns = now_ns
            try:
                self._runner.admit(slot, job)
            except Exception as fault:  # this request's own; whatever it is, the loop goes on
                self.admission.release(slot)
                self._forget(sequence.job.request_id)
                self._end(sequence, EndReason.FAILED, f"admission: {fault}")
                continue
            self._by_id[job.request_id] = sequence
            self._text[slot] = (job.num_text_tokens, job.num_characters)
            self.scheduler.admit(sequence, max_frames=waiting.max_frames, now_ns=now_ns)
            for command in self._early_text.pop(job.request_id, ()):
                self._extend(command)
        self.standing_queue.look(len(self.admission.queue), self._clock.now_ns())

    def _has_time(self) -> bool:
        """Whether the device can keep the request in front fed beside those in progress."""
        has_nobody = not self.admission.queue or not self.admission.num_active
        if has_nobody or self.profile.max_load is None:
            return True
        ramp, first = self.admission.queue[0].job.chunk_ramp, self.load.first_frames
        playing = self.scheduler.chunk_sizes(unplanned=first)
        return self.load.has_time_for([*playing, first if ramp is None else ramp[0]])

    def _extend(self, command: AppendText) -> None:
        sequence = self._by_id.get(command.request_id)
        if sequence is None:
            if command.request_id in self._in_system:
                self._early_text.setdefault(command.request_id, []).append(command)
            return
        slot = sequence.slot
        tokens, characters = self._text[slot]
        known = (tokens + command.num_tokens, characters + command.num_characters)
        self._text[slot] = known
        try:
            self._runner.append_text(slot, command.tokens, is_end=command.is_end)
        except Exception as fault:  # this request's own text; the loop goes on
            self._fail_sequence(sequence, f"text: {fault}")
            return
        now_ns = self._clock.now_ns()
        if command.is_end:
            limit = self.admission.limit_once_known(sequence.job, known[1])
            self.scheduler.limit(slot, limit)
        self.scheduler.extend_text(
            slot, num_tokens=known[0], is_complete=command.is_end, now_ns=now_ns
        )

    def _cancel(self, request_id: str) -> None:
        sequence = self._by_id.get(request_id)
        if sequence is not None:
            self._release(sequence.slot)
            self._end(sequence, EndReason.CANCELLED, "")
            return
        waiting = self.admission.drop(request_id)
        if waiting is not None:
            self._forget(request_id)
            sequence = Sequence(waiting.job, waiting.sink, 0, 0, waiting.stats)
            self._end(sequence, EndReason.CANCELLED, "")

    # -- one step ----------------------------------------------------------------------------------

    def _run(self, batch: Batch) -> None:
        start_ns = self._clock.now_ns()
        wants_flags = self._wants_flags(batch)
        self._count_split(batch)
        try:
            self._runner.launch(batch, wants_flags=wants_flags)
            # Beside the step that runs: the flags of the one before it.
            while self._flagged:
                self._read_flags(batch)
            if wants_flags:
                epoch = self.scheduler.table.epoch
                epochs = [epoch[slot] for slot in batch.slots]
                self._flagged.append(_Flagged(batch.shape.stage, batch.slots, epochs))
            self._runner.wait()
        except StepError as fault:
            self._step_failed(batch, list(fault.slots), str(fault))
            return
        except Exception as fault:  # the whole batch is in doubt
            _LOG.exception("a %s step failed", batch.stage.name.lower())
            self._step_failed(batch, batch.slots, f"{type(fault).__name__}: {fault}")
            return
        now_ns = self._clock.now_ns()
        self._measure(batch, start_ns, now_ns)
        if batch.shape.stage is Stage.CODEC:
            self._took_codec(batch, now_ns)
        else:
            self.scheduler.took(batch, now_ns)
        if self._doomed:
            self._fail_doomed()
        self._finish_empty()
        if wants_flags and self.profile.eos_read is EosRead.BLOCKING:
            self._read_flags(None)
            self._finish_empty()

    def _count_split(self, batch: Batch) -> None:
        shape, work = batch.shape, self.scheduler.work
        num_ready = len(work.startup[shape.stage]) + len(work.playing[shape.stage])
        num_taken = len(batch.slots)
        if num_ready > num_taken == self.catalogue.max_rows(shape.stage, shape.width):
            self.meters.num_split += 1

    def _wants_flags(self, batch: Batch) -> bool:
        """Whether any row may end at this step; else the host reads nothing."""
        if batch.shape.stage is not Stage.FRAME and batch.shape.stage is not Stage.TALKER:
            return False
        made, eos_from = self.scheduler.table.made, self.scheduler.table.eos_from
        return any(made[slot] >= eos_from[slot] for slot in batch.slots)

    def _measure(self, batch: Batch, start_ns: int, now_ns: int) -> None:
        duration_ns = now_ns - start_ns
        self.scheduler.reserves.measured(batch.shape.stage, duration_ns)
        self.load.measured(batch.shape, duration_ns)
        self.meters.step(batch, duration_ns)
        if batch.urgency is Urgency.RESCUE:
            self.meters.num_rescues += 1
        sequence = self.scheduler.table.sequence(batch.anchor)
        if sequence.stats.first_step_ns is None:
            for slot in batch.slots:
                stats = self.scheduler.table.sequence(slot).stats
                stats.first_step_ns = stats.first_step_ns or start_ns

    def _took_codec(self, batch: Batch, now_ns: int) -> None:
        handle = self._runner.pcm()
        rows = self.scheduler.took_codec(batch, now_ns)
        for row in rows:
            stats = row.sequence.stats
            stats.first_codec_ns = stats.first_codec_ns or now_ns
        self._delivery.submit(
            handle, [row for row in rows if row.sequence.slot not in self._doomed]
        )
        for row in rows:
            if row.is_last and row.sequence.slot not in self._doomed:
                self._finished(row)

    def _finished(self, row: DecodedRow) -> None:
        self._count_end(EndReason.COMPLETE if row.is_complete else EndReason.LENGTH)
        self._release(row.sequence.slot)

    def _finish_empty(self) -> None:
        """End the requests that turned out to have nothing left to decode."""
        finished = self.scheduler.finished
        while finished:
            row = self.scheduler.last_row_of(finished.pop())
            self._delivery.submit(None, [row])
            self._finished(row)

    def _read_flags(self, in_flight: Batch | None) -> None:
        """Take note of rows that ended or went bad one step ago."""
        flagged = self._flagged.popleft()
        flags = self._runner.read_flags()
        if not any(flags):
            return
        running = frozenset(in_flight.slots if in_flight is not None else ())
        table = self.scheduler.table
        for slot, epoch, flag in zip(flagged.slots, flagged.epochs, flags, strict=True):
            if not flag or table.epoch[slot] != epoch or table.end_frame[slot] != UNLIMITED:
                continue
            if flag & RowFlag.BAD:
                self._doom(slot, "its numbers were not finite", is_in_flight=slot in running)
            elif table.eos_from[slot] != UNLIMITED:
                self.scheduler.ended(
                    slot,
                    flagged.stage,
                    is_in_flight=slot in running,
                    now_ns=self._clock.now_ns(),
                )

    # -- endings -----------------------------------------------------------------------------------

    def _doom(self, slot: int, text: str, *, is_in_flight: bool) -> None:
        """Fail a row now, or as soon as the step that it takes part in is over."""
        if is_in_flight:
            self._doomed[slot] = text
        else:
            self._fail_sequence(self.scheduler.table.sequence(slot), text)

    def _fail_doomed(self) -> None:
        doomed, self._doomed = self._doomed, {}
        for slot, text in doomed.items():
            self._fail_sequence(self.scheduler.table.sequence(slot), text)

    def _step_failed(self, batch: Batch, slots: list[int], text: str) -> None:
        self.meters.num_step_faults += 1
        if self._flagged and self._flagged[-1].slots is batch.slots:
            self._flagged.pop()  # a step that failed has no flags
        self._doomed = {slot: self._doomed.get(slot, text) for slot in {*slots, *self._doomed}}
        self._fail_doomed()

    def _fail_sequence(self, sequence: Sequence, text: str) -> None:
        # Slot 0 and epoch 0: it never had a slot.
        if sequence.slot and self.scheduler.table.epoch[sequence.slot] == sequence.epoch:
            self._release(sequence.slot)
        self._end(sequence, EndReason.FAILED, text)

    def _end(self, sequence: Sequence, reason: EndReason, text: str) -> None:
        self._count_end(reason)
        self._delivery.end(Ending(sequence, reason, text))

    def _count_end(self, reason: EndReason) -> None:
        self.meters.ends[reason] += 1

    def _release(self, slot: int) -> None:
        """Give the slot back; whoever had it is no longer in the system."""
        sequence = self.scheduler.table.sequence(slot)
        self.standing_queue.freed(len(self.admission.queue), self._clock.now_ns())
        self.scheduler.remove(slot)
        self.admission.release(slot)
        self._runner.release(slot)
        del self._text[slot]
        self._forget(sequence.job.request_id)

    def _forget(self, request_id: str) -> None:
        self._by_id.pop(request_id, None)
        self._early_text.pop(request_id, None)
        with self._lock:
            self._in_system.discard(request_id)

    def _end_all(self, reason: EndReason, text: str) -> None:
        """End everybody and give every slot back."""
        self._take_commands()
        for sequence in list(self._by_id.values()):
            self._release(sequence.slot)
            self._end(sequence, reason, text)
        self._end_queue(reason, text)
        self._flagged.clear()
        self._doomed.clear()

    def _abandon_all(self, text: str) -> None:
        """Tell everybody, and leave the device alone: it takes no more commands."""
        for sequence in list(self._by_id.values()):
            self._forget(sequence.job.request_id)
            self._end(sequence, EndReason.FAILED, text)
        self._take_commands()
        self._end_queue(EndReason.FAILED, text)

    def _end_queue(self, reason: EndReason, text: str) -> None:
        while self.admission.queue:
            waiting = self.admission.queue.popleft()
            self._forget(waiting.job.request_id)
            self._end(Sequence(waiting.job, waiting.sink, 0, 0, waiting.stats), reason, text)
