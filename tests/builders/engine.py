"""Builders for the reference engine: a scripted runner, listeners that collect, small profiles.

The scripted runner makes output that is a function of (request, codec frame) alone, so a request
that shared steps with others can be compared with its solo run sample for sample. It also checks
every batch against its own books, as a device would by going wrong.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reference_engine.batch import NUM_STAGES, Batch, Catalogue, Shape, Stage, Urgency
from reference_engine.clock import VirtualClock
from reference_engine.config import Profile, load_profile
from reference_engine.cost_table import CostTable, StageCost, load_costs
from reference_engine.delivery import Delivery, InlineDelivery, Router
from reference_engine.engine import Engine
from reference_engine.errors import StepError
from reference_engine.messages import (
    SAMPLES_PER_CODEC_FRAME,
    AppendText,
    Audio,
    End,
    Event,
    Job,
)
from reference_engine.runner import RowFlag
from reference_engine.scheduler.ready import Limits, ReadyWork
from reference_engine.scheduler.trace import DecisionTrace
from reference_engine.simulate import SimulatedArrival

STEP_NS = 10_000_000
MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Speech:
    """What a scripted request will say: its length, and its faults.

    num_silent_frames: codec frames of silence before the sound. silent_from: the codec frame from
        which there is silence for ever. bad_at: codec frame whose numbers
    are not finite. raises_at: codec frame whose step raises, naming the row. crashes_at: codec
    frame whose step raises something that names nobody.
    """

    key: int
    num_codec_frames: int
    num_silent_frames: int = 0
    silent_from: int | None = None
    bad_at: int | None = None
    raises_at: int | None = None
    crashes_at: int | None = None
    codec_raises_at: int | None = None
    is_unloadable: bool = False


def frame_samples(speech: Speech, frame: int) -> np.ndarray:
    """The samples [1920] int16 of one codec frame: loud noise of (request, frame)."""
    is_over = speech.silent_from is not None and frame >= speech.silent_from
    if frame < speech.num_silent_frames or is_over:
        return np.zeros(SAMPLES_PER_CODEC_FRAME, np.int16)
    rng = np.random.default_rng((speech.key, frame))
    loud = rng.integers(8_000, 30_000, SAMPLES_PER_CODEC_FRAME)
    return (loud * rng.choice((-1, 1), SAMPLES_PER_CODEC_FRAME)).astype(np.int16)


def solo_audio(speech: Speech, *, num_frames: int | None = None, skip: int = 0) -> bytes:
    """What the listener of a request alone would get, `skip` codec frames trimmed."""
    count = speech.num_codec_frames if num_frames is None else num_frames
    return b"".join(frame_samples(speech, frame).tobytes() for frame in range(skip, count))


class ScriptedHandle:
    """Samples of one codec step, worked out when asked for."""

    def __init__(self, rows: list[tuple[Speech, int]]) -> None:
        self._rows = rows

    def wait(self) -> None:
        """Already here."""

    def samples(self, row: int, num_samples: int) -> np.ndarray:
        speech, first = self._rows[row]
        count = num_samples // SAMPLES_PER_CODEC_FRAME
        if speech.bad_at is not None and first + count > speech.bad_at:
            raise StepError((), "its numbers were not finite")
        frames = [frame_samples(speech, first + step) for step in range(count)]
        return np.concatenate(frames) if frames else np.empty(0, np.int16)


class ScriptedRunner:
    """A runner whose requests say what their `Speech` says; a step takes `step_ns`."""

    text_lookahead = 0

    def __init__(
        self,
        profile: Profile,
        clock: VirtualClock,
        *,
        step_ns: int | Callable[[Batch], int] = STEP_NS,
    ) -> None:
        self.catalogue = Catalogue(profile)
        self._clock, self._step_ns = clock, step_ns
        num_slots = profile.slots + 1
        self.speech: list[Speech | None] = [None] * num_slots
        self.made = [0] * num_slots
        self.decoded = [0] * num_slots
        self.prefilled = [False] * num_slots
        self.num_text = [0] * num_slots
        self.is_text_complete = [True] * num_slots
        self.half_made = [False] * num_slots
        self.has_ended = [False] * num_slots
        self.batches: list[Batch] = []
        self.num_flag_reads = 0
        self._flags: deque[list[int]] = deque()
        self._pending_flags: list[int] | None = None
        self._handle: ScriptedHandle | None = None
        self._batch: Batch | None = None

    @property
    def num_held(self) -> int:
        """Slots that hold somebody's state."""
        return sum(speech is not None for speech in self.speech)

    def admit(self, slot: int, job: Job) -> None:
        assert slot
        assert self.speech[slot] is None, f"slot {slot} is taken"
        assert isinstance(job.prompt, Speech)
        if job.prompt.is_unloadable:
            raise RuntimeError("no room for the prompt")
        self.speech[slot] = job.prompt
        self.made[slot] = self.decoded[slot] = 0
        self.half_made[slot] = self.has_ended[slot] = False
        self.prefilled[slot] = not job.num_prefill_positions
        self.num_text[slot] = job.num_text_tokens
        self.is_text_complete[slot] = job.is_text_complete

    def rehearse(self, shape: Shape) -> None:
        assert shape in self.catalogue, f"{shape} was never captured"
        step = self._step_ns
        rows = Batch(shape, [0] * shape.rows, [], 0, Urgency.STARTUP)
        self._clock.advance(step if isinstance(step, int) else step(rows))

    def append_text(self, slot: int, tokens: object, *, is_end: bool) -> None:
        assert isinstance(tokens, int)
        self.num_text[slot] += tokens
        self.is_text_complete[slot] |= is_end

    def release(self, slot: int) -> None:
        assert self.speech[slot] is not None, f"slot {slot} was free"
        self.speech[slot] = None

    def _who(self, slot: int) -> Speech:
        speech = self.speech[slot]
        assert speech is not None, f"a step runs for slot {slot}, which nobody holds"
        return speech

    def launch(self, batch: Batch, *, wants_flags: bool) -> None:
        assert batch.shape in self.catalogue, f"{batch.shape} was never captured"
        assert len(set(batch.slots)) == len(batch.slots) <= batch.shape.rows
        assert 0 not in batch.slots
        self._batch = batch
        self.batches.append(batch)
        self._raise_faults(batch)
        self._pending_flags = self._flags_of(batch) if wants_flags else None
        if self._pending_flags is not None:
            self._flags.append(self._pending_flags)

    def _raise_faults(self, batch: Batch) -> None:
        for slot in batch.slots:
            speech = self._who(slot)
            if batch.stage is Stage.CODEC:
                if speech.codec_raises_at is not None and self.made[slot] > speech.codec_raises_at:
                    raise StepError((slot,), "the codec refused this row")
                continue
            if speech.raises_at == self.made[slot]:
                raise StepError((slot,), "the step refused this row")
            if speech.crashes_at == self.made[slot]:
                raise RuntimeError("device fault")

    def _flags_of(self, batch: Batch) -> list[int]:
        flags = []
        for slot in batch.slots:
            speech = self._who(slot)
            flag = RowFlag.EOS if self.made[slot] >= speech.num_codec_frames else RowFlag.NONE
            if speech.bad_at is not None and self.made[slot] >= speech.bad_at:
                flag |= RowFlag.BAD
            flags.append(int(flag))
        return flags

    def wait(self) -> None:
        batch = self._batch
        assert batch is not None
        step = self._step_ns
        self._clock.advance(step(batch) if callable(step) else step)
        if batch.stage is Stage.CODEC:
            self._decode(batch)
            return
        for slot in batch.slots:
            self._advance(slot, batch.stage)

    def _decode(self, batch: Batch) -> None:
        rows = []
        for slot, count in zip(batch.slots, batch.counts, strict=True):
            assert 0 < count <= batch.shape.width
            rows.append((self._who(slot), self.decoded[slot]))
            self.decoded[slot] += count
        self._handle = ScriptedHandle(rows)

    def _advance(self, slot: int, stage: Stage) -> None:
        speech = self._who(slot)
        if stage is Stage.PREFILL:
            assert not self.prefilled[slot]
            self.prefilled[slot] = True
            return
        assert self.prefilled[slot], "a frame before its prompt"
        made = self.made[slot]
        if stage is not Stage.PREDICTOR:
            is_known = self.is_text_complete[slot] or made < self.num_text[slot]
            assert is_known, f"codec frame {made} ran before its text was known"
        assert (stage is Stage.PREDICTOR) == self.half_made[slot] or stage is Stage.FRAME
        self.half_made[slot] = stage is Stage.TALKER
        if stage is Stage.TALKER:
            self.has_ended[slot] |= made >= speech.num_codec_frames
            return
        # A slot stepped once more after its end stays as it is.
        if made < speech.num_codec_frames:
            self.made[slot] += 1

    def read_flags(self) -> Sequence[int]:
        self.num_flag_reads += 1
        return self._flags.popleft()

    def pcm(self) -> ScriptedHandle:
        assert self._handle is not None
        return self._handle

    def close(self) -> None:
        """Nothing was recorded."""


@dataclass(slots=True)
class Listener:
    """A sink that keeps everything, with a scripted appetite."""

    events: list[Event] = field(default_factory=list)
    unread: int = 0
    is_broken: bool = False

    def send(self, event: Event) -> None:
        if self.is_broken:
            raise ConnectionError("the listener is gone")
        self.events.append(event)

    def unread_bytes(self) -> int:
        return self.unread

    @property
    def audio(self) -> bytes:
        """All samples so far."""
        return b"".join(e.pcm or b"" for e in self.events if isinstance(e, Audio))

    @property
    def end(self) -> End | None:
        """The last event, if it has come; never more than one."""
        ends = [event for event in self.events if isinstance(event, End)]
        assert len(ends) <= 1, "a request ended twice"
        return ends[0] if ends else None


class Waiter(Listener):
    """A listener in another thread's hands: `wait_for_end` blocks until the last event."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()
        self.on_audio: Callable[[], None] = lambda: None

    def send(self, event: Event) -> None:
        if isinstance(event, Audio):
            self.on_audio()
        super().send(event)
        if isinstance(event, End):
            self.over.set()

    def wait_for_end(self) -> End:
        assert self.over.wait(20), "the request never ended"
        assert self.end is not None
        return self.end


def profile(name: str = "ttfa", **overrides: Any) -> Profile:
    """A profile with nested keys laid over it, small unless told otherwise."""
    return load_profile(name, overrides={"slots": 8, **overrides})


def job(speech: Speech, **fields: Any) -> Job:
    """A request for a scripted runner."""
    values: dict[str, Any] = {
        "request_id": str(speech.key),
        "prompt": speech,
        "num_prompt_positions": 10,
        "num_prefill_positions": 0,
        "num_text_tokens": 1,
        "is_text_complete": True,
        "num_characters": 1_000,
        "max_new_tokens": 400,
    }
    return Job(**{**values, **fields})


@dataclass(slots=True)
class Bench:
    """An engine on a virtual clock with scripted requests, turned by hand."""

    engine: Engine
    runner: ScriptedRunner
    clock: VirtualClock

    def say(self, speech: Speech, **fields: Any) -> Listener:
        """Submit one request."""
        listener = Listener()
        self.engine.submit(job(speech, **fields), listener)
        return listener

    def append(self, speech: Speech, num_tokens: int, *, is_end: bool = False) -> None:
        """More text for a request."""
        self.engine.append_text(
            AppendText(str(speech.key), num_tokens, num_tokens, num_tokens * 4, is_end)
        )

    def turn(self, count: int = 1) -> None:
        """Turns; time goes on by itself where nothing is to be done."""
        for _ in range(count):
            rest = self.engine.turn()
            self.check()
            if rest is not None:
                ahead_ns = self.clock.now_ns() + STEP_NS
                self.clock.advance_to(min(rest.until_ns or ahead_ns, ahead_ns))

    def check(self) -> None:
        """The scheduler's rows agree with each other, and with the device's own books."""
        table, runner = self.engine.scheduler.table, self.runner
        table.check()
        for slot in range(1, table.num_slots):
            assert (table.sequences[slot] is None) == (runner.speech[slot] is None), slot
            if table.sequences[slot] is not None:
                # One codec frame may have been made after an end that is not yet known.
                assert table.made[slot] - runner.made[slot] in (0, 1), slot
                assert table.decoded[slot] == runner.decoded[slot], slot

    def finish(self, max_turns: int = 20_000) -> None:
        """Turn until nobody is left."""
        for _ in range(max_turns):
            if not self.engine.num_in_system:
                self.turn(2)
                return
            self.turn()
        raise AssertionError(f"{self.engine.num_in_system} requests never ended")

    def finish_until(self, is_done: Callable[[], bool], max_turns: int = 20_000) -> None:
        """Turn until something has happened."""
        for _ in range(max_turns):
            if is_done():
                return
            self.turn()
        raise AssertionError("it never happened")

    def held(self) -> Mapping[str, int]:
        """Everything that must be zero when nobody is left."""
        return {
            "slots": self.engine.admission.num_active,
            "positions": self.engine.admission.positions_held,
            "queue": len(self.engine.admission.queue),
            "runner": self.runner.num_held,
            "delivery": self.engine.router.num_streams,
            "system": self.engine.num_in_system,
        }


NOTHING_HELD = dict.fromkeys(("slots", "positions", "queue", "runner", "delivery", "system"), 0)


def bench(
    settings: Profile | None = None,
    *,
    make_delivery: Callable[[Router], Delivery] = InlineDelivery,
    step_ns: int | Callable[[Batch], int] = STEP_NS,
    trace: DecisionTrace | None = None,
) -> Bench:
    """An engine with a scripted runner."""
    chosen = settings or profile()
    clock = VirtualClock()
    runner = ScriptedRunner(chosen, clock, step_ns=step_ns)
    engine = Engine(chosen, runner, clock, make_delivery=make_delivery, trace=trace)
    return Bench(engine, runner, clock)


def processor_costs(slowness: float = 1.0) -> CostTable:
    """The tiny shape on one core of two, as measured (profile `cpu`), or so much slower."""

    def took(fixed_ms: float, per_row_ms: float) -> StageCost:
        return StageCost(fixed_ms=fixed_ms * slowness, per_row_ms=per_row_ms * slowness)

    return load_costs("h100-published").model_copy(
        update={
            "frame": took(9.0, 0.9),
            "codec": took(8.5, 1.0),
            "prefill": took(8.0, 0.3),
            "host_gap_ms": 0.7 * slowness,
            "delivery_ms": 0.5,
            "launch_us": 0.0,
        }
    )


def ready_work(settings: Profile | None = None, *, num_slots: int = 400) -> ReadyWork:
    """Ready work with nothing ready; every stage's reserve is 5 ms."""
    chosen = settings or profile()
    return ReadyWork(
        catalogue=Catalogue(chosen),
        limits=Limits.of(chosen),
        arrival_ns=[0] * num_slots,
        deadline_ns=[0] * num_slots,
        latest_start_ns=[0] * num_slots,
        pending=[0] * num_slots,
        history=[0] * num_slots,
        width=[0] * num_slots,
        reserve_ns=[5 * MS] * NUM_STAGES,
        last_turn=[0] * num_slots,
    )


def add_newcomer(
    work: ReadyWork, slot: int, stage: Stage, *, arrived_ms: float = 0, size: int = 2
) -> None:
    """Somebody without sound is ready at a stage."""
    work.startup[stage][slot] = None
    work.arrival_ns[slot] = int(arrived_ms * MS)
    work.pending[slot] = work.width[slot] = size


def add_stream(
    work: ReadyWork, slot: int, stage: Stage, *, latest_ms: float, size: int = 4
) -> None:
    """Somebody who plays is ready at a stage; the rest of the chunk must start by `latest_ms`."""
    work.playing[stage][slot] = None
    work.latest_start_ns[slot] = int(latest_ms * MS)
    work.deadline_ns[slot] = work.latest_start_ns[slot] + 5 * MS
    work.pending[slot] = work.width[slot] = size


def poisson(
    rate_rps: float, duration_s: float, *, seed: int = 1, mean_frames: float = 54.0
) -> list[SimulatedArrival]:
    """Poisson arrivals whose lengths have the published mean and p95 (54 and 88 codec frames)."""
    rng = np.random.default_rng((seed, round(rate_rps * 1000)))
    arrivals: list[SimulatedArrival] = []
    now_s = 0.0
    while (now_s := now_s + float(rng.exponential(1 / rate_rps))) < duration_s:
        frames = max(6, int(rng.lognormal(np.log(mean_frames * 0.947), 0.33)))
        arrivals.append(SimulatedArrival(len(arrivals), int(now_s * 1e9), frames, frames))
    return arrivals
