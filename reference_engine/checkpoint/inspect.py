"""Look into a checkpoint: read every header, check it against its config, count parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reference_engine.codec.weights import CODEC_DTYPES
from reference_engine.model.config import CodecConfig, ModelConfig
from reference_engine.model.config_reader import (
    CODEC_FOLDER,
    read_codec_config,
    read_model_config,
)
from reference_engine.model.tensor_files import TensorFiles
from reference_engine.model.tensor_table import (
    IGNORED_CODEC_PREFIXES,
    IGNORED_MODEL_PREFIXES,
    TensorTable,
    codec_tensors,
    model_tensors,
)
from reference_engine.model.text.tokenizer import load_tokenizer
from reference_engine.model.weights import MODEL_DTYPES

__all__ = ["CheckpointReport", "PartReport", "inspect_checkpoint", "num_parameters"]


@dataclass(frozen=True, slots=True)
class PartReport:
    """One tensor file, or its shards."""

    num_tensors: int
    num_parameters: int
    num_ignored: int
    dtypes: Mapping[str, int]  # dtype -> tensors
    checked_values: bool


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint that fits its own config."""

    folder: Path
    config: ModelConfig
    codec_config: CodecConfig
    model: PartReport
    codec: PartReport
    num_reserved_strings: int


def inspect_checkpoint(folder: Path, *, check_values: bool = False) -> CheckpointReport:
    """Check a checkpoint as the loader would, without loading it.

    Args:
        folder: of the checkpoint.
        check_values: read every tensor too, looking for NaN and infinities.

    Raises:
        CheckpointError: anything missing, unknown, misshapen or unsupported.
    """
    config, codec_config = read_model_config(folder), read_codec_config(folder)
    return CheckpointReport(
        folder=folder,
        config=config,
        codec_config=codec_config,
        model=_part(
            folder,
            model_tensors(config),
            ignored=IGNORED_MODEL_PREFIXES,
            dtypes=MODEL_DTYPES,
            check_values=check_values,
        ),
        codec=_part(
            folder / CODEC_FOLDER,
            codec_tensors(codec_config),
            ignored=IGNORED_CODEC_PREFIXES,
            dtypes=CODEC_DTYPES,
            check_values=check_values,
        ),
        num_reserved_strings=len(load_tokenizer(folder, config).reserved),
    )


def _part(
    folder: Path,
    table: TensorTable,
    *,
    ignored: tuple[str, ...],
    dtypes: tuple[str, ...],
    check_values: bool,
) -> PartReport:
    with TensorFiles(folder) as files:
        files.check(table, ignored=ignored, dtypes=dtypes)
        if check_values:
            for name in table:
                files.read(name)
        counts = Counter(files.tensors[name].dtype for name in table)
        return PartReport(
            num_tensors=len(table),
            num_parameters=num_parameters(table),
            num_ignored=len(files.tensors) - len(table),
            dtypes=dict(counts),
            checked_values=check_values,
        )


def num_parameters(table: TensorTable) -> int:
    """Values in all tensors of a table."""
    total = 0
    for shape in table.values():
        size = 1
        for length in shape:
            size *= length
        total += size
    return total
