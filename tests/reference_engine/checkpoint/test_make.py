"""Random checkpoints: the official layout, the published sizes, labelled random everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from reference_engine.checkpoint.inspect import inspect_checkpoint, num_parameters
from reference_engine.checkpoint.make import LABEL_FILE, make_checkpoint
from reference_engine.checkpoint.shapes import SHAPES
from reference_engine.errors import ArgumentError
from reference_engine.model.config_reader import read_codec_config, read_model_config
from reference_engine.model.tensor_table import codec_tensors, model_tensors
from tests.builders import checkpoints


@pytest.mark.parametrize(
    ("shape", "num_tensors", "parameters"),
    [("1.7b", 404, 1_916_676_352), ("0.6b", 402, 905_788_672)],
)
def test_the_real_shapes_have_the_published_sizes(shape: str, num_tensors: int, parameters: int):
    """Tensors and parameters as byte counts of the published files give them."""
    table = model_tensors(SHAPES[shape].model)

    assert num_tensors == len(table)
    assert parameters == num_parameters(table)


def test_the_real_codec_has_the_published_size():
    """114,323,137 parameters in the decoder, less the two projections that only encoding uses."""
    unused = 2 * 256 * 512

    assert 114_323_137 - unused == num_parameters(codec_tensors(SHAPES["1.7b"].codec))


@pytest.mark.parametrize("shape", ["tiny", "tiny-0.6b"])
def test_a_checkpoint_reads_back_as_its_shape(tmp_path: Path, shape: str):
    """Config files and config classes agree on every value."""
    folder = checkpoints.make(tmp_path / "made", shape=shape)
    config = read_model_config(folder)

    assert SHAPES[shape].codec == read_codec_config(folder)
    assert config.random_weights
    for name in config.__dataclass_fields__:
        if name != "random_weights":
            assert getattr(SHAPES[shape].model, name) == getattr(config, name), name


def test_the_smaller_model_takes_no_instruction_and_has_no_projection():
    """The two differences besides widths."""
    small, large = SHAPES["0.6b"].model, SHAPES["1.7b"].model

    assert (False, True) == (small.takes_instructions, large.takes_instructions)
    assert (False, True) == (small.predictor.has_projection, large.predictor.has_projection)


def test_the_same_seed_gives_the_same_weights(tmp_path: Path, micro_folder: Path):
    """And another seed other ones, in both parts."""

    def weights(folder: Path) -> dict[str, torch.Tensor]:
        parts = (folder, folder / "speech_tokenizer")
        return {
            name: value
            for part in parts
            for name, value in load_file(part / "model.safetensors").items()
        }

    first, again, other = (
        weights(folder)
        for folder in (
            micro_folder,
            checkpoints.make_micro(tmp_path / "again"),
            checkpoints.make_micro(tmp_path / "other", seed=1),
        )
    )

    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_randomness_is_written_wherever_one_might_look(micro_folder: Path):
    """Config, both tensor files, a text, and what inspection says."""
    assert "random" in (micro_folder / LABEL_FILE).read_text()
    assert "random" in json.loads((micro_folder / "config.json").read_text()).get(
        "earwitness_random_weights"
    )
    for file in ("model.safetensors", "speech_tokenizer/model.safetensors"):
        with safe_open(str(micro_folder / file), "pt") as handle:
            assert "random" in handle.metadata()["random_weights"]
    assert "random" in inspect_checkpoint(micro_folder).config.random_weights


def test_inspection_counts_what_is_there(micro_folder: Path):
    """Tensors, parameters and dtypes of both parts, values read on demand."""
    report = inspect_checkpoint(micro_folder, check_values=True)

    assert 85 == report.model.num_tensors
    assert {"BF16": 85} == report.model.dtypes
    assert {"F32": report.codec.num_tensors} == report.codec.dtypes
    assert report.model.checked_values


def test_an_unknown_shape_lists_what_there_is(tmp_path: Path):
    """With the nearest right word."""
    with pytest.raises(ArgumentError, match=r"'tny' is not one of tiny, .*did you mean 'tiny'"):
        make_checkpoint(tmp_path / "x", shape="tny", seed=0)


def test_a_folder_is_never_written_over(tmp_path: Path):
    """It may hold real weights."""
    (tmp_path / "model.safetensors").write_text("precious")

    with pytest.raises(ArgumentError, match="already exists; name a new folder"):
        make_checkpoint(tmp_path, shape="tiny", seed=0)
