"""The model's shapes and ids, as plain frozen values.

`config_reader.py` fills them from a checkpoint folder, `shapes.py` for random checkpoints.
Nothing here has a default: the official config classes' defaults are not the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = [
    "AUTO_LANGUAGE",
    "CodecConfig",
    "GenerationDefaults",
    "ModelConfig",
    "PredictorConfig",
    "SpecialIds",
    "StackConfig",
    "TalkerConfig",
]

# The pseudo language: the model guesses. It has no id of its own.
AUTO_LANGUAGE = "auto"


@dataclass(frozen=True, slots=True)
class StackConfig:
    """One pre-norm transformer stack with grouped-query attention and SwiGLU."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float

    @property
    def query_size(self) -> int:
        """Width of all query heads together; it need not equal `hidden_size`."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together, and of all value heads."""
        return self.num_kv_heads * self.head_dim

    @property
    def num_qkv_heads(self) -> int:
        """Heads in one merged query, key and value projection."""
        return self.num_heads + 2 * self.num_kv_heads


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """The autoregressive model that draws the first codebook."""

    stack: StackConfig
    vocab_size: int
    text_vocab_size: int
    text_hidden_size: int
    max_positions: int


@dataclass(frozen=True, slots=True)
class PredictorConfig:
    """The code predictor: the remaining codebooks of one codec frame."""

    stack: StackConfig
    vocab_size: int
    # The embeddings are as wide as the talker; the projection exists only where the widths differ.
    embedding_size: int

    @property
    def has_projection(self) -> bool:
        """Whether talker-wide rows are projected to the predictor's width."""
        return self.embedding_size != self.stack.hidden_size


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Reserved rows of the text vocabulary and of the talker's codec vocabulary."""

    im_start: int
    im_end: int
    tts_pad: int
    tts_bos: int
    tts_eos: int
    codec_pad: int
    codec_bos: int
    codec_eos: int
    codec_think: int
    codec_nothink: int
    codec_think_bos: int
    codec_think_eos: int


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """generation_config.json: what a request gets that names no sampling settings."""

    do_sample: bool
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    predictor_do_sample: bool
    predictor_temperature: float
    predictor_top_k: int
    predictor_top_p: float
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Talker, predictor, ids and names of one CustomVoice checkpoint."""

    model_size: str
    talker: TalkerConfig
    predictor: PredictorConfig
    num_codebooks: int
    ids: SpecialIds
    # Lower-case name -> row of the codec embedding.
    languages: Mapping[str, int]
    speakers: Mapping[str, int]
    # Lower-case voice -> the dialect (a key of `languages`) it speaks in Chinese.
    dialects: Mapping[str, str]
    generation: GenerationDefaults
    # Where the weights are random, what they come from; empty for a real checkpoint.
    random_weights: str = ""

    @property
    def first_control_code(self) -> int:
        """First id of the control zone: the talker's last 1,024 rows, never drawn but for EOS.

        Source: the official generate(), which suppresses `vocab_size - 1024 .. vocab_size`.
        """
        return self.talker.vocab_size - 1024

    @property
    def takes_instructions(self) -> bool:
        """The 0.6B model drops instructions; the official wrapper tests the size string so."""
        return self.model_size not in "0b6"

    @property
    def public_languages(self) -> tuple[str, ...]:
        """Languages a caller may name: `auto` and every plain one, no dialect."""
        plain = sorted(name for name in self.languages if "dialect" not in name)
        return (AUTO_LANGUAGE, *plain)


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """The codec decoder: 16 codes in, `samples_per_frame` samples out."""

    stack: StackConfig
    sliding_window: int
    latent_size: int
    codebook_dim: int
    codebook_size: int
    num_codebooks: int
    decoder_size: int
    upsampling_ratios: tuple[int, ...]
    upsample_rates: tuple[int, ...]
    sample_rate_hz: int

    @property
    def samples_per_frame(self) -> int:
        """Samples of one codec frame: the product of all upsampling, 1,920 in the real codec."""
        product = 1
        for rate in (*self.upsampling_ratios, *self.upsample_rates):
            product *= rate
        return product

    @property
    def block_channels(self) -> tuple[int, ...]:
        """Channels before the first block and after each: every block halves them."""
        return tuple(self.decoder_size >> n for n in range(len(self.upsample_rates) + 1))


def frozen_names(names: Mapping[str, int]) -> Mapping[str, int]:
    """Lower-case, read-only copy of a name table."""
    return MappingProxyType({name.lower(): value for name, value in names.items()})
