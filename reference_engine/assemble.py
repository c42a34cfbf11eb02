"""From a checkpoint folder and a profile to an engine that is warm."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from reference_engine.batch import captured_stages
from reference_engine.clock import Clock, MonotonicClock
from reference_engine.codec.weights import load_codec
from reference_engine.config import Profile
from reference_engine.delivery import Delivery, Router, ThreadDelivery
from reference_engine.engine import Engine
from reference_engine.errors import ReferenceEngineError
from reference_engine.graphs import make_driver
from reference_engine.messages import End, EndReason, Event, RequestStats
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model.text.prompts import PromptBuilder, TextLayout
from reference_engine.model.text.tokenizer import TextTokenizer, load_tokenizer
from reference_engine.model.tts_model import TtsModel
from reference_engine.model.weights import load_model
from reference_engine.model_runner import ModelPrompt, ModelRunner
from reference_engine.scheduler.trace import DecisionTrace

__all__ = ["AssembledEngine", "assemble", "rehearse", "warm_up"]

_WARM_UP_TEXT = "One moment, please."
_WARM_UP_FRAMES = 32
_WARM_UP_ID = "warm-up"


@dataclass(frozen=True, slots=True)
class AssembledEngine:
    """An engine and what its callers need to talk to it."""

    engine: Engine
    runner: ModelRunner
    model: TtsModel
    tokenizer: TextTokenizer
    prompts: PromptBuilder

    def close(self) -> None:
        """Stop the engine's threads, then free what was recorded on the device."""
        self.engine.close()
        self.runner.close()
        gc.unfreeze()


def assemble(
    folder: Path,
    profile: Profile,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    clock: Clock | None = None,
    make_delivery: Callable[[Router], Delivery] = ThreadDelivery,
    trace: DecisionTrace | None = None,
) -> AssembledEngine:
    """Load a checkpoint and build everything around it; the loop's thread is not started.

    Args:
        folder: checkpoint in the official layout.
        profile: how to serve.
        device: of weights and state.
        dtype: of the talker and the code predictor; the codec is fp32.
        clock: of the loop.
        make_delivery: where chunks go.
        trace: where decisions are written down, if anywhere.

    Raises:
        CheckpointError: the folder is damaged or not a checkpoint.
        ReferenceEngineError: the device cannot be used, or has too little memory.
    """
    driver = make_driver(
        device, captured=captured_stages(profile.capture), fp32_math=profile.fp32_math
    )
    try:
        model = load_model(folder, device=device, dtype=dtype)
        codec = load_codec(folder, device=device)
        tokenizer = load_tokenizer(folder, model.config)
        runner = ModelRunner(model, codec, profile, driver)
    except RuntimeError as error:  # torch's own, but not for every allocator
        if "out of memory" not in str(error):
            raise
        raise ReferenceEngineError(
            f"device {device!r}: too little memory for the model and {profile.slots} slots of"
            f" {profile.positions_per_slot} positions; lower slots or positions_per_slot in the"
            f" profile, or use a larger device ({str(error).splitlines()[0]})"
        ) from error
    engine = Engine(
        profile, runner, clock or MonotonicClock(), make_delivery=make_delivery, trace=trace
    )
    return AssembledEngine(engine, runner, model, tokenizer, PromptBuilder(model.config, tokenizer))


class _WarmUpSink:
    """Waits for the end of the warm-up request."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.end: End | None = None

    def send(self, event: Event) -> None:
        """Keep the end, forget the sound."""
        if isinstance(event, End):
            self.end = event
            self.over.set()

    def unread_bytes(self) -> int:
        """None: it reads everything at once."""
        return 0


def rehearse(assembled: AssembledEngine, clock: Clock) -> None:
    """Run every shape twice: once for what happens only the first time, then to know its time."""
    for shape in assembled.runner.catalogue.shapes:
        assembled.runner.rehearse(shape)
        start_ns = clock.now_ns()
        assembled.runner.rehearse(shape)
        assembled.engine.load.rehearsed(shape, clock.now_ns() - start_ns)


def warm_up(assembled: AssembledEngine, *, timeout_s: float) -> RequestStats:
    """Store the prefix of every voice and language, start the loop, and serve one real request.

    Only after this is the engine ready: every stage has run as the loop runs it, and the garbage
    collector of this process leaves alone what exists by then, until the engine is closed.

    Raises:
        ReferenceEngineError: the request did not end well in time.
    """
    model, prompts = assembled.model, assembled.prompts
    if assembled.engine.profile.prefix_kv:
        voices = [
            prompts.voice(speaker, language)
            for speaker in model.config.speakers
            for language in model.config.public_languages
        ]
        assembled.runner.store_prefixes(prompts.open(voice) for voice in voices)
    voice = prompts.voice(next(iter(model.config.speakers)))
    prompt = prompts.build(_WARM_UP_TEXT, voice, layout=TextLayout.STREAMING)
    sampling = SamplingSettings.greedy(ignore_eos=True)
    job = assembled.runner.job(
        _WARM_UP_ID,
        ModelPrompt(prompt, sampling),
        num_characters=len(_WARM_UP_TEXT),
        max_new_tokens=_WARM_UP_FRAMES + 1,
    )
    sink = _WarmUpSink()
    assembled.engine.start()
    assembled.engine.submit(job, sink)
    if not sink.over.wait(timeout_s):
        raise ReferenceEngineError(f"the warm-up request did not end within {timeout_s:g} s")
    assert sink.end is not None
    # The request ignores the end of speech, so its limit is the only good ending.
    if sink.end.reason is not EndReason.LENGTH:
        raise ReferenceEngineError(f"the warm-up request failed: {sink.end.text}")
    # What is here now stays: modules, weights, programs. Looked at once more for garbage, 200,000
    # objects would stop every thread for as long as dozens of steps take.
    gc.collect()
    gc.freeze()
    return sink.end.stats
