"""Moves slots between ready sets as results come in, and asks the policy what runs next.

A slot stands in one ready set, or sleeps, or waits for something. It moves only when a result is
taken, so a turn costs a few integers per row. One caller, one thread; time comes in as an
argument.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from reference_engine.batch import Batch, Catalogue, Stage, Urgency
from reference_engine.clock import NS_PER_S
from reference_engine.config import CodecMode, Profile
from reference_engine.messages import SAMPLE_RATE_HZ, SAMPLES_PER_CODEC_FRAME
from reference_engine.scheduler.chunking import chunk_rule
from reference_engine.scheduler.policies import POLICIES
from reference_engine.scheduler.ready import Decision, Limits, ReadyWork, Rest
from reference_engine.scheduler.reserves import Reserves
from reference_engine.scheduler.trace import DecisionTrace
from reference_engine.sequence import NUM_READY_PLACES, UNLIMITED, Place, Sequence, SlotTable

__all__ = ["CODEC_FRAME_NS", "DecodedRow", "Scheduler"]

CODEC_FRAME_NS = SAMPLES_PER_CODEC_FRAME * NS_PER_S // SAMPLE_RATE_HZ
# The end token is suppressed for the first two tokens (official generation config: min_new_tokens).
_MIN_FRAMES = 2


@dataclass(frozen=True, slots=True)
class DecodedRow:
    """One row of a finished codec step: whose it is, how much of it is real, and if it is the last.

    `row` is None where there was nothing left to decode (the end was learnt one step late).
    """

    sequence: Sequence
    row: int | None
    num_codec_frames: int
    is_last: bool
    is_complete: bool


class Scheduler:
    """The scheduling state of one engine.

    text_lookahead: text tokens beyond its own that a codec frame needs (0 where the text row is
        added at the start of the next step, 1 where a step adds it at its end).
    trace: where decisions are written down, if anywhere.
    """

    def __init__(
        self,
        profile: Profile,
        catalogue: Catalogue,
        *,
        text_lookahead: int = 0,
        trace: DecisionTrace | None = None,
    ) -> None:
        num_slots = profile.slots + 1  # slot 0 is padding
        self.table = table = SlotTable(num_slots)
        self.reserves = Reserves(profile.reserve)
        self.work = ReadyWork(
            catalogue=catalogue,
            limits=Limits.of(profile),
            arrival_ns=table.arrival_ns,
            deadline_ns=table.deadline_ns,
            latest_start_ns=table.latest_start_ns,
            pending=[0] * num_slots,
            history=[0] * num_slots,
            width=[0] * num_slots,
            reserve_ns=self.reserves.ns,
            last_turn=[0] * num_slots,
        )
        self._policy = POLICIES[profile.policy]
        self._rule = chunk_rule(profile.chunks, profile.buckets)
        self._generate = [Place(stage) for stage in catalogue.frame_stages]
        self._max_lead_ns = int(profile.pacing.max_lead_s * NS_PER_S)
        self._margin_ns = int(profile.pacing.margin_ms * 1_000_000)
        self._text_lookahead = text_lookahead
        self._is_redecoding = profile.codec is CodecMode.REDECODE
        self._leading: list[tuple[int, int, int]] = []  # (wake at, slot, epoch)
        self._turn = 0
        self._trace = trace
        self.finished: list[int] = []  # slots that ended with nothing left to decode

    # -- requests come and go ----------------------------------------------------------------------

    def admit(self, sequence: Sequence, *, max_frames: int, now_ns: int) -> None:
        """Put a request into its slot, ready for prefill or, with a stored prefix, to generate."""
        table, slot, job = self.table, sequence.slot, sequence.job
        assert table.place[slot] == Place.FREE
        table.sequences[slot] = sequence
        table.epoch[slot] = sequence.epoch
        table.arrival_ns[slot] = sequence.stats.submitted_ns
        table.made[slot] = table.decoded[slot] = 0
        table.max_frames[slot] = max_frames
        table.is_playing[slot] = False
        self.work.last_turn[slot] = 0
        self._set_text(slot, job.num_text_tokens, is_complete=job.is_text_complete)
        self._plan_chunk(slot, now_ns)
        if job.num_prefill_positions:
            self.work.width[slot] = job.num_prefill_positions
            self._enter(slot, Place.PREFILL)
        else:
            self._settle(slot, now_ns)

    def extend_text(self, slot: int, *, num_tokens: int, is_complete: bool, now_ns: int) -> None:
        """More text is known (`num_tokens` in all); a starved request goes on."""
        self._set_text(slot, num_tokens, is_complete=is_complete)
        self._set_stop(slot)
        if self.table.place[slot] == Place.STARVED:
            self._settle(slot, now_ns)

    def limit(self, slot: int, max_frames: int) -> None:
        """The whole text is known, and allows so many codec frames: never more than before."""
        # A frame may be about to run, so the limit cannot fall below the next one.
        table = self.table
        lowered = max(max_frames, table.made[slot] + 1)
        table.max_frames[slot] = min(table.max_frames[slot], lowered)
        self._set_stop(slot)

    def remove(self, slot: int) -> None:
        """Forget a slot at once, wherever it stands."""
        self._leave(slot)
        self.table.clear(slot)

    def chunk_sizes(self, *, unplanned: int) -> list[int]:
        """Codec frames of the next chunk of every request in progress.

        unplanned: for those whose next chunk waits for what became of the one before.
        """
        table = self.table
        return [
            table.chunk_end[slot] - table.decoded[slot] or unplanned
            for slot in range(1, table.num_slots)
            if table.epoch[slot]
        ]

    # -- what runs next ----------------------------------------------------------------------------

    def choose(self, now_ns: int) -> Decision:
        """Ask the policy. Nothing changes until the batch's results are taken."""
        self._wake(now_ns)
        decision = self._policy(self.work, now_ns)
        if self._trace is not None:
            self._trace.record(self.work, now_ns, decision)
        if isinstance(decision, Rest):
            return self._until_somebody_wakes(decision)
        is_rescue = decision.urgency is Urgency.RESCUE
        self.work.rescues = self.work.rescues + 1 if is_rescue else 0
        self.work.last_stage = decision.shape.stage
        return decision

    # -- results are taken -------------------------------------------------------------------------

    def took(self, batch: Batch, now_ns: int) -> None:
        """A prefill, talker, predictor or frame step is done."""
        self._turn += 1
        stage = batch.shape.stage
        if stage is Stage.PREFILL or stage is Stage.TALKER:
            last_turn = self.work.last_turn
            for slot in batch.slots:
                last_turn[slot] = self._turn
                self._leave(slot)
                if stage is Stage.PREFILL or self.table.stop_at[slot] == 0:
                    self._settle(slot, now_ns)
                else:
                    self._enter(slot, Place.PREDICTOR)
        else:
            self._took_frames(batch.slots, now_ns)

    def _took_frames(self, slots: list[int], now_ns: int) -> None:
        """The hot loop: one codec frame more for every row."""
        table = self.table
        made, stop_at, latest = table.made, table.stop_at, table.latest_start_ns
        last_turn, turn = self.work.last_turn, self._turn
        step_ns = self._frame_ns()
        is_fused = len(self._generate) == 1
        moved = []
        for slot in slots:
            num = made[slot] + 1
            made[slot] = num
            latest[slot] += step_ns
            last_turn[slot] = turn
            if num >= stop_at[slot] or not is_fused:
                moved.append(slot)
        for slot in moved:
            made[slot] = min(made[slot], table.end_frame[slot])
            self._leave(slot)
            self._settle(slot, now_ns)

    def took_codec(self, batch: Batch, now_ns: int) -> list[DecodedRow]:
        """A codec step is done; its rows go to the delivery in this order."""
        self._turn += 1
        rows = []
        table = self.table
        for row, slot in enumerate(batch.slots):
            self._leave(slot)
            self.work.last_turn[slot] = self._turn
            sequence = table.sequence(slot)
            frames = table.made[slot] - table.decoded[slot]
            table.decoded[slot] = table.made[slot]
            sequence.stats.num_codec_frames = table.made[slot]
            is_last = self._is_over(slot)
            is_complete = table.made[slot] >= table.end_frame[slot]
            rows.append(DecodedRow(sequence, row if frames else None, frames, is_last, is_complete))
            if table.is_playing[slot]:
                table.deadline_ns[slot] += frames * CODEC_FRAME_NS
                sequence.chunk_index += 1
                sequence.chunk_frames = frames
            if not is_last and table.is_playing[slot]:
                self._plan_chunk(slot, now_ns)
                self._settle(slot, now_ns)
            else:
                table.place[slot] = Place.ROUTING
        return rows

    def ended(self, slot: int, stage: Stage, *, is_in_flight: bool, now_ns: int) -> None:
        """The model ended at the step of `stage` before this one.

        A codec frame made at or after that step is not real. `is_in_flight` says that the step
        now on the device has this slot too: what it makes is dropped when it is taken.
        """
        table = self.table
        end = table.made[slot] - 1 if stage is Stage.FRAME else table.made[slot]
        table.end_frame[slot] = end
        table.made[slot] = end
        table.stop_at[slot] = 0
        if not is_in_flight:
            self._leave(slot)
            self._settle(slot, now_ns)

    def last_row_of(self, slot: int) -> DecodedRow:
        """The ending of a request that has nothing left to decode (see `finished`)."""
        sequence = self.table.sequence(slot)
        sequence.stats.num_codec_frames = self.table.made[slot]
        return DecodedRow(sequence, None, 0, is_last=True, is_complete=True)

    def routed(self, slot: int, *, num_samples: int, routed_ns: int, now_ns: int) -> None:
        """The delivery says what became of a newcomer's chunk: sound, or silence withheld."""
        table, sequence = self.table, self.table.sequence(slot)
        if num_samples:
            table.is_playing[slot] = True
            table.deadline_ns[slot] = (
                routed_ns + num_samples * NS_PER_S // SAMPLE_RATE_HZ - self._margin_ns
            )
            sequence.chunk_index += 1
            sequence.chunk_frames = table.chunk_end[slot]
            sequence.first_routed_ns = routed_ns
        self._plan_chunk(slot, now_ns)
        self._settle(slot, now_ns)

    # -- inside ------------------------------------------------------------------------------------

    def _frame_ns(self) -> int:
        reserve = self.reserves.ns
        return sum(reserve[place] for place in self._generate)

    def _set_text(self, slot: int, num_tokens: int, *, is_complete: bool) -> None:
        """Codec frames that the known text allows, and from when the model may end."""
        table = self.table
        if is_complete:
            table.text_limit[slot] = UNLIMITED
            is_eos_ignored = table.sequence(slot).job.ignore_eos
            table.eos_from[slot] = UNLIMITED if is_eos_ignored else _MIN_FRAMES
        else:
            # The first codec frame needs only the prompt, which holds the first token.
            table.text_limit[slot] = max(num_tokens - self._text_lookahead, 0)

    def _plan_chunk(self, slot: int, now_ns: int) -> None:
        """Fix the next chunk's length, and from it when its work must start."""
        table, sequence = self.table, self.table.sequence(slot)
        frame_ns, codec_ns = self._frame_ns(), self.reserves.ns[Stage.CODEC]
        slack_ns = table.deadline_ns[slot] - now_ns if table.is_playing[slot] else 0
        ramp = sequence.job.chunk_ramp
        if ramp is not None:
            frames = ramp[min(sequence.chunk_index, len(ramp) - 1)]
        else:
            frames = self._rule(
                sequence.chunk_index, sequence.chunk_frames, slack_ns, frame_ns, codec_ns
            )
        table.chunk_end[slot] = table.decoded[slot] + frames
        table.latest_start_ns[slot] = table.deadline_ns[slot] - frames * frame_ns - codec_ns
        self._set_stop(slot)

    def _set_stop(self, slot: int) -> None:
        table = self.table
        table.stop_at[slot] = min(
            table.chunk_end[slot],
            table.text_limit[slot],
            table.max_frames[slot],
            table.end_frame[slot],
        )

    def _is_over(self, slot: int) -> bool:
        table = self.table
        return table.made[slot] >= min(table.end_frame[slot], table.max_frames[slot])

    def _settle(self, slot: int, now_ns: int) -> None:
        """Put a slot that stands nowhere where it belongs."""
        table = self.table
        made, pending = table.made[slot], table.made[slot] - table.decoded[slot]
        is_starved = made >= table.text_limit[slot]
        if pending and (is_starved or made >= table.chunk_end[slot] or self._is_over(slot)):
            self.work.pending[slot] = pending
            self.work.history[slot] = table.decoded[slot] if self._is_redecoding else 0
            if table.is_playing[slot]:
                # Cut short or not, all that is left to do is the codec call.
                codec_ns = self.reserves.ns[Stage.CODEC]
                table.latest_start_ns[slot] = table.deadline_ns[slot] - codec_ns
            self._enter(slot, Place.CODEC)
        elif self._is_over(slot):
            table.place[slot] = Place.ROUTING
            self.finished.append(slot)
        elif is_starved:
            table.place[slot] = Place.STARVED
        elif (
            table.is_playing[slot]
            and not pending
            and table.deadline_ns[slot] - now_ns > self._max_lead_ns
        ):
            wake_ns = table.deadline_ns[slot] - self._max_lead_ns
            table.place[slot] = Place.LEADING
            heapq.heappush(self._leading, (wake_ns, slot, table.epoch[slot]))
        else:
            self._enter(slot, self._generate[0])

    def _enter(self, slot: int, place: Place) -> None:
        sets = self.work.playing if self.table.is_playing[slot] else self.work.startup
        sets[place][slot] = None
        self.table.place[slot] = place

    def _leave(self, slot: int) -> None:
        place = self.table.place[slot]
        if place < NUM_READY_PLACES:
            sets = self.work.playing if self.table.is_playing[slot] else self.work.startup
            del sets[place][slot]
            self.table.place[slot] = Place.ROUTING

    def _wake(self, now_ns: int) -> None:
        leading, table = self._leading, self.table
        while leading and leading[0][0] <= now_ns:
            _, slot, epoch = heapq.heappop(leading)
            if table.epoch[slot] == epoch and table.place[slot] == Place.LEADING:
                self._plan_chunk(slot, now_ns)
                self._enter(slot, self._generate[0])

    def _until_somebody_wakes(self, rest: Rest) -> Rest:
        if not self._leading:
            return rest
        wake_ns = self._leading[0][0]
        return Rest(wake_ns if rest.until_ns is None else min(wake_ns, rest.until_ns))
