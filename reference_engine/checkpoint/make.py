"""Write a random checkpoint in the official layout, labelled random wherever one might look."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from reference_engine.checkpoint.config_files import config_files
from reference_engine.checkpoint.random_weights import (
    random_codec_tensors,
    random_model_tensors,
    scale_last_convolution,
    wave_peak,
)
from reference_engine.checkpoint.shapes import CheckpointShape, check_new_folder, shape_named
from reference_engine.checkpoint.tokenizer_files import tokenizer_files
from reference_engine.codec.weights import load_codec
from reference_engine.model.config_reader import CODEC_FOLDER
from reference_engine.model.tensor_table import codec_tensors, model_tensors

__all__ = ["LABEL_FILE", "MadeCheckpoint", "make_checkpoint", "write_checkpoint"]

LABEL_FILE = "RANDOM-WEIGHTS.txt"
_WEIGHTS = "model.safetensors"
# Loud enough to hear that it is noise, far enough from 1 that no clamp hides a wrong sample.
_PEAK = 0.4


@dataclass(frozen=True, slots=True)
class MadeCheckpoint:
    """What was written."""

    folder: Path
    num_tensors: int
    num_parameters: int
    num_codec_tensors: int
    num_codec_parameters: int


def make_checkpoint(folder: Path, *, shape: str, seed: int) -> MadeCheckpoint:
    """Write a random checkpoint of a named shape into a new folder.

    Raises:
        ArgumentError: the shape is unknown, or the folder already holds something.
    """
    chosen = shape_named(shape)
    label = f"random numbers, shape {shape}, seed {seed}: speaks noise, proves nothing about voices"
    return write_checkpoint(folder, chosen, label=label, seed=seed)


def write_checkpoint(
    folder: Path, shape: CheckpointShape, *, label: str, seed: int
) -> MadeCheckpoint:
    """Write a random checkpoint of any shape into a new folder.

    Args:
        folder: created; must not hold anything.
        shape: both halves.
        label: what the weights are, stored in config.json, in both tensor files and in a text.
        seed: of every value.

    Raises:
        ArgumentError: the folder already holds something.
    """
    check_new_folder(folder)
    (folder / CODEC_FOLDER).mkdir(parents=True)
    _write_texts(folder, shape, label)
    generator = torch.Generator().manual_seed(seed)
    model = random_model_tensors(model_tensors(shape.model), shape.model, generator=generator)
    _save(model, folder / _WEIGHTS, label=label)
    counts = (len(model), _num_parameters(model))
    del model  # 3.8 GB at the full shape
    codec = _write_codec(folder, shape, label=label, generator=generator)
    return MadeCheckpoint(
        folder=folder,
        num_tensors=counts[0],
        num_parameters=counts[1],
        num_codec_tensors=len(codec),
        num_codec_parameters=_num_parameters(codec),
    )


def _write_texts(folder: Path, shape: CheckpointShape, label: str) -> None:
    (folder / LABEL_FILE).write_text(f"These weights are {label}.\n", encoding="utf-8")
    files: dict[str, object] = {**config_files(shape, random_weights=label)}
    files |= tokenizer_files(shape.model.ids)
    for name, content in files.items():
        text = (
            content
            if isinstance(content, str)
            else json.dumps(content, ensure_ascii=False, indent=2)
        )
        (folder / name).write_text(text, encoding="utf-8")


def _write_codec(
    folder: Path, shape: CheckpointShape, *, label: str, generator: torch.Generator
) -> dict[str, Tensor]:
    """Fill and save the codec, its last convolution scaled so that the wave peaks at 0.4."""
    tensors = random_codec_tensors(codec_tensors(shape.codec), generator=generator)
    last = f"decoder.decoder.{len(shape.codec.upsample_rates) + 2}.conv"
    path = folder / CODEC_FOLDER / _WEIGHTS
    # First so quiet that nothing can clamp, then measured, then scaled to the peak wanted.
    scale_last_convolution(tensors, last, factor=1e-3)
    _save(tensors, path, label=label)
    measured = wave_peak(load_codec(folder, device="cpu"), generator=generator)
    scale_last_convolution(tensors, last, factor=_PEAK / measured)
    _save(tensors, path, label=label)
    return tensors


def _save(tensors: dict[str, Tensor], path: Path, *, label: str) -> None:
    save_file(tensors, str(path), metadata={"format": "pt", "random_weights": label})


def _num_parameters(tensors: dict[str, Tensor]) -> int:
    return sum(value.numel() for value in tensors.values())
