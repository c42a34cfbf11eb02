"""Everything the model remembers about its requests, in fixed device slots.

A request owns one slot for its life. Steps take a vector of slot indices and write in place, so a
captured graph always reads the same addresses. Slot 0 belongs to nobody: padding rows of a bucket
point at it, and its length and counters stay 0 however often it is stepped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_engine.model.config import ModelConfig
from reference_engine.model.sampling import SamplingSettings

__all__ = [
    "PADDING_SLOT",
    "ModelState",
    "SamplingState",
    "allocate",
    "gather_codes",
    "reset_slot",
    "reset_slots",
    "write_sampling",
    "write_text",
]

PADDING_SLOT = 0


@dataclass(frozen=True, slots=True)
class SamplingState:
    """What each slot's request asked of the sampler; every tensor is `[slots]`.

    A greedy slot is top-k 1 at temperature 1 with its random number held at 0 (`draws` 0), so
    greedy and sampled requests share a batch and one code path.
    """

    temperature: Tensor  # fp32
    top_k: Tensor  # int64, >= 1
    top_p: Tensor  # fp32; 2 where switched off, so that rounding can never cut the tail
    draws: Tensor  # fp32, 1 where a random number is used and 0 where greedy
    repetition_penalty: Tensor  # fp32
    predictor_temperature: Tensor  # fp32
    predictor_top_k: Tensor  # int64
    predictor_top_p: Tensor  # fp32
    predictor_draws: Tensor  # fp32
    seed: Tensor  # int64, the Philox key
    min_tokens: Tensor  # int64, end of speech is banned for the first so many tokens


@dataclass(frozen=True, slots=True)
class ModelState:
    """Talker KV, inputs, outputs and counters of every slot.

    S slots, L layers, T positions, F codec frames, R text ids, K codebooks, H talker width,
    V codec vocabulary.
    """

    talker_k: Tensor  # [L, S, T, kv heads, head_dim]
    talker_v: Tensor  # [L, S, T, kv heads, head_dim]
    lengths: Tensor  # [S] int64, talker positions written
    hidden: Tensor  # [S, H], after the final norm: what the head and the predictor read
    next_input: Tensor  # [S, H], codec side of the next talker row; the step adds the text side
    first_code: Tensor  # [S] int64, drawn by the talker, completed by the predictor
    # Row 0 `eos`: end of speech was drawn. Row 1 `broken`: a non-finite hidden state was seen. One
    # tensor, so that one copy a step tells the host both; such a slot no longer advances.
    status: Tensor  # [2, S] bool
    seen: Tensor  # [S, V] bool, first-codebook codes drawn so far, for the repetition penalty
    num_frames: Tensor  # [S] int64, whole codec frames; also RNG counter and text row
    codes: Tensor  # [S, F, K] int64
    text_ids: Tensor  # [S, R] int64, ring: text row n lies at n % R
    text_length: Tensor  # [S] int64, rows known; beyond them the row is tts_pad
    sampling: SamplingState
    # Scratch of one predictor loop, addressed by row rather than slot: it dies with the frame.
    predictor_k: Tensor  # [predictor layers, rows, K, kv heads, head_dim]
    predictor_v: Tensor  # [predictor layers, rows, K, kv heads, head_dim]

    @property
    def eos(self) -> Tensor:
        """[S] bool view: end of speech was drawn; the frame it was drawn in does not exist."""
        return self.status[0]

    @property
    def broken(self) -> Tensor:
        """[S] bool view: the slot's hidden state was not finite; its codes mean nothing."""
        return self.status[1]

    @property
    def num_slots(self) -> int:
        """Slots allocated, the padding slot included."""
        return self.lengths.shape[0]

    @property
    def max_positions(self) -> int:
        """Talker positions a slot can hold."""
        return self.talker_k.shape[2]

    @property
    def max_frames(self) -> int:
        """Codec frames a slot can hold."""
        return self.codes.shape[1]

    @property
    def max_text(self) -> int:
        """Text rows that may wait in a slot's ring."""
        return self.text_ids.shape[1]

    @property
    def max_rows(self) -> int:
        """Largest batch one predictor loop can take."""
        return self.predictor_k.shape[1]


def allocate(
    config: ModelConfig,
    num_slots: int,
    *,
    max_positions: int,
    device: torch.device | str,
    dtype: torch.dtype,
    max_frames: int | None = None,
    max_text: int | None = None,
    max_rows: int | None = None,
) -> ModelState:
    """Allocate zeroed state for `num_slots` slots, slot 0 included.

    Args:
        config: of the model that will step this state.
        num_slots: padding slot + requests held at once.
        max_positions: prompt rows + codec frames of one request.
        device: of every tensor.
        dtype: of KV, hidden and input rows: the weights' dtype.
        max_frames: codec frames of one request; `max_positions` where not given.
        max_text: ring length in text rows; `max_positions` where not given.
        max_rows: largest batch; `num_slots` where not given.

    Raises:
        ValueError: fewer than two slots, or more positions than the model was built for.
    """
    if num_slots < 2:
        raise ValueError("num_slots counts the padding slot: at least 2")
    if not 0 < max_positions <= config.talker.max_positions:
        raise ValueError(f"max_positions must be 1..{config.talker.max_positions}")
    stack, predictor = config.talker.stack, config.predictor.stack
    kv_shape = (stack.num_layers, num_slots, max_positions, stack.num_kv_heads, stack.head_dim)
    loop_shape = (
        predictor.num_layers,
        max_rows or num_slots,
        config.num_codebooks,
        predictor.num_kv_heads,
        predictor.head_dim,
    )

    def zeros(*shape: int, of: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(shape, dtype=of, device=device)

    return ModelState(
        talker_k=zeros(*kv_shape, of=dtype),
        talker_v=zeros(*kv_shape, of=dtype),
        lengths=zeros(num_slots),
        hidden=zeros(num_slots, stack.hidden_size, of=dtype),
        next_input=zeros(num_slots, stack.hidden_size, of=dtype),
        first_code=zeros(num_slots),
        status=zeros(2, num_slots, of=torch.bool),
        seen=zeros(num_slots, config.talker.vocab_size, of=torch.bool),
        num_frames=zeros(num_slots),
        codes=zeros(num_slots, max_frames or max_positions, config.num_codebooks),
        text_ids=zeros(num_slots, max_text or max_positions),
        text_length=zeros(num_slots),
        sampling=_allocate_sampling(num_slots, device=device),
        predictor_k=zeros(*loop_shape, of=dtype),
        predictor_v=zeros(*loop_shape, of=dtype),
    )


def _allocate_sampling(num_slots: int, *, device: torch.device | str) -> SamplingState:
    """Settings of an unused slot: greedy, no penalty, end of speech legal from the third token."""

    def full(value: float) -> Tensor:
        return torch.full((num_slots,), value, dtype=torch.float32, device=device)

    def count(value: int) -> Tensor:
        return torch.full((num_slots,), value, dtype=torch.int64, device=device)

    return SamplingState(
        temperature=full(1.0),
        top_k=count(1),
        top_p=full(2.0),
        draws=full(0.0),
        repetition_penalty=full(1.0),
        predictor_temperature=full(1.0),
        predictor_top_k=count(1),
        predictor_top_p=full(2.0),
        predictor_draws=full(0.0),
        seed=count(0),
        min_tokens=count(2),
    )


def reset_slots(state: ModelState, mask: Tensor) -> None:
    """Make the slots under `mask` [S] bool new: no positions, no text, no codes drawn.

    KV is cleared too. Nothing beyond a slot's length is given any weight, but attention adds it
    with a weight of 0, and a NaN left there would spoil the next owner's sum.
    """
    for counter in (state.lengths, state.num_frames, state.text_length, state.first_code):
        counter.masked_fill_(mask, 0)
    state.status.masked_fill_(mask, False)
    state.seen.masked_fill_(mask[:, None], False)
    state.next_input.masked_fill_(mask[:, None], 0)
    state.hidden.masked_fill_(mask[:, None], 0)
    for cache in (state.talker_k, state.talker_v):
        cache.masked_fill_(mask[None, :, None, None, None], 0)


def reset_slot(state: ModelState, slot: int, *, num_positions: int | None = None) -> None:
    """`reset_slots` for one slot, without a mask that the host would have to send.

    Args:
        state: written in place.
        slot: which.
        num_positions: what its owner can have written at most; all it holds where None.
    """
    for rows in (state.lengths, state.num_frames, state.text_length, state.first_code,
                 state.seen, state.next_input, state.hidden):  # fmt: skip
        rows[slot].zero_()
    state.status[:, slot].zero_()
    for cache in (state.talker_k, state.talker_v):
        cache[:, slot, :num_positions].zero_()


def write_sampling(state: ModelState, slot: int, settings: SamplingSettings) -> None:
    """Copy one request's settings into its slot; at admission, outside any captured step."""
    target = state.sampling
    for name, value in settings.slot_values().items():
        # Not by assignment, which would bring each number over in a copy that the host waits for.
        getattr(target, name)[slot].fill_(value)


def write_text(state: ModelState, slot: int, start: int, ids: Sequence[int]) -> None:
    """Append text rows `start .. start + len(ids)` to a slot's ring; outside captured steps.

    The caller keeps `start + len(ids) - num_frames <= max_text`, so that no row is overwritten
    before the talker has read it.

    Raises:
        ValueError: more rows than the whole ring holds.
    """
    if not ids:
        return
    if len(ids) > state.max_text:
        raise ValueError(f"text: {len(ids)} rows at once, the ring holds {state.max_text}")
    ring, at, rows = state.text_ids[slot], start % state.max_text, torch.tensor(ids)
    num_before_end = min(len(ids), state.max_text - at)
    ring[at : at + num_before_end].copy_(rows[:num_before_end])
    if num_before_end < len(ids):
        ring[: len(ids) - num_before_end].copy_(rows[num_before_end:])
    state.text_length[slot].fill_(start + len(ids))


def gather_codes(state: ModelState, slots: Tensor, first_frame: Tensor, *, count: int) -> Tensor:
    """Read `count` codec frames of each slot from `first_frame` [B] on -> [B, count, K].

    Rows past a slot's capacity repeat its last row; the codec is told how many are real.
    """
    steps = torch.arange(count, device=slots.device)
    frames = (first_frame[:, None] + steps).clamp(max=state.max_frames - 1)
    flat = frames + slots[:, None] * state.max_frames
    codes = state.codes.view(-1, state.codes.shape[2])
    return codes.index_select(0, flat.view(-1)).view(slots.shape[0], count, -1)
