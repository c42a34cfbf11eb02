"""Builders for a checkpoint behind the engine: small profiles, a desk to turn by hand, sounds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from reference_engine.clock import MonotonicClock
from reference_engine.config import Profile
from reference_engine.delivery import InlineDelivery
from reference_engine.engine import Engine
from reference_engine.graphs import CpuDriver
from reference_engine.kernels.reference import to_pcm16
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model.text.prompts import Prompt
from reference_engine.model_runner import ModelPrompt, ModelRunner
from tests.builders.checkpoints import Loaded, codes_of, decode
from tests.builders.engine import Listener, profile

GREEDY = SamplingSettings.greedy()
WORDS = ("hello", "the user said", "no", "one more of these", "assistant", "yes", "why")
# Rounding of the codec between two paddings, in int16 steps of 1/32767.
MAX_PCM_STEPS = 2


def settings(name: str = "ttfa", **overrides: object) -> Profile:
    """Small enough for a plain CPU: few slots, few shapes, short."""
    return profile(
        name,
        **{
            "positions_per_slot": 64,
            "leading_silence": "keep",
            "chunks": {"mode": "fixed", "ramp": [2, 4]},
            "buckets": {
                "frame_rows": [1, 2, 4, 8, 32],
                "prefill_tokens": [16, 32],
                "codec_rows": [1, 2, 4],
                "codec_frames": [1, 2, 4],
                "max_codec_work": 16,
            },
            **overrides,
        },
    )


class Recorder(ModelRunner):
    """Keeps the codes of every request it lets go, by its prompt."""

    def __init__(self, loaded: Loaded, chosen: Profile) -> None:
        super().__init__(loaded.model, loaded.codec, chosen, CpuDriver())
        self.codes: list[tuple[ModelPrompt, Tensor]] = []

    def release(self, slot: int) -> None:
        self.codes.append((self._row(slot).prompt, codes_of(self.state, slot)))
        super().release(slot)


@dataclass
class Desk:
    """An engine over a checkpoint, turned by hand."""

    engine: Engine
    runner: Recorder

    def say(
        self, prompt: Prompt, sampling: SamplingSettings = GREEDY, **fields: object
    ) -> Listener:
        listener = Listener()
        request_id = str(self.engine.meters.num_submitted)
        values = {"num_characters": 50, "max_new_tokens": NUM_FRAMES + 1, **fields}
        job = self.runner.job(request_id, ModelPrompt(prompt, sampling), **values)
        self.engine.submit(job, listener)
        return listener

    def finish(self, max_turns: int = 200_000) -> None:
        for _ in range(max_turns):
            if not self.engine.num_in_system:
                return
            self.engine.turn()
        raise AssertionError("requests never ended")

    def codes(self, prompt: Prompt, sampling: SamplingSettings) -> Tensor:
        (found,) = (
            codes
            for key, codes in self.runner.codes
            if key.prompt is prompt and key.sampling == sampling
        )
        return found


def desk(loaded: Loaded, **overrides: object) -> Desk:
    chosen = settings(**overrides)
    runner = Recorder(loaded, chosen)
    engine = Engine(chosen, runner, MonotonicClock(), make_delivery=InlineDelivery)
    return Desk(engine, runner)


def pcm(loaded: Loaded, codes: Tensor) -> np.ndarray:
    """What one whole decode of the codes sounds like."""
    return to_pcm16(decode(loaded.codec, codes)).numpy()


def heard(listener: Listener) -> np.ndarray:
    return np.frombuffer(listener.audio, np.int16)


def assert_same_sound(expected: np.ndarray, found: np.ndarray) -> None:
    assert len(expected) == len(found)
    steps = np.abs(expected.astype(int) - found.astype(int))
    assert steps.max(initial=0) <= MAX_PCM_STEPS


NUM_FRAMES = 7


def requests(loaded: Loaded, count: int) -> list[tuple[Prompt, SamplingSettings]]:
    """Different texts, both samplers, different seeds."""
    drawn = SamplingSettings.from_defaults(loaded.model.config.generation)
    return [
        (loaded.prompt(WORDS[n % len(WORDS)]), replace(drawn, seed=n) if n % 2 else GREEDY)
        for n in range(count)
    ]
