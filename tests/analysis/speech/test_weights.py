"""Weights are found in order, proved by hash, and never half-written."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from analysis.errors import WeightsError
from analysis.speech import weights as weights_module
from analysis.speech.ctranslate2 import read_whisper_file, to_openai_layout
from analysis.speech.weights import WeightsSource, cache_folder, find_weights, packaged_model_file

pytest.importorskip("whisper", reason="the `whisper` extra is not installed")

STATE = 4
TYPE_IDS = {"float32": 0, "int8": 1, "float16": 4}


def tiny_variables(*, key_bias=0.0):
    """A Whisper of one layer and width 4, in CTranslate2's names."""
    rng = np.random.default_rng(0)

    def weight(*shape):
        return rng.standard_normal(shape).astype(np.float16)

    found = {"encoder/num_heads": np.array(2, np.int8)}
    for conv, inputs in (("conv1", 3), ("conv2", STATE)):
        found[f"encoder/{conv}/weight"] = weight(STATE, inputs, 3)
        found[f"encoder/{conv}/bias"] = weight(STATE)
    found["decoder/embeddings/weight"] = weight(9, STATE)
    for stack in ("encoder", "decoder"):
        found[f"{stack}/position_encodings/encodings"] = weight(6, STATE)
        norms = [f"{stack}/layer_norm"]
        layer = f"{stack}/layer_0"
        norms += [f"{layer}/self_attention/layer_norm", f"{layer}/ffn/layer_norm"]
        linears = {
            f"{layer}/self_attention/linear_0": (3, 1),
            f"{layer}/self_attention/linear_1": (1, 1),
            f"{layer}/ffn/linear_0": (4, 1),
            f"{layer}/ffn/linear_1": (1, 4),
        }
        if stack == "decoder":
            norms.append(f"{layer}/attention/layer_norm")
            linears |= {f"{layer}/attention/linear_{i}": (n, 1) for i, n in enumerate((1, 2, 1))}
        for norm in norms:
            found[f"{norm}/gamma"], found[f"{norm}/beta"] = weight(STATE), weight(STATE)
        for name, (rows, columns) in linears.items():
            found[f"{name}/weight"] = weight(rows * STATE, columns * STATE)
            found[f"{name}/bias"] = weight(rows * STATE)
        found[f"{layer}/self_attention/linear_0/bias"][STATE : 2 * STATE] = key_bias
    found["decoder/layer_0/attention/linear_1/bias"][:STATE] = key_bias
    return found


def model_file(variables, *, spec="WhisperSpec", version=6):
    """The bytes of a CTranslate2 model file."""

    def text(value):
        raw = value.encode() + b"\0"
        return struct.pack("<H", len(raw)) + raw

    parts = [struct.pack("<I", version), text(spec), struct.pack("<I", 3)]
    parts.append(struct.pack("<I", len(variables)))
    for name, array in variables.items():
        shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        kind = struct.pack("<BI", TYPE_IDS[str(array.dtype)], array.nbytes)
        parts += [text(name), shape, kind, array.tobytes()]
    parts.append(struct.pack("<I", 1) + text("decoder/projection/weight"))
    parts.append(text("decoder/embeddings/weight"))
    return b"".join(parts)


def test_fused_projection_is_split_into_query_key_and_value():
    """Rows in order, values untouched."""
    variables = tiny_variables()
    state = to_openai_layout(read_whisper_file(model_file(variables))).state
    fused = variables["encoder/layer_0/self_attention/linear_0/weight"]

    for number, part in enumerate(("query", "key", "value")):
        rows = fused[number * STATE : (number + 1) * STATE]
        assert np.array_equal(rows, state[f"encoder.blocks.0.attn.{part}.weight"])


def test_dimensions_are_read_off_the_arrays():
    """Nothing about the size is assumed."""
    dims = to_openai_layout(read_whisper_file(model_file(tiny_variables()))).dims

    assert (3, 6, 4, 2, 1, 9) == tuple(
        dims[name]
        for name in (
            "n_mels",
            "n_audio_ctx",
            "n_audio_state",
            "n_audio_head",
            "n_audio_layer",
            "n_vocab",
        )
    )


def test_converted_state_loads_strictly_into_openai_code(tmp_path):
    """Every parameter is there, none is left over."""
    import torch
    from whisper.model import ModelDimensions, Whisper

    file = tmp_path / "model.bin"
    file.write_bytes(model_file(tiny_variables()))
    found = find_weights("mine", cache=tmp_path / "cache", path=file)
    checkpoint = torch.load(found.path, weights_only=True)

    result = Whisper(ModelDimensions(**checkpoint["dims"])).load_state_dict(
        checkpoint["model_state_dict"]
    )
    assert ([], []) == (result.missing_keys, result.unexpected_keys)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (model_file(tiny_variables())[:-9], "cut off"),
        (model_file(tiny_variables()) + b"x", "left over"),
        (model_file(tiny_variables(), spec="BertSpec"), "BertSpec"),
        (model_file(tiny_variables(), version=2), "version"),
        (b"", "cut off"),
    ],
    ids=["cut off", "longer", "another model", "old", "empty"],
)
def test_file_that_is_no_whole_whisper_model_is_refused(data, message):
    """Each fault by its name."""
    with pytest.raises(WeightsError, match=message):
        to_openai_layout(read_whisper_file(data))


def test_bias_on_keys_is_refused():
    """OpenAI's layout has no place for it; dropping it would change the model."""
    with pytest.raises(WeightsError, match="bias on its keys"):
        to_openai_layout(read_whisper_file(model_file(tiny_variables(key_bias=1.0))))


def test_quantised_file_is_refused():
    """Integers would need arithmetic, which a re-layout does not do."""
    variables = tiny_variables()
    variables["encoder/conv1/weight"] = variables["encoder/conv1/weight"].astype(np.int8)

    with pytest.raises(WeightsError, match="quantisation"):
        to_openai_layout(read_whisper_file(model_file(variables)))


def test_converted_weights_are_kept_and_found_again(tmp_path):
    """The second time is a cache hit of the same file."""
    file = tmp_path / "model.bin"
    file.write_bytes(model_file(tiny_variables()))
    first, second = (find_weights("mine", cache=tmp_path / "c", path=file) for _ in range(2))

    assert (WeightsSource.PATH, WeightsSource.CACHE) == (first.source, second.source)
    assert (first.path, first.origin_sha256) == (second.path, second.origin_sha256)


def test_damaged_cache_is_converted_anew(tmp_path):
    """A file that lost its hash is not loaded."""
    file = tmp_path / "model.bin"
    file.write_bytes(model_file(tiny_variables()))
    good = find_weights("mine", cache=tmp_path / "c", path=file).path
    whole = good.read_bytes()
    good.write_bytes(whole[:-5])

    assert WeightsSource.PATH == find_weights("mine", cache=tmp_path / "c", path=file).source
    assert len(whole) == len(good.read_bytes())


def test_packaged_file_with_another_hash_is_refused(tmp_path):
    """A package that changed under its name is not trusted."""
    file = tmp_path / "model.bin"
    file.write_bytes(model_file(tiny_variables()))

    with pytest.raises(WeightsError, match=r"SHA-256 is .* expected 1a5afae0"):
        find_weights(cache=tmp_path / "c", packaged=lambda: file)


def test_absent_weights_say_what_to_do(tmp_path):
    """Install, name a file, or allow a download: exit code 7."""
    with pytest.raises(WeightsError, match=r"--whisper-weights.*--allow-download") as caught:
        find_weights(cache=tmp_path, packaged=lambda: None)

    assert 7 == caught.value.exit_code


def test_missing_path_is_named(tmp_path):
    """A given path is never replaced by something else."""
    with pytest.raises(WeightsError, match=r"nowhere.pt: no such file"):
        find_weights(cache=tmp_path, path=tmp_path / "nowhere.pt")


def test_file_of_neither_kind_is_named(tmp_path):
    """With what would do."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"\xff\xd8 no weights at all")

    with pytest.raises(WeightsError, match=r"photo\.jpg: not a CTranslate2 .*; give an OpenAI"):
        find_weights("tiny.en", cache=tmp_path, path=path)


def test_unknown_model_name_lists_the_known(tmp_path):
    """A wrong name is not a download."""
    with pytest.raises(WeightsError, match=r"'tony.en'.*tiny.en"):
        find_weights("tony.en", cache=tmp_path, allow_download=True)


def test_nothing_is_downloaded_unless_allowed(tmp_path, monkeypatch):
    """The network is asked only on demand."""
    asked = []
    monkeypatch.setattr(weights_module, "_download", lambda *args: asked.append(args))
    with pytest.raises(WeightsError):
        find_weights("base", cache=tmp_path)

    assert [] == asked


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"EARWITNESS_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/earwitness"),
    ],
)
def test_cache_follows_its_own_variable_then_xdg(environ, expected):
    """In that order."""
    assert expected == str(cache_folder(environ))


def test_packaged_tiny_en_hears_nothing_in_noise(tmp_path):
    """The real weights, converted, load strictly; noise is answered by no words."""
    if packaged_model_file() is None:
        pytest.skip("the packaged tiny.en is not installed (`whisper` extra)")
    from analysis.speech.transcribers import Guard, transcribe
    from analysis.speech.whisper_local import WhisperTranscriber

    found = find_weights(cache=tmp_path)
    noise = np.random.default_rng(0).normal(0, 0.1, 32_000).astype(np.float32)
    heard = transcribe(WhisperTranscriber(found), noise, 16_000)

    assert (WeightsSource.PACKAGED, "", Guard.NO_SPEECH) == (found.source, heard.text, heard.guard)


def test_file_that_is_no_checkpoint_is_refused(tmp_path):
    """One line, not a traceback of the unpickler."""
    from analysis.speech.whisper_local import WhisperTranscriber

    file = tmp_path / "x.pt"
    file.write_bytes(b"PK\x03\x04 not a checkpoint")
    with pytest.raises(WeightsError, match="not a Whisper checkpoint"):
        WhisperTranscriber(find_weights("x", cache=tmp_path, path=file))
