"""The official JSON files of a checkpoint, written from the config dataclasses."""

from __future__ import annotations

from reference_engine.checkpoint.shapes import CheckpointShape
from reference_engine.model.config import CodecConfig, GenerationDefaults, ModelConfig, StackConfig
from reference_engine.model.config_reader import CODEC_FOLDER, RANDOM_WEIGHTS_KEY

__all__ = ["config_files"]

Json = dict[str, object]


def config_files(shape: CheckpointShape, *, random_weights: str) -> dict[str, Json]:
    """Every JSON file but the tokenizer's, by path below the checkpoint folder."""
    return {
        "config.json": {**_model(shape.model), RANDOM_WEIGHTS_KEY: random_weights},
        "generation_config.json": _generation(shape.model.generation),
        f"{CODEC_FOLDER}/config.json": _codec(shape.codec),
        # The official loader opens a feature extractor even where nothing is ever encoded.
        f"{CODEC_FOLDER}/preprocessor_config.json": {
            "feature_extractor_type": "EncodecFeatureExtractor",
            "feature_size": 1,
            "padding_side": "right",
            "padding_value": 0.0,
            "return_attention_mask": True,
            "sampling_rate": shape.codec.sample_rate_hz,
        },
    }


def _stack(config: StackConfig) -> Json:
    return {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
    }


def _model(config: ModelConfig) -> Json:
    ids = config.ids
    half = config.talker.stack.head_dim // 2
    # The published 24 + 20 + 20 of 64, in proportion; the sections only have to add up.
    height = half * 20 // 64
    talker: Json = {
        **_stack(config.talker.stack),
        "model_type": "qwen3_tts_talker",
        "vocab_size": config.talker.vocab_size,
        "text_vocab_size": config.talker.text_vocab_size,
        "text_hidden_size": config.talker.text_hidden_size,
        "max_position_embeddings": config.talker.max_positions,
        "num_code_groups": config.num_codebooks,
        "use_sliding_window": False,
        "rope_scaling": {
            "interleaved": True,
            "mrope_section": [half - 2 * height, height, height],
            "rope_type": "default",
            "type": "default",
        },
        "codec_pad_id": ids.codec_pad,
        "codec_bos_id": ids.codec_bos,
        "codec_eos_token_id": ids.codec_eos,
        "codec_think_id": ids.codec_think,
        "codec_nothink_id": ids.codec_nothink,
        "codec_think_bos_id": ids.codec_think_bos,
        "codec_think_eos_id": ids.codec_think_eos,
        "codec_language_id": dict(config.languages),
        "spk_id": dict(config.speakers),
        "spk_is_dialect": {name: config.dialects.get(name, False) for name in config.speakers},
        "code_predictor_config": {
            **_stack(config.predictor.stack),
            "model_type": "qwen3_tts_talker_code_predictor",
            "vocab_size": config.predictor.vocab_size,
            "num_code_groups": config.num_codebooks,
            "max_position_embeddings": 65536,
            "rope_scaling": None,
            "use_sliding_window": False,
        },
    }
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_type": "custom_voice",
        "tts_model_size": config.model_size,
        "im_start_token_id": ids.im_start,
        "im_end_token_id": ids.im_end,
        "tts_pad_token_id": ids.tts_pad,
        "tts_bos_token_id": ids.tts_bos,
        "tts_eos_token_id": ids.tts_eos,
        "talker_config": talker,
    }


def _generation(defaults: GenerationDefaults) -> Json:
    return {
        "do_sample": defaults.do_sample,
        "repetition_penalty": defaults.repetition_penalty,
        "temperature": defaults.temperature,
        "top_p": defaults.top_p,
        "top_k": defaults.top_k,
        "subtalker_dosample": defaults.predictor_do_sample,
        "subtalker_temperature": defaults.predictor_temperature,
        "subtalker_top_p": defaults.predictor_top_p,
        "subtalker_top_k": defaults.predictor_top_k,
        "max_new_tokens": defaults.max_new_tokens,
    }


def _codec(config: CodecConfig) -> Json:
    decoder: Json = {
        **_stack(config.stack),
        "latent_dim": config.latent_size,
        "codebook_dim": config.codebook_dim,
        "codebook_size": config.codebook_size,
        "num_quantizers": config.num_codebooks,
        "decoder_dim": config.decoder_size,
        "sliding_window": config.sliding_window,
        "upsampling_ratios": list(config.upsampling_ratios),
        "upsample_rates": list(config.upsample_rates),
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
    }
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "input_sample_rate": config.sample_rate_hz,
        "output_sample_rate": config.sample_rate_hz,
        "decode_upsample_rate": config.samples_per_frame,
        "encode_downsample_rate": config.samples_per_frame,
        "encoder_valid_num_quantizers": config.num_codebooks,
        "decoder_config": decoder,
        # Speaking never encodes, so the encoder is the smallest the official class accepts and
        # its weights are left out: the official loader fills them in by itself.
        "encoder_config": _SMALLEST_ENCODER,
    }


_SMALLEST_ENCODER: Json = {
    "model_type": "mimi",
    "codebook_dim": 8,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "num_filters": 2,
    "upsample_groups": 16,
    "num_quantizers": 16,
    "vector_quantization_hidden_dimension": 8,
}
