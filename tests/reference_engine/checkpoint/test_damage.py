"""A checkpoint that is not what it should be ends in one line: where, what, what was expected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from reference_engine.codec.weights import load_codec
from reference_engine.errors import CheckpointError
from reference_engine.model.config_reader import read_model_config
from reference_engine.model.text.tokenizer import load_tokenizer
from reference_engine.model.weights import load_model

NORM = "talker.model.norm.weight"
CODEC = "speech_tokenizer"


@pytest.fixture
def folder(micro_folder: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(micro_folder, tmp_path / "damaged")
    return tmp_path / "damaged"


def _load(folder: Path) -> None:
    load_model(folder, device="cpu", dtype=torch.float32)
    load_codec(folder, device="cpu")
    load_tokenizer(folder, read_model_config(folder))


def _line(folder: Path) -> str:
    """The one line that loading ends in."""
    with pytest.raises(CheckpointError) as caught:
        _load(folder)
    text = str(caught.value)
    assert "\n" not in text
    assert 7 == caught.value.exit_code
    return text.replace(str(folder), "FOLDER")


def _edit(path: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def _edit_json(path: Path, change: Callable[[dict], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def test_a_whole_checkpoint_loads(folder: Path):
    """The copy is sound before it is damaged."""
    _load(folder)


@pytest.mark.parametrize("part", ["", f"{CODEC}/"])
def test_a_truncated_file_is_named(folder: Path, part: str):
    """Half a download."""
    path = folder / f"{part}model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    line = _line(folder)

    assert line.startswith(f"FOLDER/{part}model.safetensors: damaged or truncated")
    assert line.endswith("fetch the file again")


def test_a_missing_tensor_is_named(folder: Path):
    """With how many others."""
    _edit(folder / "model.safetensors", lambda tensors: tensors.pop(NORM))

    assert f"FOLDER/model.safetensors: missing tensor {NORM}" == _line(folder)


def test_an_unknown_tensor_is_named(folder: Path):
    """It would otherwise be silently left out of the model."""
    _edit(folder / "model.safetensors", lambda t: t.update({"talker.extra": torch.ones(1)}))

    assert _line(folder).startswith("FOLDER/model.safetensors: unknown tensor talker.extra")


def test_a_speaker_encoder_is_ignored(folder: Path):
    """Base checkpoints carry one; a voice here is one embedding row."""
    _edit(folder / "model.safetensors", lambda t: t.update({"speaker_encoder.x": torch.ones(1)}))

    _load(folder)


def test_a_wrong_shape_is_named_with_the_one_expected(folder: Path):
    """The config says what it should be."""
    _edit(folder / "model.safetensors", lambda t: t.update({NORM: t[NORM][:32].clone()}))

    assert f"FOLDER/model.safetensors: {NORM}: shape [32], but config.json makes it [64]" == _line(
        folder
    )


@pytest.mark.parametrize(
    ("part", "name", "dtype", "expected"),
    [
        ("", NORM, torch.float16, "dtype F16, expected BF16 or F32"),
        ("", NORM, torch.int8, "dtype I8, expected BF16 or F32"),
        (f"{CODEC}/", "decoder.pre_conv.conv.bias", torch.bfloat16, "dtype BF16, expected F32"),
    ],
)
def test_a_wrong_dtype_is_named(
    folder: Path, part: str, name: str, dtype: torch.dtype, expected: str
):
    """The codec's rounding is audible and the talker's fp16 would overflow."""
    path = folder / f"{part}model.safetensors"
    _edit(path, lambda tensors: tensors.update({name: tensors[name].to(dtype)}))

    assert f"FOLDER/{part}model.safetensors: {name}: {expected}" == _line(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_named(folder: Path, value: float):
    """One NaN makes every voice silent."""

    def poison(tensors: dict[str, Tensor]) -> None:
        tensors["talker.codec_head.weight"][7, 3] = value

    _edit(folder / "model.safetensors", poison)

    assert _line(folder) == (
        "FOLDER/model.safetensors: talker.codec_head.weight: holds a NaN or an infinity; "
        "fetch the file again"
    )


def _shard(folder: Path) -> None:
    """Split the single file in two with an index."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_load_as_the_single_file(folder: Path, micro_folder: Path):
    """Two shards and an index hold the same model."""
    _shard(folder)

    sharded = load_model(folder, device="cpu", dtype=torch.float32)

    single = load_model(micro_folder, device="cpu", dtype=torch.float32)
    assert torch.equal(single.code_table, sharded.code_table)
    assert torch.equal(single.talker.stack.layers[1].qkv, sharded.talker.stack.layers[1].qkv)


def test_a_missing_shard_is_named(folder: Path):
    """The index promises it."""
    _shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()

    assert _line(folder) == (
        "FOLDER/model-00002-of-00002.safetensors: not found; a shard is missing"
    )


def test_no_weights_at_all(folder: Path):
    """Neither a file nor an index."""
    (folder / "model.safetensors").unlink()

    assert "FOLDER: holds neither model.safetensors nor model.safetensors.index.json" == _line(
        folder
    )


@pytest.mark.parametrize(
    ("file", "change", "line"),
    [
        (
            "config.json",
            lambda c: c["talker_config"].update(hidden_act="gelu"),
            "FOLDER/config.json: talker_config: hidden_act: 'gelu' is not supported, only 'silu'",
        ),
        (
            "config.json",
            lambda c: c["talker_config"].pop("head_dim"),
            "FOLDER/config.json: talker_config: head_dim: is missing; the checkpoint must state it",
        ),
        (
            "config.json",
            lambda c: c.update(tts_model_type="base"),
            "FOLDER/config.json: tts_model_type: 'base' is not supported, only 'custom_voice'",
        ),
        (
            "config.json",
            lambda c: c["talker_config"].update(attention_bias=True),
            "FOLDER/config.json: talker_config: attention_bias: True is not supported, only False",
        ),
        (
            "config.json",
            lambda c: c["talker_config"]["rope_scaling"].update(rope_type="yarn", type="yarn"),
            "FOLDER/config.json: talker_config: rope_scaling: type: 'yarn' is not supported, only"
            " 'default'",
        ),
        (
            "config.json",
            lambda c: c["talker_config"]["rope_scaling"].update(mrope_section=[1, 2]),
            "FOLDER/config.json: talker_config: rope_scaling: mrope_section: [1, 2] does not add up"
            " to 16",
        ),
        (
            "config.json",
            lambda c: c["talker_config"]["code_predictor_config"].update(num_code_groups=32),
            "FOLDER/config.json: talker_config: code_predictor_config: num_code_groups: 32 is not"
            " supported, only 16",
        ),
        (
            "config.json",
            lambda c: c["talker_config"]["spk_id"].update(ryan=9000),
            "FOLDER/config.json: talker_config: spk_id: ryan: id 9000 is outside the vocabulary of"
            " 3072",
        ),
        (
            "config.json",
            lambda c: c["talker_config"]["spk_is_dialect"].update(eric="klingon"),
            "FOLDER/config.json: talker_config: spk_is_dialect: eric: 'klingon' is not false and"
            " not a name of codec_language_id",
        ),
        (
            "config.json",
            lambda c: c.update(tts_pad_token_id="505"),
            "FOLDER/config.json: tts_pad_token_id: '505' is not a whole number of at least 0",
        ),
        (
            "generation_config.json",
            lambda c: c.update(do_sample="yes"),
            "FOLDER/generation_config.json: do_sample: 'yes' is not true or false",
        ),
        (
            f"{CODEC}/config.json",
            lambda c: c.update(decode_upsample_rate=2000),
            f"FOLDER/{CODEC}/config.json: decode_upsample_rate: 2000 is not supported, only 1920",
        ),
        (
            f"{CODEC}/config.json",
            lambda c: c["decoder_config"].update(upsample_rates=[8, 5, 4, 0]),
            f"FOLDER/{CODEC}/config.json: decoder_config: upsample_rates: [8, 5, 4, 0] is not a"
            " list of whole numbers above 0",
        ),
        (
            "vocab.json",
            lambda c: c.update({"extra": 2_000}),
            "FOLDER/vocab.json: extra: id 2000 is outside the vocabulary of 600",
        ),
        (
            "vocab.json",
            lambda c: c.pop("a"),
            "FOLDER/vocab.json: lacks 1 of the 256 byte symbols",
        ),
        (
            "tokenizer_config.json",
            lambda c: c["added_tokens_decoder"]["501"].update(content="<start>"),
            "FOLDER/tokenizer_config.json: added_tokens_decoder: 501: is '<start>', expected"
            " '<|im_start|>' (config.json)",
        ),
        (
            "tokenizer_config.json",
            lambda c: c["added_tokens_decoder"].pop("505"),
            "FOLDER/tokenizer_config.json: added_tokens_decoder: 505: is missing; config.json"
            " names it as tts_pad",
        ),
    ],
)
def test_a_wrong_setting_is_named_by_file_and_key(
    folder: Path, file: str, change: Callable[[dict], object], line: str
):
    """What this engine does not implement is refused, never guessed."""
    _edit_json(folder / file, change)

    assert line == _line(folder)


def test_a_vocabulary_of_another_model_is_refused(folder: Path):
    """The role must be three tokens, for the prompt is cut there."""
    merges = folder / "merges.txt"
    lines = merges.read_text().splitlines()
    merges.write_text("\n".join(line for line in lines if line != "assistan t") + "\n")

    assert "expected three tokens" in _line(folder)


def test_merges_that_do_not_fit_the_vocabulary_are_refused(folder: Path):
    """A merge of symbols that are no entries."""
    with (folder / "merges.txt").open("a") as file:
        file.write("qq zz\n")

    assert _line(folder).startswith("FOLDER/merges.txt: does not fit vocab.json")


@pytest.mark.parametrize("file", ["config.json", f"{CODEC}/config.json", "vocab.json"])
def test_a_missing_file_is_named(folder: Path, file: str):
    """Is this a checkpoint at all?"""
    (folder / file).unlink()

    assert f"FOLDER/{file}: not found; is this a Qwen3-TTS checkpoint folder?" == _line(folder)


def test_a_file_that_is_not_json_is_named(folder: Path):
    """An error page saved as config.json."""
    (folder / "config.json").write_text("<html>")

    assert _line(folder).startswith("FOLDER/config.json: not valid JSON")
