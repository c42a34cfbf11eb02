"""Shapes that `checkpoint make` can fill with random values.

The two real ones are those of the published checkpoints. The tiny ones keep what the code depends
on (vocabularies, ids, sixteen codebooks, upsampling, the window of 72) and shrink every width, so
that a whole utterance takes seconds on one CPU core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from reference_engine.errors import ArgumentError
from reference_engine.model.config import (
    CodecConfig,
    GenerationDefaults,
    ModelConfig,
    PredictorConfig,
    SpecialIds,
    StackConfig,
    TalkerConfig,
)

__all__ = ["SHAPES", "CheckpointShape", "check_new_folder", "shape_named"]


@dataclass(frozen=True, slots=True)
class CheckpointShape:
    """Both halves of a checkpoint."""

    model: ModelConfig
    codec: CodecConfig


# Ids of the published CustomVoice checkpoints; the random ones keep them.
_IDS = SpecialIds(
    im_start=151644,
    im_end=151645,
    tts_pad=151671,
    tts_bos=151672,
    tts_eos=151673,
    codec_pad=2148,
    codec_bos=2149,
    codec_eos=2150,
    codec_think=2154,
    codec_nothink=2155,
    codec_think_bos=2156,
    codec_think_eos=2157,
)
_LANGUAGES = MappingProxyType(
    {
        "english": 2050,
        "german": 2053,
        "spanish": 2054,
        "chinese": 2055,
        "japanese": 2058,
        "french": 2061,
        "sichuan_dialect": 2062,
        "korean": 2064,
        "russian": 2069,
        "italian": 2070,
        "portuguese": 2071,
        "beijing_dialect": 2074,
    }
)
_SPEAKERS = MappingProxyType(
    {
        "aiden": 2861,
        "sohee": 2864,
        "ono_anna": 2873,
        "eric": 2875,
        "dylan": 2878,
        "uncle_fu": 3010,
        "ryan": 3061,
        "vivian": 3065,
        "serena": 3066,
    }
)
_DIALECTS = MappingProxyType({"eric": "sichuan_dialect", "dylan": "beijing_dialect"})
_GENERATION = GenerationDefaults(
    do_sample=True,
    temperature=0.9,
    top_k=50,
    top_p=1.0,
    repetition_penalty=1.05,
    predictor_do_sample=True,
    predictor_temperature=0.9,
    predictor_top_k=50,
    predictor_top_p=1.0,
    max_new_tokens=8192,
)


def _model(
    talker: StackConfig,
    predictor: StackConfig,
    *,
    model_size: str,
    text_hidden_size: int,
) -> ModelConfig:
    return ModelConfig(
        model_size=model_size,
        talker=TalkerConfig(
            stack=talker,
            vocab_size=3072,
            text_vocab_size=151936,
            text_hidden_size=text_hidden_size,
            max_positions=32768,
        ),
        predictor=PredictorConfig(
            stack=predictor, vocab_size=2048, embedding_size=talker.hidden_size
        ),
        num_codebooks=16,
        ids=_IDS,
        languages=_LANGUAGES,
        speakers=_SPEAKERS,
        dialects=_DIALECTS,
        generation=_GENERATION,
    )


def _stack(
    hidden: int, intermediate: int, layers: int, *, heads: int, kv_heads: int, head_dim: int
) -> StackConfig:
    return StackConfig(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=1e-6,
        rope_theta=1_000_000.0,
    )


def _codec(
    stack: StackConfig, *, latent_size: int, codebook_dim: int, decoder_size: int
) -> CodecConfig:
    return CodecConfig(
        stack=replace(stack, rms_norm_eps=1e-5, rope_theta=10_000.0),
        sliding_window=72,
        latent_size=latent_size,
        codebook_dim=codebook_dim,
        codebook_size=2048,
        num_codebooks=16,
        decoder_size=decoder_size,
        upsampling_ratios=(2, 2),
        upsample_rates=(8, 5, 4, 3),
        sample_rate_hz=24_000,
    )


_REAL_PREDICTOR = _stack(1024, 3072, 5, heads=16, kv_heads=8, head_dim=128)
_REAL_CODEC = _codec(
    _stack(512, 1024, 8, heads=16, kv_heads=16, head_dim=64),
    latent_size=1024,
    codebook_dim=512,
    decoder_size=1536,
)
_TINY_TALKER = _stack(64, 128, 2, heads=4, kv_heads=2, head_dim=32)
_TINY_PREDICTOR = _stack(32, 64, 2, heads=2, kv_heads=1, head_dim=32)
_TINY_CODEC = _codec(
    _stack(64, 128, 2, heads=2, kv_heads=2, head_dim=32),
    latent_size=64,
    codebook_dim=64,
    decoder_size=96,
)

SHAPES: Mapping[str, CheckpointShape] = MappingProxyType(
    {
        "tiny": CheckpointShape(
            _model(_TINY_TALKER, _TINY_PREDICTOR, model_size="1b7", text_hidden_size=64),
            _TINY_CODEC,
        ),
        # As the 0.6B model differs from the larger one: the text is wider than the talker, the
        # predictor is as wide as it and so has no projection, and instructions are dropped.
        "tiny-0.6b": CheckpointShape(
            _model(
                replace(_TINY_TALKER, hidden_size=32, intermediate_size=96),
                _TINY_PREDICTOR,
                model_size="0b6",
                text_hidden_size=64,
            ),
            _TINY_CODEC,
        ),
        "0.6b": CheckpointShape(
            _model(
                _stack(1024, 3072, 28, heads=16, kv_heads=8, head_dim=128),
                _REAL_PREDICTOR,
                model_size="0b6",
                text_hidden_size=2048,
            ),
            _REAL_CODEC,
        ),
        "1.7b": CheckpointShape(
            _model(
                _stack(2048, 6144, 28, heads=16, kv_heads=8, head_dim=128),
                _REAL_PREDICTOR,
                model_size="1b7",
                text_hidden_size=2048,
            ),
            _REAL_CODEC,
        ),
    }
)


def shape_named(name: str) -> CheckpointShape:
    """One of `SHAPES`.

    Raises:
        ArgumentError: there is none of that name.
    """
    if name not in SHAPES:
        near = get_close_matches(name, SHAPES, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ArgumentError(f"shape: {name!r} is not one of {', '.join(SHAPES)}{hint}")
    return SHAPES[name]


def check_new_folder(folder: Path) -> None:
    """Nothing may be overwritten.

    Raises:
        ArgumentError: the folder already holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(f"{folder}: already exists; name a new folder")
