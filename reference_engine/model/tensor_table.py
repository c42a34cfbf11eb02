"""Every tensor a checkpoint must hold, by its official name, with its shape.

One table serves three readers: the loader (which refuses anything else), `checkpoint make` (which
fills it with random values) and `checkpoint inspect`.
"""

from __future__ import annotations

from reference_engine.model.config import CodecConfig, ModelConfig, StackConfig

__all__ = [
    "IGNORED_CODEC_PREFIXES",
    "IGNORED_MODEL_PREFIXES",
    "Shape",
    "TensorTable",
    "codec_tensors",
    "model_tensors",
]

Shape = tuple[int, ...]
TensorTable = dict[str, Shape]

# Base checkpoints carry a speaker encoder; a CustomVoice voice is one embedding row.
IGNORED_MODEL_PREFIXES = ("speaker_encoder.",)
# Speaking needs no encoder, and no projection into the quantisers.
IGNORED_CODEC_PREFIXES = (
    "encoder.",
    "decoder.quantizer.rvq_first.input_proj.",
    "decoder.quantizer.rvq_rest.input_proj.",
)


def model_tensors(config: ModelConfig) -> TensorTable:
    """Tensors of model.safetensors: talker and code predictor."""
    talker, predictor = config.talker, config.predictor
    hidden, text_hidden = talker.stack.hidden_size, talker.text_hidden_size
    inner = predictor.stack.hidden_size
    table: TensorTable = {
        "talker.model.text_embedding.weight": (talker.text_vocab_size, text_hidden),
        "talker.model.codec_embedding.weight": (talker.vocab_size, hidden),
        "talker.text_projection.linear_fc1.weight": (text_hidden, text_hidden),
        "talker.text_projection.linear_fc1.bias": (text_hidden,),
        "talker.text_projection.linear_fc2.weight": (hidden, text_hidden),
        "talker.text_projection.linear_fc2.bias": (hidden,),
        "talker.model.norm.weight": (hidden,),
        "talker.codec_head.weight": (talker.vocab_size, hidden),
        "talker.code_predictor.model.norm.weight": (inner,),
    }
    table |= _stack_tensors("talker.model.", talker.stack, has_head_norms=True)
    table |= _stack_tensors("talker.code_predictor.model.", predictor.stack, has_head_norms=True)
    if predictor.has_projection:
        table["talker.code_predictor.small_to_mtp_projection.weight"] = (inner, hidden)
        table["talker.code_predictor.small_to_mtp_projection.bias"] = (inner,)
    for book in range(config.num_codebooks - 1):
        prefix = "talker.code_predictor."
        table[f"{prefix}model.codec_embedding.{book}.weight"] = (predictor.vocab_size, hidden)
        table[f"{prefix}lm_head.{book}.weight"] = (predictor.vocab_size, inner)
    return table


def codec_tensors(config: CodecConfig) -> TensorTable:
    """Tensors of speech_tokenizer/model.safetensors that the decoder reads."""
    latent, stack = config.latent_size, config.stack
    table: TensorTable = {}
    for part, books in (("rvq_first", 1), ("rvq_rest", config.num_codebooks - 1)):
        prefix = f"decoder.quantizer.{part}."
        table[f"{prefix}output_proj.weight"] = (config.codebook_dim, config.codebook_dim // 2, 1)
        for book in range(books):
            inner = f"{prefix}vq.layers.{book}._codebook."
            table[f"{inner}embedding_sum"] = (config.codebook_size, config.codebook_dim // 2)
            table[f"{inner}cluster_usage"] = (config.codebook_size,)
    table |= _conv("decoder.pre_conv.conv", (latent, config.codebook_dim, 3))
    prefix = "decoder.pre_transformer."
    table |= _linear(f"{prefix}input_proj", stack.hidden_size, latent)
    table |= _linear(f"{prefix}output_proj", latent, stack.hidden_size)
    table |= _stack_tensors(prefix, stack, has_head_norms=False)
    table[f"{prefix}norm.weight"] = (stack.hidden_size,)
    for layer in range(stack.num_layers):
        for scale in ("self_attn_layer_scale", "mlp_layer_scale"):
            table[f"{prefix}layers.{layer}.{scale}.scale"] = (stack.hidden_size,)
    for stage, ratio in enumerate(config.upsampling_ratios):
        table |= _doubling_stage(f"decoder.upsample.{stage}.", latent, ratio)
    table |= _wave_tensors(config)
    return table


def _doubling_stage(prefix: str, latent: int, ratio: int) -> TensorTable:
    """One transposed convolution and its ConvNeXt layer."""
    return {
        f"{prefix}0.conv.weight": (latent, latent, ratio),
        f"{prefix}0.conv.bias": (latent,),
        f"{prefix}1.norm.weight": (latent,),
        f"{prefix}1.norm.bias": (latent,),
        f"{prefix}1.gamma": (latent,),
        **_conv(f"{prefix}1.dwconv.conv", (latent, 1, 7)),
        **_linear(f"{prefix}1.pwconv1", 4 * latent, latent),
        **_linear(f"{prefix}1.pwconv2", latent, 4 * latent),
    }


def _wave_tensors(config: CodecConfig) -> TensorTable:
    """From latent columns to samples: convolution, upsampling blocks, convolution."""
    channels = config.block_channels
    last = len(config.upsample_rates) + 1
    table = _conv("decoder.decoder.0.conv", (channels[0], config.latent_size, 7))
    for index, rate in enumerate(config.upsample_rates):
        prefix = f"decoder.decoder.{index + 1}.block."
        wide, narrow = channels[index], channels[index + 1]
        table |= _snake(f"{prefix}0", wide)
        table[f"{prefix}1.conv.weight"] = (wide, narrow, 2 * rate)
        table[f"{prefix}1.conv.bias"] = (narrow,)
        for unit in (2, 3, 4):
            table |= _snake(f"{prefix}{unit}.act1", narrow)
            table |= _conv(f"{prefix}{unit}.conv1.conv", (narrow, narrow, 7))
            table |= _snake(f"{prefix}{unit}.act2", narrow)
            table |= _conv(f"{prefix}{unit}.conv2.conv", (narrow, narrow, 1))
    table |= _snake(f"decoder.decoder.{last}", channels[-1])
    table |= _conv(f"decoder.decoder.{last + 1}.conv", (1, channels[-1], 7))
    return table


def _stack_tensors(prefix: str, stack: StackConfig, *, has_head_norms: bool) -> TensorTable:
    hidden, inner = stack.hidden_size, stack.intermediate_size
    table: TensorTable = {}
    for layer in range(stack.num_layers):
        here = f"{prefix}layers.{layer}."
        table |= {
            f"{here}self_attn.q_proj.weight": (stack.query_size, hidden),
            f"{here}self_attn.k_proj.weight": (stack.kv_size, hidden),
            f"{here}self_attn.v_proj.weight": (stack.kv_size, hidden),
            f"{here}self_attn.o_proj.weight": (hidden, stack.query_size),
            f"{here}mlp.gate_proj.weight": (inner, hidden),
            f"{here}mlp.up_proj.weight": (inner, hidden),
            f"{here}mlp.down_proj.weight": (hidden, inner),
            f"{here}input_layernorm.weight": (hidden,),
            f"{here}post_attention_layernorm.weight": (hidden,),
        }
        if has_head_norms:
            table[f"{here}self_attn.q_norm.weight"] = (stack.head_dim,)
            table[f"{here}self_attn.k_norm.weight"] = (stack.head_dim,)
    return table


def _linear(name: str, out: int, inner: int) -> TensorTable:
    return {f"{name}.weight": (out, inner), f"{name}.bias": (out,)}


def _conv(name: str, shape: Shape) -> TensorTable:
    return {f"{name}.weight": shape, f"{name}.bias": (shape[0],)}


def _snake(name: str, channels: int) -> TensorTable:
    return {f"{name}.alpha": (channels,), f"{name}.beta": (channels,)}
