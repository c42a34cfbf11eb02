"""Load talker and code predictor from a checkpoint folder, merged and ready to step."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from reference_engine.kernels import KernelSet, kernels_for
from reference_engine.model.config import ModelConfig, StackConfig
from reference_engine.model.config_reader import read_model_config
from reference_engine.model.layers import LayerWeights, StackWeights, rotary_tables
from reference_engine.model.tensor_files import TensorFiles
from reference_engine.model.tensor_table import IGNORED_MODEL_PREFIXES, model_tensors
from reference_engine.model.tts_model import PredictorWeights, TalkerWeights, TtsModel

__all__ = ["MODEL_DTYPES", "load_model"]

# The real file is bf16; fp32 is what fine-tuning leaves.
MODEL_DTYPES = ("BF16", "F32")

_PREDICTOR = "talker.code_predictor."
# Rows projected at once when the predictor's inputs are prepared: bounds the scratch memory.
_PROJECTION_ROWS = 4096


@torch.inference_mode()
def load_model(
    folder: Path,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    kernels: KernelSet | None = None,
) -> TtsModel:
    """Load a checkpoint in the official layout.

    Args:
        folder: holds config.json, generation_config.json and model.safetensors or its shards.
        device: of every tensor.
        dtype: of weights and activations; bf16 as stored, or fp32 for exact parity on a CPU.
        kernels: implementations the steps will use; those of the device where None.

    Raises:
        CheckpointError: anything missing, unknown, misshapen, non-finite or unsupported.
    """
    config = read_model_config(folder)
    with TensorFiles(folder) as files:
        files.check(model_tensors(config), ignored=IGNORED_MODEL_PREFIXES, dtypes=MODEL_DTYPES)
        reader = _Reader(files, device=device, dtype=dtype)
        code_table = _code_table(reader, config)
        return TtsModel(
            config=config,
            kernels=kernels or kernels_for(device),
            talker=_talker(reader, config),
            talker_rotary=rotary_tables(
                config.talker.max_positions,
                config.talker.stack.head_dim,
                theta=config.talker.stack.rope_theta,
                device=device,
                dtype=dtype,
            ),
            predictor=_predictor(reader, config, code_table),
            predictor_rotary=rotary_tables(
                config.num_codebooks,
                config.predictor.stack.head_dim,
                theta=config.predictor.stack.rope_theta,
                device=device,
                dtype=dtype,
            ),
            code_table=code_table,
            code_offsets=_code_offsets(config).to(device),
            bans=_bans(config).to(device),
        )


class _Reader:
    """Tensors by name, on the device and in the dtype asked for."""

    def __init__(
        self, files: TensorFiles, *, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        self._files = files
        self._device = device
        self._dtype = dtype

    def vector(self, name: str) -> Tensor:
        """One tensor as it lies in the file."""
        return self._files.read(name).to(device=self._device, dtype=self._dtype)

    def matrix(self, *names: str) -> Tensor:
        """Matrices [out, in] stacked along `out`, as the [in, out] view that `mm` takes."""
        parts = [self.vector(name) for name in names]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).t()


def _talker(reader: _Reader, config: ModelConfig) -> TalkerWeights:
    return TalkerWeights(
        text_embedding=reader.vector("talker.model.text_embedding.weight"),
        text_fc1=reader.matrix("talker.text_projection.linear_fc1.weight"),
        text_fc1_bias=reader.vector("talker.text_projection.linear_fc1.bias"),
        text_fc2=reader.matrix("talker.text_projection.linear_fc2.weight"),
        text_fc2_bias=reader.vector("talker.text_projection.linear_fc2.bias"),
        stack=_stack(reader, "talker.model.", config.talker.stack),
        head=reader.matrix("talker.codec_head.weight"),
    )


def _predictor(reader: _Reader, config: ModelConfig, code_table: Tensor) -> PredictorWeights:
    projection = bias = None
    inputs = code_table
    if config.predictor.has_projection:
        name = f"{_PREDICTOR}small_to_mtp_projection"
        projection, bias = reader.matrix(f"{name}.weight"), reader.vector(f"{name}.bias")
        # The last codebook's rows only ever enter the frame's sum: not needed here.
        used = code_table[: len(code_table) - config.predictor.vocab_size]
        inputs = torch.cat(
            [
                torch.addmm(bias, rows, projection)
                for rows in torch.chunk(used, -(-len(used) // _PROJECTION_ROWS))
            ]
        )
    return PredictorWeights(
        projection=projection,
        projection_bias=bias,
        inputs=inputs,
        stack=_stack(reader, f"{_PREDICTOR}model.", config.predictor.stack),
        heads=tuple(
            reader.matrix(f"{_PREDICTOR}lm_head.{book}.weight")
            for book in range(config.num_codebooks - 1)
        ),
    )


def _stack(reader: _Reader, prefix: str, config: StackConfig) -> StackWeights:
    return StackWeights(
        layers=tuple(
            _layer(reader, f"{prefix}layers.{index}.", config) for index in range(config.num_layers)
        ),
        norm=reader.vector(f"{prefix}norm.weight"),
    )


def _layer(reader: _Reader, prefix: str, config: StackConfig) -> LayerWeights:
    attention = f"{prefix}self_attn."
    return LayerWeights(
        input_norm=reader.vector(f"{prefix}input_layernorm.weight"),
        qkv=reader.matrix(*(f"{attention}{part}_proj.weight" for part in "qkv")),
        # One row a head, so that all heads of queries and keys are normalised by one call.
        qk_norm=torch.cat(
            (
                reader.vector(f"{attention}q_norm.weight").expand(config.num_heads, -1),
                reader.vector(f"{attention}k_norm.weight").expand(config.num_kv_heads, -1),
            )
        ),
        out=reader.matrix(f"{attention}o_proj.weight"),
        post_norm=reader.vector(f"{prefix}post_attention_layernorm.weight"),
        gate_up=reader.matrix(f"{prefix}mlp.gate_proj.weight", f"{prefix}mlp.up_proj.weight"),
        down=reader.matrix(f"{prefix}mlp.down_proj.weight"),
    )


def _code_table(reader: _Reader, config: ModelConfig) -> Tensor:
    """The talker's codec embedding, a row of zeros, then the predictor's embeddings."""
    first = reader.vector("talker.model.codec_embedding.weight")
    rest = [
        reader.vector(f"{_PREDICTOR}model.codec_embedding.{book}.weight")
        for book in range(config.num_codebooks - 1)
    ]
    return torch.cat((first, first.new_zeros(1, first.shape[1]), *rest))


def _code_offsets(config: ModelConfig) -> Tensor:
    """First row of each codebook in the code table."""
    rest = torch.arange(config.num_codebooks - 1) * config.predictor.vocab_size
    return torch.cat((torch.zeros(1, dtype=torch.int64), rest + config.talker.vocab_size + 1))


def _bans(config: ModelConfig) -> Tensor:
    """What the talker may never draw: row 0 without end of speech, row 1 with it."""
    bans = torch.zeros(2, config.talker.vocab_size)
    bans[:, config.first_control_code :] = float("-inf")
    bans[1, config.ids.codec_eos] = 0.0
    return bans
