"""Whole steps on fused kernels: the codes and samples of the plain twins."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from reference_engine.codec.decoder import codec_step
from reference_engine.kernels.fused import FUSED_KERNELS
from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import SamplingSettings
from tests.builders.checkpoints import Loaded, admit, codes_of, random_codes, slot_vector

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero)")


def _codes(loaded: Loaded, *, kernels=None) -> list[torch.Tensor]:
    """Two codec frames of two requests, one sampled and one greedy, beside a padding row."""
    model = loaded.model if kernels is None else replace(loaded.model, kernels=kernels)
    drawn = SamplingSettings.from_defaults(loaded.model.config.generation, ignore_eos=True)
    state = loaded.state(max_positions=48)
    admit(loaded, state, 1, loaded.prompt(), replace(drawn, seed=11))
    admit(loaded, state, 3, loaded.prompt("no"), SamplingSettings.greedy(ignore_eos=True))
    for _ in range(2):
        frame_step(model, state, slot_vector([3, 1, 0]))
    assert 0 == int(state.lengths[0])
    return [codes_of(state, 1), codes_of(state, 3)]


def test_a_frame_on_fused_kernels_draws_the_same_codes(micro: Loaded):
    """Talker, penalty, sampler, predictor loop and padding, in fp32."""
    expected = _codes(micro)

    found = _codes(micro, kernels=FUSED_KERNELS)

    assert [each.tolist() for each in expected] == [each.tolist() for each in found]
    assert (2, 16) == tuple(found[0].shape)


def test_the_codec_on_fused_kernels_gives_the_same_samples(micro: Loaded):
    """Two calls of two rows, one shorter than the call's width, and one of padding."""
    outputs = []
    for codec in (micro.codec, replace(micro.codec, kernels=FUSED_KERNELS)):
        state = micro.codec_state()
        calls = [
            codec_step(
                codec,
                state,
                slot_vector([2, 1, 0]),
                codes=random_codes(2, num_streams=3, seed=seed),
                num_frames=torch.tensor([2, 1, 0]),
            )
            for seed in range(2)
        ]
        assert not any(columns[0].any() for columns in state.columns())
        outputs.append(torch.stack(calls))
    expected, found = outputs

    assert float((expected - found)[:, 0].abs().max()) < 1e-5
    assert float((expected - found)[:, 1, :1920].abs().max()) < 1e-5
