"""Read Whisper weights stored for CTranslate2 and lay them out as OpenAI's code expects them.

The file is a flat list of named arrays. The conversion is a re-layout only: fused projections are
split and names are mapped; no arithmetic touches a weight. OpenAI's key projection has no bias, so
the rows that the fused bias spends on it must all be zero, and that is checked.

Source: the binary format of CTranslate2 model files (version 3 and later) as its own reader
defines it, and the parameter names of `whisper.model`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.errors import WeightsError

__all__ = ["OpenAiLayout", "WhisperFile", "read_whisper_file", "to_openai_layout"]

Array = NDArray[np.generic]

_SPEC = "WhisperSpec"
_MIN_VERSION = 3
_DTYPES: Mapping[int, type[np.generic]] = {
    0: np.float32,
    1: np.int8,
    2: np.int16,
    3: np.int32,
    4: np.float16,
}
_FLOATS = (np.float32, np.float16)


@dataclass(frozen=True, slots=True)
class WhisperFile:
    """Named arrays of one model file, aliases resolved."""

    version: int
    variables: Mapping[str, Array]

    def array(self, name: str) -> Array:
        """One variable.

        Raises:
            WeightsError: the file has none of that name, or it is quantised.
        """
        try:
            found = self.variables[name]
        except KeyError:
            raise WeightsError(f"CTranslate2 model file: no variable {name!r}") from None
        return found

    def weights(self, name: str) -> Array:
        """One floating-point variable; quantised files cannot be re-laid without arithmetic."""
        found = self.array(name)
        if found.dtype.type not in _FLOATS:
            raise WeightsError(
                f"CTranslate2 model file: {name} is {found.dtype}, expected float16 or float32;"
                " use a model that was stored without quantisation"
            )
        return found


@dataclass(frozen=True, slots=True)
class OpenAiLayout:
    """What `whisper.load_model` wants in a checkpoint: dimensions and a state dict of arrays."""

    dims: Mapping[str, int]
    state: Mapping[str, Array]


class _Cursor:
    """Reads little-endian fields off a buffer, and says where it ran out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def number(self, code: str) -> int:
        size = struct.calcsize(f"<{code}")
        (value,) = struct.unpack_from(f"<{code}", self._take(size))
        return int(value)

    def text(self) -> str:
        raw = self._take(self.number("H"))
        return bytes(raw).rstrip(b"\0").decode()

    def array(self) -> Array:
        """Rank, dimensions, type, byte count, bytes."""
        shape = [self.number("I") for _ in range(self.number("B"))]
        type_id = self.number("B")
        num_bytes = self.number("I")
        if type_id not in _DTYPES:
            raise WeightsError(f"CTranslate2 model file: unknown array type {type_id}")
        return np.frombuffer(self._take(num_bytes), _DTYPES[type_id]).reshape(shape)

    def _take(self, size: int) -> memoryview:
        if self._at + size > len(self._data):
            raise WeightsError(
                f"CTranslate2 model file: ends inside a field at byte {self._at}"
                f" of {len(self._data)}; the file is cut off"
            )
        taken = memoryview(self._data)[self._at : self._at + size]
        self._at += size
        return taken


def read_whisper_file(data: bytes) -> WhisperFile:
    """Parse a whole model file.

    Raises:
        WeightsError: not a Whisper model, an old version, cut off, or with bytes left over.
    """
    cursor = _Cursor(data)
    version = cursor.number("I")
    if version < _MIN_VERSION or version > 255:
        raise WeightsError(f"not a CTranslate2 model file (version field {version})")
    spec = cursor.text()
    if spec != _SPEC:
        raise WeightsError(f"CTranslate2 model file: holds a {spec}, expected a {_SPEC}")
    cursor.number("I")  # revision of the specification; the layout did not change with it
    variables: dict[str, Array] = {}
    for _ in range(cursor.number("I")):
        name = cursor.text()
        variables[name] = cursor.array()
    for _ in range(cursor.number("I")):
        alias = cursor.text()
        variables[alias] = variables[cursor.text()]
    if not cursor.is_at_end:
        raise WeightsError("CTranslate2 model file: bytes left over after the last variable")
    return WhisperFile(version=version, variables=variables)


def to_openai_layout(file: WhisperFile) -> OpenAiLayout:
    """Rename and split into OpenAI's parameters.

    Raises:
        WeightsError: a variable is missing, quantised, or a key projection has a bias.
    """
    state: dict[str, Array] = {}
    for conv in ("conv1", "conv2"):
        for part in ("weight", "bias"):
            state[f"encoder.{conv}.{part}"] = file.weights(f"encoder/{conv}/{part}")
    state["decoder.token_embedding.weight"] = file.weights("decoder/embeddings/weight")
    num_layers = {}
    for stack, final_norm in (("encoder", "ln_post"), ("decoder", "ln")):
        positions = file.weights(f"{stack}/position_encodings/encodings")
        state[f"{stack}.positional_embedding"] = positions
        state |= _norm(file, f"{stack}/layer_norm", f"{stack}.{final_norm}")
        num_layers[stack] = _count_layers(file, stack)
        for layer in range(num_layers[stack]):
            state |= _block(file, stack, layer)
    return OpenAiLayout(dims=_dims(file, state, num_layers), state=state)


def _dims(
    file: WhisperFile, state: Mapping[str, Array], num_layers: Mapping[str, int]
) -> dict[str, int]:
    heads = int(file.array("encoder/num_heads"))
    stem = state["encoder.conv1.weight"]  # [state, mels, 3]
    text_positions = state["decoder.positional_embedding"]  # [context, state]
    return {
        "n_mels": stem.shape[1],
        "n_audio_ctx": state["encoder.positional_embedding"].shape[0],
        "n_audio_state": stem.shape[0],
        "n_audio_head": heads,
        "n_audio_layer": num_layers["encoder"],
        "n_vocab": state["decoder.token_embedding.weight"].shape[0],
        "n_text_ctx": text_positions.shape[0],
        "n_text_state": text_positions.shape[1],
        "n_text_head": heads,
        "n_text_layer": num_layers["decoder"],
    }


def _count_layers(file: WhisperFile, stack: str) -> int:
    count = 0
    while f"{stack}/layer_{count}/ffn/linear_0/weight" in file.variables:
        count += 1
    if count == 0:
        raise WeightsError(f"CTranslate2 model file: no layers in the {stack}")
    return count


def _block(file: WhisperFile, stack: str, layer: int) -> dict[str, Array]:
    """One transformer block: self attention, cross attention in the decoder, feed-forward."""
    source, target = f"{stack}/layer_{layer}", f"{stack}.blocks.{layer}"
    attention = f"{source}/self_attention"
    found = _norm(file, f"{attention}/layer_norm", f"{target}.attn_ln")
    found |= _linears(file, f"{attention}/linear_0", _named(target, "attn", "query key value"))
    found |= _linears(file, f"{attention}/linear_1", _named(target, "attn", "out"))
    if stack == "decoder":
        cross = f"{source}/attention"
        found |= _norm(file, f"{cross}/layer_norm", f"{target}.cross_attn_ln")
        found |= _linears(file, f"{cross}/linear_0", _named(target, "cross_attn", "query"))
        found |= _linears(file, f"{cross}/linear_1", _named(target, "cross_attn", "key value"))
        found |= _linears(file, f"{cross}/linear_2", _named(target, "cross_attn", "out"))
    found |= _norm(file, f"{source}/ffn/layer_norm", f"{target}.mlp_ln")
    found |= _linears(file, f"{source}/ffn/linear_0", (f"{target}.mlp.0",))
    found |= _linears(file, f"{source}/ffn/linear_1", (f"{target}.mlp.2",))
    return found


def _named(target: str, attention: str, parts: str) -> tuple[str, ...]:
    return tuple(f"{target}.{attention}.{part}" for part in parts.split())


def _norm(file: WhisperFile, source: str, target: str) -> dict[str, Array]:
    return {
        f"{target}.weight": file.weights(f"{source}/gamma"),
        f"{target}.bias": file.weights(f"{source}/beta"),
    }


def _linears(file: WhisperFile, source: str, targets: Sequence[str]) -> dict[str, Array]:
    """Split one fused projection into as many equal ones as there are targets."""
    return dict(_split(file, source, targets))


def _split(file: WhisperFile, source: str, targets: Sequence[str]) -> Iterator[tuple[str, Array]]:
    weights = np.split(file.weights(f"{source}/weight"), len(targets))
    biases = np.split(file.weights(f"{source}/bias"), len(targets))
    for target, weight, bias in zip(targets, weights, biases, strict=True):
        yield f"{target}.weight", weight
        if not target.endswith(".key"):
            yield f"{target}.bias", bias
        elif np.any(bias):
            raise WeightsError(f"CTranslate2 model file: {source} has a bias on its keys")
