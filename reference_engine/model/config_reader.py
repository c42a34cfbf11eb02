"""Fill the config dataclasses from a checkpoint folder in the official layout.

Every value is read, none is guessed: the official classes' defaults describe another model. What
this engine does not implement (another activation, biases, sliding windows, scaled rotation) is
refused by name rather than computed wrongly.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from reference_engine.model.config import (
    CodecConfig,
    GenerationDefaults,
    ModelConfig,
    PredictorConfig,
    SpecialIds,
    StackConfig,
    TalkerConfig,
)
from reference_engine.model.json_section import JsonSection, read_json

__all__ = ["CODEC_FOLDER", "RANDOM_WEIGHTS_KEY", "read_codec_config", "read_model_config"]

CODEC_FOLDER = "speech_tokenizer"
# Written into config.json by `checkpoint make`, so that no listener mistakes noise for a voice.
RANDOM_WEIGHTS_KEY = "earwitness_random_weights"


def read_model_config(folder: Path) -> ModelConfig:
    """Read config.json and generation_config.json.

    Raises:
        CheckpointError: a file or key is missing, wrong, or not supported.
    """
    top = read_json(folder / "config.json")
    top.expect("model_type", "qwen3_tts")
    top.expect("tts_model_type", "custom_voice")
    top.expect("tokenizer_type", "qwen3_tts_tokenizer_12hz")
    section = top.section("talker_config")
    talker = _talker(section)
    inner = section.section("code_predictor_config")
    num_codebooks = section.integer("num_code_groups", at_least=2)
    inner.expect("num_code_groups", num_codebooks)
    languages = section.ids("codec_language_id", below=talker.vocab_size)
    speakers = section.ids("spk_id", below=talker.vocab_size)
    return ModelConfig(
        model_size=top.text("tts_model_size"),
        talker=talker,
        predictor=PredictorConfig(
            stack=_stack(inner),
            vocab_size=inner.integer("vocab_size"),
            embedding_size=talker.stack.hidden_size,
        ),
        num_codebooks=num_codebooks,
        ids=_special_ids(top, section, talker),
        languages=MappingProxyType(languages),
        speakers=MappingProxyType(speakers),
        dialects=MappingProxyType(_dialects(section, speakers, languages)),
        generation=_generation(read_json(folder / "generation_config.json")),
        random_weights=top.text(RANDOM_WEIGHTS_KEY) if top.has(RANDOM_WEIGHTS_KEY) else "",
    )


def read_codec_config(folder: Path) -> CodecConfig:
    """Read speech_tokenizer/config.json; `folder` is the checkpoint's root.

    Raises:
        CheckpointError: a file or key is missing, wrong, or not supported.
    """
    top = read_json(folder / CODEC_FOLDER / "config.json")
    top.expect("model_type", "qwen3_tts_tokenizer_12hz")
    inner = top.section("decoder_config")
    config = CodecConfig(
        stack=_stack(inner),
        sliding_window=inner.integer("sliding_window", at_least=2),
        latent_size=inner.integer("latent_dim"),
        codebook_dim=inner.integer("codebook_dim", at_least=2),
        codebook_size=inner.integer("codebook_size"),
        num_codebooks=inner.integer("num_quantizers", at_least=2),
        decoder_size=inner.integer("decoder_dim"),
        upsampling_ratios=inner.integers("upsampling_ratios"),
        upsample_rates=inner.integers("upsample_rates"),
        sample_rate_hz=top.integer("output_sample_rate"),
    )
    if config.codebook_dim % 2:
        raise inner.fail("codebook_dim", f"{config.codebook_dim} is odd; a book holds half of it")
    if config.decoder_size % (1 << len(config.upsample_rates)):
        raise inner.fail("decoder_dim", f"{config.decoder_size} cannot be halved by every block")
    top.expect("decode_upsample_rate", config.samples_per_frame)
    return config


def _talker(section: JsonSection) -> TalkerConfig:
    stack = _stack(section)
    section.expect_if_set("use_sliding_window", False)
    vocab_size = section.integer("vocab_size")
    if vocab_size <= 1024:
        raise section.fail("vocab_size", f"{vocab_size} leaves no codes before the control zone")
    return TalkerConfig(
        stack=stack,
        vocab_size=vocab_size,
        text_vocab_size=section.integer("text_vocab_size"),
        text_hidden_size=section.integer("text_hidden_size"),
        max_positions=section.integer("max_position_embeddings"),
    )


def _stack(section: JsonSection) -> StackConfig:
    """Read one transformer's shape, refusing what this engine does not implement."""
    section.expect_if_set("hidden_act", "silu")
    section.expect_if_set("attention_bias", False)
    stack = StackConfig(
        hidden_size=section.integer("hidden_size"),
        intermediate_size=section.integer("intermediate_size"),
        num_layers=section.integer("num_hidden_layers"),
        num_heads=section.integer("num_attention_heads"),
        num_kv_heads=section.integer("num_key_value_heads"),
        head_dim=section.integer("head_dim", at_least=2),
        rms_norm_eps=section.number("rms_norm_eps"),
        rope_theta=section.number("rope_theta"),
    )
    if stack.num_heads % stack.num_kv_heads:
        raise section.fail(
            "num_key_value_heads", f"{stack.num_kv_heads} does not divide {stack.num_heads} heads"
        )
    if stack.head_dim % 2:
        raise section.fail("head_dim", f"{stack.head_dim} is odd; rotation pairs dimensions")
    _check_rotation(section, stack)
    return stack


def _check_rotation(section: JsonSection, stack: StackConfig) -> None:
    """Accept plain rotation only.

    The talker names a multimodal one whose three position rows are always equal, so its sections
    merely have to add up: it is plain rotation over the whole head.
    """
    if not section.has("rope_scaling"):
        return
    scaling = section.section("rope_scaling")
    for key in ("type", "rope_type"):
        scaling.expect_if_set(key, "default")
    if scaling.has("mrope_section"):
        parts = scaling.integers("mrope_section")
        if sum(parts) != stack.head_dim // 2:
            raise scaling.fail(
                "mrope_section", f"{list(parts)} does not add up to {stack.head_dim // 2}"
            )


def _special_ids(top: JsonSection, section: JsonSection, talker: TalkerConfig) -> SpecialIds:
    def text(key: str) -> int:
        return top.id(key, below=talker.text_vocab_size)

    def codec(key: str) -> int:
        return section.id(key, below=talker.vocab_size)

    ids = SpecialIds(
        im_start=text("im_start_token_id"),
        im_end=text("im_end_token_id"),
        tts_pad=text("tts_pad_token_id"),
        tts_bos=text("tts_bos_token_id"),
        tts_eos=text("tts_eos_token_id"),
        codec_pad=codec("codec_pad_id"),
        codec_bos=codec("codec_bos_id"),
        codec_eos=codec("codec_eos_token_id"),
        codec_think=codec("codec_think_id"),
        codec_nothink=codec("codec_nothink_id"),
        codec_think_bos=codec("codec_think_bos_id"),
        codec_think_eos=codec("codec_think_eos_id"),
    )
    if ids.codec_eos < talker.vocab_size - 1024:
        raise section.fail("codec_eos_token_id", f"{ids.codec_eos} is an ordinary code")
    return ids


def _dialects(
    section: JsonSection, speakers: dict[str, int], languages: dict[str, int]
) -> dict[str, str]:
    """Voice -> dialect; the file says false where a voice has none."""
    inner = section.section("spk_is_dialect")
    dialects = {}
    for name, value in inner.values.items():
        if value is False:
            continue
        if name.lower() not in speakers:
            raise inner.fail(name, "is not a voice of spk_id")
        if not isinstance(value, str) or value.lower() not in languages:
            raise inner.fail(name, f"{value!r} is not false and not a name of codec_language_id")
        dialects[name.lower()] = value.lower()
    missing = sorted(set(speakers) - {name.lower() for name in inner.values})
    if missing:
        raise inner.fail(missing[0], "is missing; every voice needs false or a dialect")
    return dialects


def _generation(section: JsonSection) -> GenerationDefaults:
    return GenerationDefaults(
        do_sample=section.boolean("do_sample"),
        temperature=section.number("temperature"),
        top_k=section.integer("top_k", at_least=0),
        top_p=section.number("top_p"),
        repetition_penalty=section.number("repetition_penalty"),
        predictor_do_sample=section.boolean("subtalker_dosample"),
        predictor_temperature=section.number("subtalker_temperature"),
        predictor_top_k=section.integer("subtalker_top_k", at_least=0),
        predictor_top_p=section.number("subtalker_top_p"),
        max_new_tokens=section.integer("max_new_tokens"),
    )
