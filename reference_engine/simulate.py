"""The same scheduler and loop on a virtual clock: a cost table stands in for the device.

Deterministic: one list of arrivals gives one result. Nothing sounds; what comes out is when each
chunk would have reached its listener, and which sample of the stream is the first to be heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reference_engine.batch import Batch, Stage
from reference_engine.clock import NS_PER_S, VirtualClock
from reference_engine.config import CodecMode, LeadingSilence, Profile
from reference_engine.cost_table import CostTable, StepCosts
from reference_engine.delivery import InlineDelivery
from reference_engine.engine import Engine
from reference_engine.errors import RefusedError, UnsayableError
from reference_engine.messages import (
    SAMPLES_PER_CODEC_FRAME,
    Audio,
    End,
    EndReason,
    Event,
    Job,
    RequestStats,
)
from reference_engine.meters import Meters
from reference_engine.runner import PcmHandle, RowFlag
from reference_engine.scheduler.trace import DecisionTrace

__all__ = [
    "SILENT_CODEC_FRAMES",
    "SimulatedArrival",
    "SimulatedChunk",
    "SimulatedRequest",
    "SimulatedRunner",
    "Simulation",
    "simulate",
    "simulation_profile",
]

# The first codec frame of these voices is silence (seen with the real checkpoint by others).
SILENT_CODEC_FRAMES = 1
# im_start, assistant, newline; four language tags; speaker; bos; the first text token.
_PROMPT_ROWS = 10


@dataclass(frozen=True, slots=True)
class SimulatedArrival:
    """One request to come. `num_codec_frames` is the length at which the model will end."""

    index: int
    at_ns: int
    num_codec_frames: int
    num_characters: int
    num_text_tokens: int = 1


@dataclass(frozen=True, slots=True)
class SimulatedChunk:
    """Samples that reach the listener at `arrival_ns`."""

    arrival_ns: int
    num_samples: int


@dataclass(slots=True)
class SimulatedRequest:
    """What one arrival came to. `reason` None: still in progress when the simulation stopped.

    refusal: why it never got in. known_onset_sample: of its stream, None where nothing sounds.
    """

    arrival: SimulatedArrival
    chunks: list[SimulatedChunk] = field(default_factory=list)
    reason: EndReason | None = None
    finished_ns: int | None = None
    refusal: str | None = None
    stats: RequestStats | None = None
    known_onset_sample: int | None = None

    @property
    def audible_ns(self) -> int | None:
        """When the listener has the first audible sample; None where that never happened."""
        if self.known_onset_sample is None:
            return None
        samples = 0
        for chunk in self.chunks:
            samples += chunk.num_samples
            if samples > self.known_onset_sample:
                return chunk.arrival_ns
        return None


@dataclass(frozen=True, slots=True)
class Simulation:
    """The whole outcome: one entry per arrival, in order, and what the engine counted."""

    requests: list[SimulatedRequest]
    meters: Meters
    end_ns: int


class _NoSamples:
    """Time without sound."""

    def wait(self) -> None:
        """Nothing is on its way."""

    def samples(self, row: int, num_samples: int) -> npt.NDArray[np.int16] | None:
        """None: there is nothing to hear."""
        del row, num_samples
        return None


class SimulatedRunner:
    """Runs no step; lets the virtual clock pass by what each step costs."""

    text_lookahead = 0

    def __init__(self, profile: Profile, costs: StepCosts, clock: VirtualClock) -> None:
        self._costs, self._clock = costs, clock
        self._num_made = [0] * (profile.slots + 1)
        self._length = [0] * (profile.slots + 1)
        self._is_redecoding = profile.codec is CodecMode.REDECODE
        self._max_codec_frames = profile.buckets.codec_frames[-1]
        self._flags: deque[bytes] = deque()
        self._step_ns = 0

    def admit(self, slot: int, job: Job) -> None:
        """Load a request; its prompt is the arrival it stands for."""
        assert isinstance(job.prompt, SimulatedArrival)
        self._num_made[slot] = 0
        self._length[slot] = job.prompt.num_codec_frames

    def append_text(self, slot: int, tokens: object, *, is_end: bool) -> None:
        """Text costs nothing."""

    def release(self, slot: int) -> None:
        """Nothing is held."""

    def launch(self, batch: Batch, *, wants_flags: bool) -> None:
        """Work out what the step costs, and which rows end at it."""
        stage, made, length = batch.shape.stage, self._num_made, self._length
        if stage is Stage.FRAME or stage is Stage.TALKER:
            if wants_flags:
                ends = RowFlag.EOS.value
                self._flags.append(
                    bytes([ends if made[slot] >= length[slot] else 0 for slot in batch.slots])
                )
            for slot in batch.slots:
                made[slot] += 1
        self._step_ns = self._costs.step_ns(batch, wants_flags=wants_flags)
        if stage is Stage.CODEC and self._is_redecoding:
            self._step_ns = self._redecode_ns(batch)

    def _redecode_ns(self, batch: Batch) -> int:
        """The whole history of every row again, in calls of the widest bucket."""
        longest = max(self._num_made[slot] for slot in batch.slots)
        num_calls, rest = divmod(longest, self._max_codec_frames)
        rows, stage = batch.shape.rows, Stage.CODEC
        whole_ns = self._costs.call_ns(stage, rows * self._max_codec_frames) * num_calls
        rest_ns = self._costs.call_ns(stage, rows * rest) if rest else 0
        return self._costs.host_gap_ns + whole_ns + rest_ns

    def wait(self) -> None:
        """Let the step's time pass."""
        self._clock.advance(self._step_ns)

    def read_flags(self) -> bytes:
        """Flags of the oldest unread launch."""
        return self._flags.popleft()

    def pcm(self) -> PcmHandle:
        """No samples."""
        return _NoSamples()


class _Listener:
    """Writes down when events reach the other end."""

    def __init__(self, request: SimulatedRequest, delivery_ns: int, onset_sample: int) -> None:
        self._request, self._delivery_ns = request, delivery_ns
        self._onset_sample = onset_sample

    def send(self, event: Event) -> None:
        """One event, `delivery_ns` after it was routed."""
        request = self._request
        if isinstance(event, Audio):
            arrival_ns = event.routed_ns + self._delivery_ns
            request.chunks.append(SimulatedChunk(arrival_ns, event.num_samples))
            return
        assert isinstance(event, End)
        request.reason, request.stats = event.reason, event.stats
        ended_ns = event.stats.ended_ns
        assert ended_ns is not None
        request.finished_ns = ended_ns + self._delivery_ns
        has_sound = sum(chunk.num_samples for chunk in request.chunks) > self._onset_sample
        request.known_onset_sample = self._onset_sample if has_sound else None

    def unread_bytes(self) -> int:
        """It reads everything at once."""
        return 0


def simulation_profile(profile: Profile) -> Profile:
    """The profile with what only ears could tell replaced by what is known beforehand."""
    return profile.model_copy(update={"assume_silent_frames": SILENT_CODEC_FRAMES})


def simulate(
    profile: Profile,
    costs: CostTable,
    arrivals: Ordered[SimulatedArrival],
    *,
    drain_s: float = 30.0,
    trace: DecisionTrace | None = None,
) -> Simulation:
    """Serve arrivals on a virtual clock.

    Args:
        profile: how to serve; its trim cuts the one silent codec frame that voices begin with.
        costs: how long steps take.
        arrivals: in order of time.
        drain_s: after the last arrival, how long to wait for what is in progress.
        trace: where decisions are written down, if anywhere.
    """
    profile = simulation_profile(profile)
    clock = VirtualClock()
    step_costs = StepCosts(costs, profile)
    runner = SimulatedRunner(profile, step_costs, clock)
    engine = Engine(profile, runner, clock, make_delivery=InlineDelivery, trace=trace)
    is_trimmed = profile.leading_silence is LeadingSilence.TRIM
    onset_sample = 0 if is_trimmed else SILENT_CODEC_FRAMES * SAMPLES_PER_CODEC_FRAME
    for shape in engine.catalogue.shapes:
        engine.load.rehearsed(shape, step_costs.shape_ns(shape))
    requests = [SimulatedRequest(arrival) for arrival in arrivals]
    stop_ns = (arrivals[-1].at_ns if arrivals else 0) + int(drain_s * NS_PER_S)
    upcoming = deque(requests)
    while clock.now_ns() < stop_ns:
        while upcoming and upcoming[0].arrival.at_ns <= clock.now_ns():
            request = upcoming.popleft()
            _submit(engine, request, _Listener(request, step_costs.delivery_ns, onset_sample))
        rest = engine.turn()
        if rest is None:
            continue
        times = [upcoming[0].arrival.at_ns] if upcoming else []
        if rest.until_ns is not None:
            times.append(rest.until_ns)
        if not times:
            break
        clock.advance_to(min(times))
    return Simulation(requests, engine.meters, clock.now_ns())


def _submit(engine: Engine, request: SimulatedRequest, listener: _Listener) -> None:
    arrival = request.arrival
    job = Job(
        request_id=str(arrival.index),
        prompt=arrival,
        num_prompt_positions=_PROMPT_ROWS,
        num_prefill_positions=0 if engine.profile.prefix_kv else _PROMPT_ROWS - 1,
        num_text_tokens=arrival.num_text_tokens,
        is_text_complete=True,
        num_characters=arrival.num_characters,
        max_new_tokens=2048,
    )
    try:
        engine.submit(job, listener)
    except (RefusedError, UnsayableError) as refusal:
        request.refusal = str(refusal)
        request.finished_ns = arrival.at_ns
