"""Load the codec's decoder half from a checkpoint folder."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from reference_engine.codec.blocks import (
    BlockWeights,
    ConvNextWeights,
    ConvWeights,
    SnakeWeights,
    UnitWeights,
)
from reference_engine.codec.decoder import CodecModel, CodecWeights
from reference_engine.codec.state import RESIDUAL_DILATIONS
from reference_engine.codec.transformer import CodecLayerWeights, CodecTransformerWeights
from reference_engine.kernels import KernelSet, kernels_for
from reference_engine.model.config import CodecConfig, StackConfig
from reference_engine.model.config_reader import CODEC_FOLDER, read_codec_config
from reference_engine.model.tensor_files import TensorFiles
from reference_engine.model.tensor_table import IGNORED_CODEC_PREFIXES, codec_tensors

__all__ = ["CODEC_DTYPES", "load_codec"]

# The file is fp32 and read as such; a bf16 copy would round the codebooks before any maths.
CODEC_DTYPES = ("F32",)

# Both guards come from the official layers: a book entry never used, and a division by beta.
_MIN_CLUSTER_USAGE = 1e-5
_BETA_GUARD = 1e-9


@torch.inference_mode()
def load_codec(
    folder: Path,
    *,
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    kernels: KernelSet | None = None,
) -> CodecModel:
    """Load the decoder of `folder`/speech_tokenizer.

    Parameters that the decoder derives (codebooks from sums and usage, exponentiated snakes, scales
    of what matrices give) are derived once, in fp32, and only then cast.

    Raises:
        CheckpointError: anything missing, unknown, misshapen, non-finite or unsupported.
    """
    config = read_codec_config(folder)
    with TensorFiles(folder / CODEC_FOLDER) as files:
        files.check(codec_tensors(config), ignored=IGNORED_CODEC_PREFIXES, dtypes=CODEC_DTYPES)
        reader = _Reader(files, device=device, dtype=dtype)
        return CodecModel(
            config=config, kernels=kernels or kernels_for(device), weights=_weights(reader, config)
        )


class _Reader:
    """The decoder's parts by name, on the device and in the dtype asked for."""

    def __init__(
        self, files: TensorFiles, *, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        self._files = files
        self._device = device
        self._dtype = dtype

    def cast(self, value: Tensor) -> Tensor:
        """Move a derived tensor to where the steps want it."""
        return value.to(device=self._device, dtype=self._dtype)

    def place(self, value: Tensor) -> Tensor:
        """Move a tensor and leave its dtype."""
        return value.to(self._device)

    def raw(self, name: str) -> Tensor:
        """One tensor as stored, below `decoder.`."""
        return self._files.read(f"decoder.{name}")

    def get(self, *names: str) -> Tensor:
        """One tensor, or several stacked along their first dimension."""
        parts = [self.raw(name) for name in names]
        return self.cast(parts[0] if len(parts) == 1 else torch.cat(parts))

    def scaled(self, name: str, scale: str) -> Tensor:
        """A matrix or bias whose outputs are all that a scale is applied to: one step less."""
        value, factor = self.raw(name), self.raw(scale)
        return self.cast(value * factor.view(-1, *(1 for _ in value.shape[1:])))

    def conv(self, name: str, *, dilation: int = 1, groups: int = 1) -> ConvWeights:
        """A convolution with its bias."""
        return ConvWeights(
            weight=self.get(f"{name}.weight"),
            bias=self.get(f"{name}.bias"),
            dilation=dilation,
            groups=groups,
        )

    def snake(self, name: str) -> SnakeWeights:
        """A SnakeBeta, stored as logs."""
        return SnakeWeights(
            alpha=self.cast(self.raw(f"{name}.alpha").exp()[:, None]),
            inverse_beta=self.cast(1.0 / (self.raw(f"{name}.beta").exp() + _BETA_GUARD)[:, None]),
        )


def _weights(reader: _Reader, config: CodecConfig) -> CodecWeights:
    last = len(config.upsample_rates) + 1
    return CodecWeights(
        codebooks=_codebooks(reader, config),
        code_offsets=reader.place(torch.arange(config.num_codebooks) * config.codebook_size),
        first_projection=reader.get("quantizer.rvq_first.output_proj.weight")[:, :, 0],
        rest_projection=reader.get("quantizer.rvq_rest.output_proj.weight")[:, :, 0],
        pre_conv=reader.conv("pre_conv.conv"),
        transformer=_transformer(reader, config.stack),
        upsample=tuple(
            _doubling_stage(reader, f"upsample.{index}.", ratio, config.latent_size)
            for index, ratio in enumerate(config.upsampling_ratios)
        ),
        first_conv=reader.conv("decoder.0.conv"),
        blocks=tuple(
            _block(reader, f"decoder.{index + 1}.block.", rate)
            for index, rate in enumerate(config.upsample_rates)
        ),
        final_snake=reader.snake(f"decoder.{last}"),
        final_conv=reader.conv(f"decoder.{last + 1}.conv"),
    )


def _codebooks(reader: _Reader, config: CodecConfig) -> Tensor:
    """All books stacked; an entry is its summed vectors over how often it was used."""
    prefixes = [
        "quantizer.rvq_first.vq.layers.0._codebook.",
        *(
            f"quantizer.rvq_rest.vq.layers.{book}._codebook."
            for book in range(config.num_codebooks - 1)
        ),
    ]
    books = [
        reader.raw(f"{prefix}embedding_sum")
        / reader.raw(f"{prefix}cluster_usage").clamp(min=_MIN_CLUSTER_USAGE)[:, None]
        for prefix in prefixes
    ]
    return reader.cast(torch.cat(books))


def _transformer(reader: _Reader, config: StackConfig) -> CodecTransformerWeights:
    prefix = "pre_transformer."
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    return CodecTransformerWeights(
        input=reader.get(f"{prefix}input_proj.weight"),
        input_bias=reader.get(f"{prefix}input_proj.bias"),
        layers=tuple(
            _transformer_layer(reader, f"{prefix}layers.{index}.")
            for index in range(config.num_layers)
        ),
        norm=reader.get(f"{prefix}norm.weight"),
        output=reader.get(f"{prefix}output_proj.weight"),
        output_bias=reader.get(f"{prefix}output_proj.bias"),
        # Angles are fp32 whatever the activations are.
        frequencies=reader.place(1.0 / (config.rope_theta**exponents)),
    )


def _transformer_layer(reader: _Reader, prefix: str) -> CodecLayerWeights:
    attention = f"{prefix}self_attn."
    return CodecLayerWeights(
        input_norm=reader.get(f"{prefix}input_layernorm.weight"),
        qkv=reader.get(*(f"{attention}{part}_proj.weight" for part in "qkv")),
        out=reader.scaled(f"{attention}o_proj.weight", f"{prefix}self_attn_layer_scale.scale"),
        post_norm=reader.get(f"{prefix}post_attention_layernorm.weight"),
        gate_up=reader.get(f"{prefix}mlp.gate_proj.weight", f"{prefix}mlp.up_proj.weight"),
        down=reader.scaled(f"{prefix}mlp.down_proj.weight", f"{prefix}mlp_layer_scale.scale"),
    )


def _doubling_stage(reader: _Reader, prefix: str, ratio: int, channels: int) -> ConvNextWeights:
    return ConvNextWeights(
        transposed=reader.conv(f"{prefix}0.conv"),
        rate=ratio,
        depthwise=reader.conv(f"{prefix}1.dwconv.conv", groups=channels),
        norm=reader.get(f"{prefix}1.norm.weight"),
        norm_bias=reader.get(f"{prefix}1.norm.bias"),
        expand=reader.get(f"{prefix}1.pwconv1.weight"),
        expand_bias=reader.get(f"{prefix}1.pwconv1.bias"),
        project=reader.scaled(f"{prefix}1.pwconv2.weight", f"{prefix}1.gamma"),
        project_bias=reader.scaled(f"{prefix}1.pwconv2.bias", f"{prefix}1.gamma"),
    )


def _block(reader: _Reader, prefix: str, rate: int) -> BlockWeights:
    return BlockWeights(
        snake=reader.snake(f"{prefix}0"),
        transposed=reader.conv(f"{prefix}1.conv"),
        rate=rate,
        units=tuple(
            UnitWeights(
                snake1=reader.snake(f"{prefix}{unit}.act1"),
                conv1=reader.conv(f"{prefix}{unit}.conv1.conv", dilation=dilation),
                snake2=reader.snake(f"{prefix}{unit}.act2"),
                conv2=reader.conv(f"{prefix}{unit}.conv2.conv"),
            )
            for unit, dilation in zip((2, 3, 4), RESIDUAL_DILATIONS, strict=True)
        ),
    )
