"""The rules of capture, over every program that is recorded, on a CPU and on no device at all."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass

import pytest
import torch

from reference_engine.batch import Batch, Shape, Stage, Urgency
from reference_engine.config import Profile
from reference_engine.graphs import CpuDriver
from reference_engine.messages import SAMPLES_PER_CODEC_FRAME
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model_runner import ModelPrompt, ModelRunner
from tests.builders.audit import audit, tensors_of, to_meta
from tests.builders.checkpoints import Loaded
from tests.builders.model_engine import settings

NUM_REPLAYS = 1000


class Programs(CpuDriver):
    """The programs themselves, by shape."""

    @property
    def shapes(self):
        return sorted(self._programs)

    def program(self, shape):
        return self._programs[shape]


def _profile(**overrides: object) -> Profile:
    buckets = {
        "frame_rows": [1, 4], "prefill_rows": [2], "prefill_tokens": [16], "codec_rows": [1, 2],
        "codec_frames": [1, 4], "max_codec_work": 8,
    }  # fmt: skip
    return settings(buckets=buckets, **overrides)


def _runner(loaded: Loaded, driver: CpuDriver, *, device: str = "cpu", **overrides: object):
    is_meta = device == "meta"
    model = to_meta(loaded.model) if is_meta else loaded.model
    codec = to_meta(loaded.codec) if is_meta else loaded.codec
    return ModelRunner(model, codec, _profile(**overrides), driver)


@pytest.mark.parametrize("stages", ["fused", "split"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_no_program_of_the_catalogue_touches_the_host(micro: Loaded, device: str, stages: str):
    """Gathering codes, PCM, row flags and all: no host read, no host value, no other device."""
    driver = Programs()
    _runner(micro, driver, device=device, stages=stages)

    offences = {
        shape: found.offences
        for shape in driver.shapes
        if (found := audit(driver.program(shape), device=device)).offences
    }

    assert {} == offences
    assert {"fused": 2, "split": 4}[stages] + 5 == len(driver.shapes)


def test_a_thousand_replays_keep_addresses_and_leave_nothing_behind(micro: Loaded):
    """Of talker, codec and prefill: state, inputs and outputs stay; no tensor more at the end."""
    driver = Programs()
    runner = _runner(micro, driver, stages="split", sampler="greedy")
    static = [
        *tensors_of(runner.state),
        *tensors_of(runner.codec_state),
        *(inputs.buffer for inputs in runner.graphs.inputs.values()),
    ]
    shapes = [shape for shape in driver.shapes if shape.rows == 1 or shape.stage.name == "PREFILL"]
    for shape in shapes:
        driver.replay(shape)
    before, num_before = [t.data_ptr() for t in static], _num_tensors()

    for step in range(NUM_REPLAYS):
        # The predictor loop is long and keeps no state of its own: now and then will do.
        at = step % len(shapes)
        if shapes[at].stage.name != "PREDICTOR" or step % 100 == at:
            driver.replay(shapes[at])

    assert before == [t.data_ptr() for t in static]
    assert num_before == _num_tensors()


@pytest.mark.parametrize("stages", ["fused", "split"])
@pytest.mark.parametrize("poison", [float("nan"), 1000.0])
def test_what_lies_in_the_padding_slot_reaches_nobody(micro: Loaded, stages: str, poison: float):
    """Prefill, codec frames and codec with padding rows: codes and samples of one request, bit by
    bit, whether slot 0 and every output hold nothing or poison."""
    drawn = SamplingSettings.from_defaults(micro.model.config.generation, ignore_eos=True)
    prompt = ModelPrompt(micro.prompt(), drawn)
    clean, poisoned = (
        _spoken(_runner(micro, CpuDriver(), stages=stages, prefix_kv=False), prompt, poison=value)
        for value in (None, poison)
    )

    assert clean == poisoned
    assert len({*clean.samples}) > 100


@dataclass
class _Spoken:
    codes: list[list[int]]
    samples: list[int]


def _spoken(runner: ModelRunner, prompt: ModelPrompt, *, poison: float | None) -> _Spoken:
    """Four codec frames of one request beside padding rows."""
    runner.admit(1, runner.job("a", prompt, num_characters=9, max_new_tokens=9))
    frames = [Shape(stage, 4) for stage in runner.catalogue.frame_stages]
    for shape in (Shape(Stage.PREFILL, 2, 16), *frames * 4, Shape(Stage.CODEC, 2, 4)):
        if poison is not None:
            _poison(runner, poison)
        counts = [4] if shape.stage is Stage.CODEC else []
        runner.launch(Batch(shape, [1], counts, 1, Urgency.STEADY), wants_flags=False)
    samples = runner.pcm().samples(0, 4 * SAMPLES_PER_CODEC_FRAME)
    return _Spoken(runner.state.codes[1, :4].tolist(), samples.tolist())


def _poison(runner: ModelRunner, value: float) -> None:
    """Everything of the padding slot that is a number and not a counter."""
    model, codec = runner.state, runner.codec_state
    by_slot = (model.hidden, model.next_input, *codec.columns())
    by_layer = (model.talker_k, model.talker_v, codec.window_k, codec.window_v)
    for tensor in by_slot:
        tensor[0] = value
    for tensor in by_layer:
        tensor[:, 0] = value
    for tensor in (model.predictor_k, model.predictor_v):
        tensor[:, 1:] = value  # rows of padding


def test_a_recorded_prefill_reads_no_further_than_its_bucket(micro: Loaded):
    """The program of 16 rows costs 16 positions of its slots, not all that they hold."""

    class Recorded(CpuDriver):
        is_recorded = True

    prompt = ModelPrompt(micro.prompt(layout="whole"), SamplingSettings.greedy())
    num_rows = prompt.prompt.num_rows
    written = []
    for beyond in (0.0, float("nan")):
        runner = _runner(micro, Recorded(), prefix_kv=False)
        runner.admit(1, runner.job("a", prompt, num_characters=9, max_new_tokens=9))
        for cache in (runner.state.talker_k, runner.state.talker_v):
            cache[:, :, 16:] = beyond
        batch = Batch(Shape(Stage.PREFILL, 2, 16), [1], [num_rows], 1, Urgency.STEADY)
        runner.launch(batch, wants_flags=False)
        written.append(runner.state.talker_v[:, 1, :num_rows])

    assert torch.equal(*written)
    assert bool(written[0].any())


class Watched(Programs):
    """Keeps what was copied to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[torch.Tensor] = []

    def copy_out(self, source):
        self.sources.append(source)
        return super().copy_out(source)


def test_what_is_copied_to_the_host_is_one_piece_of_memory(micro: Loaded):
    """Flags, samples and their soundness, in every bucket: a strided copy would be two. Memory for
    two of each size was there before the first request."""
    driver = Watched()
    runner = _runner(micro, driver)
    for shape in runner.catalogue.shapes:
        runner.rehearse(shape)
    rehearsed = Counter(map(_locked_bytes, driver.sources))
    driver.sources.clear()
    prompt = ModelPrompt(micro.prompt(), SamplingSettings.greedy(ignore_eos=True))
    for slot in (1, 2, 3):
        job = runner.job(str(slot), prompt, num_characters=9, max_new_tokens=9)
        runner.admit(slot, job)
    for shape in runner.catalogue.shapes:
        slots = [1, 2, 3][: shape.rows]
        counts = [shape.width] * len(slots) if shape.stage is Stage.CODEC else []
        if shape.stage in (Stage.FRAME, Stage.CODEC):
            batch = Batch(shape, slots, counts, 1, Urgency.STEADY)
            runner.launch(batch, wants_flags=shape.stage is Stage.FRAME)
            if shape.stage is Stage.FRAME:
                assert len(runner.read_flags()) == len(slots)

    assert len(driver.sources) > 5
    assert all(source.is_contiguous() for source in driver.sources)
    assert all(rehearsed[_locked_bytes(source)] >= 2 for source in driver.sources)


def _locked_bytes(source: torch.Tensor) -> int:
    """What PyTorch locks for a copy: the next power of two."""
    return 1 << (source.nbytes - 1).bit_length()


def _num_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
