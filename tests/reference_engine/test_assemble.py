"""From a folder to a warm engine, in its own threads."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from reference_engine.assemble import assemble, rehearse, warm_up
from reference_engine.batch import Shape, Stage
from reference_engine.clock import MonotonicClock
from reference_engine.errors import CheckpointError, ReferenceEngineError, UncapturedShapeError
from reference_engine.messages import EndReason
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model.text.prompts import TextLayout
from reference_engine.model_runner import ModelPrompt, ModelRunner
from tests.builders.checkpoints import Loaded, speak
from tests.builders.engine import Waiter
from tests.builders.model_engine import assert_same_sound, pcm, settings


def test_a_warm_engine_has_run_every_stage_and_speaks(micro: Loaded):
    """Prefixes of all voices are stored; the first real request needs no prefill and is right."""
    ready = assemble(micro.folder, settings(positions_per_slot=128))
    stats = warm_up(ready, timeout_s=60)
    num_left_alone = gc.get_freeze_count()
    meters = ready.engine.meters
    warm_steps = [meters.stages[stage].num_steps for stage in (Stage.FRAME, Stage.CODEC)]
    prompt = ready.prompts.build(
        "hello", ready.prompts.voice("vivian", "english"), layout=TextLayout.STREAMING
    )
    listener = Waiter()
    job = ready.runner.job(
        "1", ModelPrompt(prompt, SamplingSettings.greedy()), num_characters=5, max_new_tokens=7
    )
    ready.engine.submit(job, listener)
    end = listener.wait_for_end()
    ready.close()

    assert 32 == stats.num_codec_frames
    assert all(num > 0 for num in warm_steps)
    assert 0 == job.num_prefill_positions
    assert end.reason in (EndReason.LENGTH, EndReason.COMPLETE)
    codes = speak(micro, prompt, SamplingSettings.greedy(), num_frames=6)
    assert_same_sound(pcm(micro, codes), np.frombuffer(listener.audio, np.int16))
    # A full collection stops every thread: what lives as long as the engine is not for it.
    assert (True, 0) == (num_left_alone > 10_000, gc.get_freeze_count())


def test_every_shape_runs_before_the_first_request_and_leaves_nothing_behind(micro: Loaded):
    """Its time is known afterwards, and what is spoken is what a fresh engine speaks."""
    ready = assemble(micro.folder, settings(positions_per_slot=128, max_load=0.5))
    replayed: list[Shape] = []
    replay = ready.runner.graphs._driver.replay
    ready.runner.graphs._driver.replay = lambda shape: (replayed.append(shape), replay(shape))[1]

    rehearse(ready, MonotonicClock())

    shapes = ready.engine.catalogue.shapes
    assert dict.fromkeys(shapes, 2) == Counter(replayed)
    assert set(shapes) == set(ready.engine.load._rehearsed_ns)
    assert 0 == int(ready.runner.state.lengths.abs().sum())
    prompt = ready.prompts.build("hello", ready.prompts.voice("ryan"), layout=TextLayout.WHOLE)
    job = ready.runner.job(
        "1", ModelPrompt(prompt, SamplingSettings.greedy()), num_characters=5, max_new_tokens=7
    )
    listener = Waiter()
    ready.engine.start()
    ready.engine.submit(job, listener)
    listener.wait_for_end()
    ready.engine.close()
    codes = speak(micro, prompt, SamplingSettings.greedy(), num_frames=6)
    assert_same_sound(pcm(micro, codes), np.frombuffer(listener.audio, np.int16))


def test_closing_stops_the_threads_and_frees_what_was_recorded(micro: Loaded):
    """In this order: nobody replays what is being freed."""
    ready = assemble(micro.folder, settings(positions_per_slot=128))
    ready.engine.start()

    ready.close()

    assert not ready.engine.is_alive
    with pytest.raises(UncapturedShapeError):
        ready.runner.rehearse(ready.engine.catalogue.shapes[0])


def test_a_device_without_a_driver_is_one_line(micro: Loaded):
    """Before anything is loaded."""
    with pytest.raises(ReferenceEngineError, match="device 'meta'"):
        assemble(micro.folder, settings(), device="meta")


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 42.00 GiB.\nMore of it."),
     RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA")],
    ids=["torch's own", "another allocator's"],
)  # fmt: skip
def test_a_device_that_is_too_small_is_one_line(
    micro: Loaded, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
):
    """It says what was to fit and what to lower; whatever else goes wrong is not taken for it."""

    def full(*given: object) -> ModelRunner:
        raise error

    monkeypatch.setattr("reference_engine.assemble.ModelRunner", full)

    with pytest.raises(ReferenceEngineError, match=r"slots of 64 positions; lower slots") as found:
        assemble(micro.folder, settings())
    assert "\n" not in str(found.value)

    error = RuntimeError("another mistake")
    with pytest.raises(RuntimeError, match="another mistake"):
        assemble(micro.folder, settings())


def test_a_folder_without_a_checkpoint_is_one_line(tmp_path: Path):
    """Names what is missing."""
    with pytest.raises(CheckpointError, match=r"config\.json"):
        assemble(tmp_path, settings())
