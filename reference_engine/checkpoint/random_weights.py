"""Random values for every tensor, spread so that a mistake anywhere shows in the output.

Fresh modules hide mistakes: their codebooks are zero, their layer scales 0.01, their snakes flat.
Here every tensor is random, scores are wide enough that greedy choices are seldom near-ties, end
of speech wins now and then, and the wave stays clear of the clamp.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from reference_engine.codec.decoder import CodecModel, codec_step
from reference_engine.codec.state import allocate
from reference_engine.model.config import ModelConfig
from reference_engine.model.tensor_table import Shape, TensorTable

__all__ = ["random_codec_tensors", "random_model_tensors", "wave_peak"]

# Standard deviation of the scores: the best of 2,048 then leads the second by about 1.
_SCORE_SPREAD = 3.0
# End of speech has wider scores than its 2,048 rivals: it wins about one step in thirty.
_EOS_SPREAD = 1.9
# Sixteen embeddings are summed to one row of about unit variance.
_CODE_EMBEDDING_SPREAD = 0.25
# Share of codebook entries that were never used, as real codebooks have.
_UNUSED_ENTRIES = 0.01
_MIN_CLUSTER_USAGE = 1e-5
_PEAK_FRAMES = 12


def random_model_tensors(
    table: TensorTable, config: ModelConfig, *, generator: torch.Generator
) -> dict[str, Tensor]:
    """Fill talker and predictor in bf16, the dtype of the published file."""
    tensors = {
        name: _model_tensor(name, shape, generator).to(torch.bfloat16)
        for name, shape in table.items()
    }
    tensors["talker.codec_head.weight"][config.ids.codec_eos] *= _EOS_SPREAD
    return tensors


def random_codec_tensors(table: TensorTable, *, generator: torch.Generator) -> dict[str, Tensor]:
    """Fill the codec's decoder in fp32, the dtype of the published file."""
    tensors = {name: _codec_tensor(name, shape, generator) for name, shape in table.items()}
    for name in [name for name in tensors if name.endswith("cluster_usage")]:
        usage = tensors[name]
        usage[torch.rand(usage.shape, generator=generator) < _UNUSED_ENTRIES] = 0.0
        # The file holds sums; dividing by the usage must give back unit vectors.
        book = name.removesuffix("cluster_usage") + "embedding_sum"
        tensors[book] *= usage.clamp(min=_MIN_CLUSTER_USAGE)[:, None]
    return tensors


def _normal(shape: Shape, spread: float, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator) * spread


def _model_tensor(name: str, shape: Shape, generator: torch.Generator) -> Tensor:
    if name.endswith("norm.weight"):
        return 1.0 + _normal(shape, 0.1, generator)
    if name.endswith(".bias"):
        return _normal(shape, 0.1, generator)
    if "text_embedding" in name:
        return _normal(shape, 1.0, generator)
    if "codec_embedding" in name:
        return _normal(shape, _CODE_EMBEDDING_SPREAD, generator)
    spread = _SCORE_SPREAD if "head" in name else 1.0
    return _normal(shape, spread * shape[1] ** -0.5, generator)


def _codec_tensor(name: str, shape: Shape, generator: torch.Generator) -> Tensor:
    if name.endswith("cluster_usage"):
        return 0.5 + torch.rand(shape, generator=generator)
    if name.endswith("norm.weight"):
        return 1.0 + _normal(shape, 0.1, generator)
    if name.endswith((".scale", ".gamma")):
        return 0.4 + _normal(shape, 0.1, generator)
    if name.endswith(".alpha"):
        # Slow snakes: fast ones amplify rounding from layer to layer until it drowns a real error.
        return _normal(shape, 0.3, generator) - 1.0
    if name.endswith(".beta"):
        return _normal(shape, 0.3, generator)
    if name.endswith(".bias"):
        return _normal(shape, 0.1, generator)
    if name.endswith("embedding_sum"):
        return _normal(shape, 1.0, generator)
    return _normal(shape, _fan_in(name, shape) ** -0.5, generator)


def _fan_in(name: str, shape: Shape) -> float:
    """Inputs that meet in one output."""
    if len(shape) == 2:
        return shape[1]
    is_block = ".block.1.conv" in name
    is_doubling = name.startswith("decoder.upsample") and ".0.conv" in name
    if is_block or is_doubling:
        # Transposed [in, out, kernel]: two kernel taps meet where the kernel is twice the stride.
        return shape[0] * (2 if is_block else 1)
    return shape[1] * shape[2]


def wave_peak(codec: CodecModel, *, generator: torch.Generator) -> float:
    """Largest sample of a short random utterance; meaningful while nothing is clamped."""
    config = codec.config
    codes = torch.randint(
        config.codebook_size, (1, _PEAK_FRAMES, config.num_codebooks), generator=generator
    )
    state = allocate(config, 2, device="cpu", dtype=torch.float32)
    samples = codec_step(
        codec,
        state,
        torch.ones(1, dtype=torch.int64),
        codes=codes,
        num_frames=torch.full((1,), _PEAK_FRAMES),
    )
    return float(samples.abs().max())


def scale_last_convolution(tensors: Mapping[str, Tensor], name: str, *, factor: float) -> None:
    """Make the wave quieter or louder, in place."""
    for part in ("weight", "bias"):
        tensors[f"{name}.{part}"].mul_(factor)
