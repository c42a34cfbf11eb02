"""The full 1.7B shape on a CPU: it loads, and two codec frames come out. Minutes and 12 GB."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reference_engine.checkpoint.inspect import inspect_checkpoint
from reference_engine.checkpoint.make import make_checkpoint
from reference_engine.codec.decoder import codec_step
from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import GREEDY_PLAN, SamplingSettings
from tests.builders import checkpoints
from tests.builders.checkpoints import admit, codes_of, slot_vector

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]


def test_the_full_random_shape_speaks_two_codec_frames(tmp_path: Path):
    """404 tensors, 1,916,676,352 parameters, then 3,840 samples."""
    folder = tmp_path / "full"
    made = make_checkpoint(folder, shape="1.7b", seed=0)
    report = inspect_checkpoint(folder)
    assert (404, 1_916_676_352) == (made.num_tensors, made.num_parameters)
    assert (404, 1_916_676_352) == (report.model.num_tensors, report.model.num_parameters)

    loaded = checkpoints.load(folder, dtype=torch.bfloat16)
    state = loaded.state(2, max_positions=32)
    admit(loaded, state, 1, loaded.prompt(), SamplingSettings.greedy(ignore_eos=True))
    for _ in range(2):
        frame_step(loaded.model, state, slot_vector([1]), sampler=GREEDY_PLAN)
    codes = codes_of(state, 1)
    samples = codec_step(
        loaded.codec,
        loaded.codec_state(2),
        slot_vector([1]),
        codes=codes[None],
        num_frames=torch.tensor([2]),
    )
    print(f"codes {codes[:, :4].tolist()}, peak {float(samples.abs().max()):.2f}")

    assert (2, 16) == codes.shape
    assert not bool(state.broken.any())
    assert (1, 3840) == samples.shape
    assert 0.0 < float(samples.abs().max()) < 1.0
