"""Random checkpoints in the official layout, loaded, and requests put into their slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from reference_engine.checkpoint.make import make_checkpoint, write_checkpoint
from reference_engine.checkpoint.shapes import SHAPES, CheckpointShape
from reference_engine.codec.decoder import CodecModel, codec_step
from reference_engine.codec.state import CodecState
from reference_engine.codec.state import allocate as allocate_codec
from reference_engine.codec.weights import load_codec
from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import DEFAULT_PLAN, GREEDY_PLAN, SamplerPlan, SamplingSettings
from reference_engine.model.state import (
    ModelState,
    allocate,
    reset_slots,
    write_sampling,
    write_text,
)
from reference_engine.model.talker import prefill_step
from reference_engine.model.text.prompts import Prompt, PromptBuilder, TextLayout
from reference_engine.model.text.tokenizer import TextTokenizer, load_tokenizer
from reference_engine.model.tts_model import TtsModel
from reference_engine.model.weights import load_model


@dataclass(frozen=True)
class Loaded:
    """One checkpoint, ready to speak noise on the CPU in fp32."""

    folder: Path
    model: TtsModel
    codec: CodecModel
    tokenizer: TextTokenizer
    prompts: PromptBuilder

    def state(self, num_slots: int = 5, *, max_positions: int = 96) -> ModelState:
        return allocate(
            self.model.config,
            num_slots,
            max_positions=max_positions,
            device="cpu",
            dtype=self.model.dtype,
        )

    def codec_state(self, num_slots: int = 5) -> CodecState:
        return allocate_codec(self.codec.config, num_slots, device="cpu", dtype=torch.float32)

    def prompt(
        self,
        text: str = "hello the user",
        *,
        speaker: str = "ryan",
        language: str = "auto",
        layout: str = "streaming",
        instruct: str = "",
    ) -> Prompt:
        return self.prompts.build(
            text,
            self.prompts.voice(speaker, language),
            layout=TextLayout(layout),
            instruct=instruct,
        )


def load(folder: Path, *, dtype: torch.dtype = torch.float32) -> Loaded:
    model = load_model(folder, device="cpu", dtype=dtype)
    tokenizer = load_tokenizer(folder, model.config)
    return Loaded(
        folder=folder,
        model=model,
        codec=load_codec(folder, device="cpu"),
        tokenizer=tokenizer,
        prompts=PromptBuilder(model.config, tokenizer),
    )


def make(folder: Path, *, shape: str = "tiny", seed: int = 0) -> Path:
    make_checkpoint(folder, shape=shape, seed=seed)
    return folder


def micro_shape() -> CheckpointShape:
    """Smaller than tiny: a vocabulary of 600, and a codec that remembers five frames.

    It is made and loaded in a blink, and the attention window's edge is met within a few frames.
    """
    tiny = SHAPES["tiny"]
    stack = replace(tiny.codec.stack, hidden_size=16, intermediate_size=16, num_layers=1)
    codec = replace(
        tiny.codec,
        stack=replace(stack, head_dim=8),
        sliding_window=5,
        latent_size=16,
        codebook_dim=16,
        decoder_size=16,
    )
    ids = replace(tiny.model.ids, im_start=501, im_end=502, tts_pad=505, tts_bos=506, tts_eos=507)
    talker = replace(tiny.model.talker, text_vocab_size=600)
    return CheckpointShape(model=replace(tiny.model, ids=ids, talker=talker), codec=codec)


def make_micro(folder: Path, *, seed: int = 0) -> Path:
    write_checkpoint(folder, micro_shape(), label="random numbers for tests", seed=seed)
    return folder


def slot_vector(slots: Iterable[int]) -> Tensor:
    return torch.tensor(list(slots), dtype=torch.int64)


def admit(
    loaded: Loaded, state: ModelState, slot: int, prompt: Prompt, settings: SamplingSettings
) -> None:
    """Reset a slot, load a request into it and prefill its prompt."""
    mask = torch.zeros(state.num_slots, dtype=torch.bool)
    mask[slot] = True
    reset_slots(state, mask)
    write_sampling(state, slot, settings)
    write_text(state, slot, 0, prompt.text_rows)
    prefill_step(
        loaded.model,
        state,
        slot_vector([slot]),
        text_ids=torch.tensor([prompt.text_ids]),
        codec_ids=torch.tensor([prompt.codec_ids]),
        num_rows=torch.tensor([prompt.num_rows]),
    )


def speak(
    loaded: Loaded,
    prompt: Prompt,
    settings: SamplingSettings,
    *,
    num_frames: int,
    sampler: SamplerPlan | None = None,
    max_positions: int = 96,
) -> Tensor:
    """Codes [frames, 16] of one request by itself, cut at its end of speech."""
    state = loaded.state(2, max_positions=max_positions)
    admit(loaded, state, 1, prompt, settings)
    plan = sampler or (DEFAULT_PLAN if settings.do_sample else GREEDY_PLAN)
    for _ in range(num_frames):
        frame_step(loaded.model, state, slot_vector([1]), sampler=plan)
    return codes_of(state, 1)


def codes_of(state: ModelState, slot: int) -> Tensor:
    """Codes [frames, 16] that a slot has made."""
    return state.codes[slot, : int(state.num_frames[slot])].clone()


def random_codes(num_frames: int, *, seed: int = 0, num_streams: int = 1) -> Tensor:
    """Codes [streams, frames, 16]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2048, (num_streams, num_frames, 16), generator=generator)


def decode(codec: CodecModel, codes: Tensor, *, pieces: Sequence[int] | None = None) -> Tensor:
    """Samples of one stream's codes [frames, 16], decoded whole or in pieces of so many frames."""
    state = allocate_codec(codec.config, 2, device="cpu", dtype=codec.dtype)
    slots, start, parts = slot_vector([1]), 0, []
    for count in pieces or [len(codes)]:
        samples = codec_step(
            codec,
            state,
            slots,
            codes=codes[None, start : start + count],
            num_frames=torch.tensor([count]),
        )
        parts.append(samples[0])
        start += count
    assert start == len(codes)
    return torch.cat(parts)
