"""Launches of a step: counted without a GPU, plain and as the fused kernels would have it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from reference_engine.batch import Stage
from reference_engine.config import load_profile
from reference_engine.kernels import FUSED_NAMES, REFERENCE_KERNELS
from reference_engine.launches import LaunchCounter, count_launches, fused_names
from tests.builders.checkpoints import Loaded
from tests.builders.model_engine import settings
from tests.builders.real_shape import load_shapes

# Two layers each: the real model has 28 and 5.
MAX_FUSED_FRAME = 460
# 28 layers and 15 passes over 5, nine launches each, are 927; draws and what lies between the rest.
MAX_REAL_FRAME = 1_085


def test_views_and_empty_tensors_launch_nothing():
    """A product and a sum are two; what only names memory is none."""
    x = torch.ones(4, 4)

    def step() -> None:
        torch.empty(3)
        x.t()[:3].unsqueeze(0).transpose(0, 1)[:, 0].mm(x[:, 1:3]).view(-1).sum()

    assert 2 == LaunchCounter().count(step)


def test_a_fused_kernel_is_one_launch_whatever_is_inside():
    """A kernel that calls another included."""
    counter = LaunchCounter()
    kernels = counter.wrap(REFERENCE_KERNELS, ("rms_norm",))
    x = torch.ones(2, 8)

    plain = LaunchCounter().count(lambda: REFERENCE_KERNELS.rms_norm(x, x[0], eps=1e-6))

    assert 1 == counter.count(lambda: kernels.rms_norm(x, x[0], eps=1e-6))
    assert plain > 1


def test_fused_kernels_cut_the_launches_of_a_frame(
    tiny: Loaded, capsys: pytest.CaptureFixture[str]
):
    """To under 460 at two layers each, whichever sampler; the plain twins take twice as many."""
    counts = {
        (sampler, as_fused): count_launches(
            tiny.model, tiny.codec, settings(sampler=sampler), as_fused=as_fused
        )
        for sampler in ("capped", "any")
        for as_fused in (True, False)
    }
    print({key: {s.name.lower(): n for s, n in each.items()} for key, each in counts.items()})

    frames = {key: each[Stage.FRAME] for key, each in counts.items()}
    assert max(frames["capped", True], frames["any", True]) <= MAX_FUSED_FRAME
    assert 2 * frames["capped", True] < frames["capped", False]
    assert counts["capped", True][Stage.CODEC] < counts["capped", False][Stage.CODEC]


def test_on_a_cpu_the_models_own_kernels_are_the_plain_ones(tiny: Loaded):
    """Nothing is counted as fused that is not."""
    own = count_launches(tiny.model, tiny.codec, settings(sampler="greedy"))

    assert () == fused_names(tiny.model.kernels)
    assert own == count_launches(tiny.model, tiny.codec, settings(sampler="greedy"), as_fused=False)


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed on this platform"
)
def test_the_list_of_fused_kernels_is_the_set_itself():
    """What is counted as one launch is one."""
    from reference_engine.kernels.fused import FUSED_KERNELS

    assert set(FUSED_NAMES) == set(fused_names(FUSED_KERNELS))


def test_a_frame_of_the_real_model_is_about_a_thousand_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The 1.7B shape in bf16, counted on no device: talker, predictor and codec too."""
    model, codec = load_shapes(tmp_path / "1.7b", "1.7b", REFERENCE_KERNELS, monkeypatch)

    fused, plain = (
        {stage: n for stages in ("fused", "split") for stage, n in count_launches(
            model, codec, load_profile("ttfa", overrides={"stages": stages}), as_fused=as_fused
        ).items()}
        for as_fused in (True, False)
    )  # fmt: skip

    for stage, count in fused.items():
        print(f"{stage.name.lower()}: {count} launches fused, {plain[stage]} plain")
    assert fused[Stage.FRAME] <= MAX_REAL_FRAME
    assert 2 * fused[Stage.FRAME] < plain[Stage.FRAME]
    # Each half of a split frame draws the row's random numbers and copies its flags.
    assert 0 <= fused[Stage.TALKER] + fused[Stage.PREDICTOR] - fused[Stage.FRAME] <= 10
