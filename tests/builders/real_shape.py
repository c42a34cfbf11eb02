"""The real model without its numbers: tensors on the meta device, with a shape and no value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from reference_engine.checkpoint.config_files import config_files
from reference_engine.checkpoint.shapes import SHAPES
from reference_engine.codec import weights as codec_weights
from reference_engine.codec.decoder import CodecModel
from reference_engine.kernels import KernelSet
from reference_engine.model import weights as model_weights
from reference_engine.model.config_reader import CODEC_FOLDER
from reference_engine.model.tts_model import TtsModel


class _ShapesAlone:
    """Stands in for `TensorFiles`: every tensor that is asked for, on the meta device."""

    def __init__(self, folder: Path) -> None:
        self._is_codec = folder.name == CODEC_FOLDER

    def __enter__(self) -> _ShapesAlone:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def check(self, table: dict[str, tuple[int, ...]], **rules: object) -> None:
        self._table = table

    def read(self, name: str) -> Tensor:
        dtype = torch.float32 if self._is_codec else torch.bfloat16
        return torch.empty(self._table[name], dtype=dtype, device="meta")


def write_configs(folder: Path, shape: str) -> None:
    """What a checkpoint says of itself, without its tensors."""
    (folder / CODEC_FOLDER).mkdir(parents=True)
    for name, content in config_files(SHAPES[shape], random_weights="no numbers at all").items():
        (folder / name).write_text(json.dumps(content))


def load_shapes(
    folder: Path, shape: str, kernels: KernelSet, monkeypatch: pytest.MonkeyPatch
) -> tuple[TtsModel, CodecModel]:
    """A checkpoint of a real shape in bf16 with an fp32 codec, no tensor of which has values."""
    write_configs(folder, shape)
    for module in (model_weights, codec_weights):
        monkeypatch.setattr(module, "TensorFiles", _ShapesAlone)
    model = model_weights.load_model(folder, device="meta", dtype=torch.bfloat16, kernels=kernels)
    return model, codec_weights.load_codec(folder, device="meta", kernels=kernels)
