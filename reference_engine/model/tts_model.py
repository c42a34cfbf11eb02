"""The loaded model: weights, tables and kernels in one immutable value."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from reference_engine.kernels import KernelSet
from reference_engine.model.config import ModelConfig
from reference_engine.model.layers import RotaryTables, StackWeights

__all__ = ["PredictorWeights", "TalkerWeights", "TtsModel"]


@dataclass(frozen=True, slots=True)
class TalkerWeights:
    """Talker tensors; matrices are [in, out]."""

    text_embedding: Tensor  # [text vocabulary, text hidden]
    text_fc1: Tensor  # [text hidden, text hidden]
    text_fc1_bias: Tensor
    text_fc2: Tensor  # [text hidden, hidden]
    text_fc2_bias: Tensor
    stack: StackWeights
    head: Tensor  # [hidden, vocabulary]


@dataclass(frozen=True, slots=True)
class PredictorWeights:
    """Code predictor tensors; matrices are [in, out]."""

    # Talker width to predictor width; None where the widths agree.
    projection: Tensor | None
    projection_bias: Tensor | None
    # Every codebook's embedding already projected, same rows as `TtsModel.code_table`: looking a
    # projected row up is one small matrix product less in each of the 15 passes.
    inputs: Tensor
    stack: StackWeights
    heads: tuple[Tensor, ...]  # each [hidden, codebook]


@dataclass(frozen=True, slots=True)
class TtsModel:
    """Talker and code predictor, ready to step; nothing here changes after loading."""

    config: ModelConfig
    kernels: KernelSet
    talker: TalkerWeights
    talker_rotary: RotaryTables
    predictor: PredictorWeights
    predictor_rotary: RotaryTables
    # All code embeddings in one table, so that a frame's sum is one gather: the talker's
    # vocabulary, one row of zeros (for prompt rows without a codec side), then codebooks 1..15.
    code_table: Tensor  # [vocabulary + 1 + 15 * codebook, hidden]
    code_offsets: Tensor  # [16] int64, first row of each codebook in the table
    bans: Tensor  # [2, vocabulary] fp32 of 0 and -inf: end of speech banned, end of speech legal

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.talker.head.device

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, KV and hidden rows."""
        return self.talker.head.dtype

    @property
    def no_code(self) -> int:
        """The row of zeros in `code_table`: "nothing is added here"."""
        return self.config.talker.vocab_size
