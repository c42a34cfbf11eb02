"""Slots: who writes where, what padding may touch, what a new owner finds."""

from __future__ import annotations

from dataclasses import replace

import torch

from reference_engine.model.code_predictor import predictor_step
from reference_engine.model.frame import frame_step
from reference_engine.model.sampling import DEFAULT_PLAN, GREEDY_PLAN, SamplingSettings
from reference_engine.model.state import (
    ModelState,
    gather_codes,
    reset_slot,
    reset_slots,
    write_text,
)
from reference_engine.model.talker import prefill_step, talker_step
from reference_engine.model.text.prompts import Prompt
from tests.builders.audit import tensors_of
from tests.builders.checkpoints import Loaded, admit, codes_of, slot_vector, speak

GREEDY = SamplingSettings.greedy(ignore_eos=True)


def _sampled(loaded: Loaded, seed: int) -> SamplingSettings:
    return SamplingSettings.from_defaults(
        loaded.model.config.generation, seed=seed, ignore_eos=True
    )


def test_padding_leaves_slot_zero_at_rest(tiny: Loaded):
    """More padded steps than slots and positions: its length and counters stay 0."""
    state = tiny.state(3, max_positions=24)
    admit(tiny, state, 1, tiny.prompt(), GREEDY)

    for _ in range(30):
        frame_step(tiny.model, state, slot_vector([0, 0, 0]), sampler=GREEDY_PLAN)

    assert 0 == int(state.lengths[0])
    assert 0 == int(state.num_frames[0])
    assert 0 == int(state.first_code[0])
    assert not bool(state.status[:, 0].any())
    assert not bool(state.seen[0].any())


def test_padding_does_not_touch_a_neighbour(tiny: Loaded):
    """A slot that is not in the batch keeps every value."""
    state = tiny.state(3)
    admit(tiny, state, 1, tiny.prompt(), GREEDY)
    admit(tiny, state, 2, tiny.prompt("another one"), GREEDY)
    before = state.talker_k[:, 2].clone(), state.next_input[2].clone()

    for _ in range(4):
        frame_step(
            tiny.model,
            state,
            slot_vector(
                [
                    1,
                    0,
                    0,
                ]
            ),
            sampler=GREEDY_PLAN,
        )

    assert torch.equal(before[0], state.talker_k[:, 2])
    assert torch.equal(before[1], state.next_input[2])


def test_split_stages_make_the_codes_of_the_fused_frame(tiny: Loaded):
    """Talker then predictor, as two steps, draw what one frame draws."""
    settings = _sampled(tiny, 5)
    state = tiny.state(2)
    admit(tiny, state, 1, tiny.prompt(), settings)
    for _ in range(6):
        talker_step(tiny.model, state, slot_vector([1]))
        predictor_step(tiny.model, state, slot_vector([1]))

    assert torch.equal(speak(tiny, tiny.prompt(), settings, num_frames=6), codes_of(state, 1))


def test_a_slot_that_ended_no_longer_advances(tiny: Loaded):
    """The host learns of the end one step late; the extra step changes no count and no code."""
    state = tiny.state(2)
    admit(tiny, state, 1, tiny.prompt(), GREEDY)
    for _ in range(3):
        frame_step(tiny.model, state, slot_vector([1]), sampler=GREEDY_PLAN)
    codes, length = codes_of(state, 1), int(state.lengths[1])
    state.eos[1] = True

    frame_step(tiny.model, state, slot_vector([1]), sampler=GREEDY_PLAN)

    assert length == int(state.lengths[1])
    assert torch.equal(codes, codes_of(state, 1))


def test_the_frame_of_end_of_speech_does_not_exist(tiny: Loaded):
    """A slot whose next code is end of speech raises the flag and keeps its frame count."""
    settings = SamplingSettings.greedy()
    ending = next(
        prompt
        for n in range(60)
        if len(speak(tiny, prompt := tiny.prompt(f"word {n}"), settings, num_frames=12)) < 12
    )
    state = tiny.state(2)
    admit(tiny, state, 1, ending, settings)
    for _ in range(14):
        frame_step(tiny.model, state, slot_vector([1]), sampler=GREEDY_PLAN)

    assert bool(state.eos[1])
    assert 2 <= int(state.num_frames[1]) < 12
    assert tiny.model.config.ids.codec_eos not in codes_of(state, 1)[:, 0].tolist()


def test_end_of_speech_is_banned_for_the_first_two_tokens(tiny: Loaded):
    """Even where it would win every draw, two frames come out."""
    state = tiny.state(2)
    admit(tiny, state, 1, tiny.prompt(), SamplingSettings.greedy())
    eager_to_end = tiny.model.bans.clone()
    eager_to_end[1, tiny.model.config.ids.codec_eos] = 1e6
    model = replace(tiny.model, bans=eager_to_end)
    for _ in range(4):
        frame_step(model, state, slot_vector([1]), sampler=GREEDY_PLAN)

    assert 2 == int(state.num_frames[1])
    assert bool(state.eos[1])


def test_a_nan_row_is_flagged_alone(tiny: Loaded):
    """A poisoned request is named; its neighbour draws what it draws alone."""
    state = tiny.state(3)
    admit(tiny, state, 1, tiny.prompt(), GREEDY)
    admit(tiny, state, 2, tiny.prompt("another one"), GREEDY)
    state.next_input[1, 0] = float("nan")

    for _ in range(4):
        frame_step(tiny.model, state, slot_vector([1, 2]), sampler=DEFAULT_PLAN)

    assert [False, True, False] == state.broken.tolist()
    assert 0 == int(state.num_frames[1])
    alone = speak(tiny, tiny.prompt("another one"), GREEDY, num_frames=4)
    assert torch.equal(alone, codes_of(state, 2))


def test_a_slot_that_was_reset_after_a_nan_is_as_new(tiny: Loaded):
    """What was written into its KV is gone: its next owner draws what it draws alone."""
    state, prompt = tiny.state(2), tiny.prompt()
    admit(tiny, state, 1, prompt, GREEDY)
    state.next_input[1, 0] = float("nan")
    for _ in range(3):
        frame_step(tiny.model, state, slot_vector([1]), sampler=GREEDY_PLAN)

    reset_slot(state, 1, num_positions=prompt.num_rows + 3)
    admit(tiny, state, 1, tiny.prompt("another one"), GREEDY)
    for _ in range(4):
        frame_step(tiny.model, state, slot_vector([1]), sampler=GREEDY_PLAN)

    alone = speak(tiny, tiny.prompt("another one"), GREEDY, num_frames=4)
    assert torch.equal(alone, codes_of(state, 1))


def test_text_that_arrives_late_gives_the_codes_of_text_known_whole(tiny: Loaded):
    """Rows appended one by one, just before the frame that reads them."""
    prompt = tiny.prompt("hello the user and all")
    state = tiny.state(2)
    opening = tiny.prompts.open(prompt.voice)
    admit(tiny, state, 1, opening, GREEDY)
    for n in range(9):
        write_text(state, 1, n, prompt.text_rows[n : n + 1])
        frame_step(tiny.model, state, slot_vector([1]), sampler=GREEDY_PLAN)

    assert torch.equal(speak(tiny, prompt, GREEDY, num_frames=9), codes_of(state, 1))


def test_the_text_ring_may_be_shorter_than_the_text(tiny: Loaded):
    """Rows read are overwritten: a ring of four serves a text of twenty."""
    prompt = tiny.prompt("hello the user and all the others too")
    short = replace(tiny.state(2), text_ids=torch.zeros(2, 4, dtype=torch.int64))
    admit(tiny, short, 1, tiny.prompts.open(prompt.voice), GREEDY)
    for n in range(12):
        write_text(short, 1, n, prompt.text_rows[n : n + 1])
        frame_step(tiny.model, short, slot_vector([1]), sampler=GREEDY_PLAN)

    assert torch.equal(speak(tiny, prompt, GREEDY, num_frames=12), codes_of(short, 1))


def test_a_prompt_may_be_prefilled_in_pieces(tiny: Loaded):
    """Rows are appended at the slot's length."""
    prompt = tiny.prompt("hello the user", layout="whole")
    state = tiny.state(2)
    for start in range(0, prompt.num_rows, 5):
        stop = min(start + 5, prompt.num_rows)
        piece = replace(
            prompt,
            text_ids=prompt.text_ids[start:stop],
            codec_ids=prompt.codec_ids[start:stop],
        )
        if start == 0:
            admit(tiny, state, 1, piece, GREEDY)
        else:
            _append(tiny, state, piece)
    for _ in range(5):
        frame_step(tiny.model, state, slot_vector([1]), sampler=GREEDY_PLAN)

    assert torch.equal(speak(tiny, prompt, GREEDY, num_frames=5), codes_of(state, 1))


def _append(loaded: Loaded, state: ModelState, piece: Prompt) -> None:
    prefill_step(
        loaded.model,
        state,
        slot_vector([1]),
        text_ids=torch.tensor([piece.text_ids]),
        codec_ids=torch.tensor([piece.codec_ids]),
        num_rows=torch.tensor([piece.num_rows]),
    )


def test_a_static_context_bound_changes_nothing(tiny: Loaded):
    """Reading fewer empty positions gives the same codes."""
    state = tiny.state(2)
    admit(tiny, state, 1, tiny.prompt(), GREEDY)
    for _ in range(6):
        frame_step(tiny.model, state, slot_vector([1]), sampler=GREEDY_PLAN, context=16)

    assert torch.equal(speak(tiny, tiny.prompt(), GREEDY, num_frames=6), codes_of(state, 1))


def test_one_slot_is_reset_as_by_a_mask(tiny: Loaded):
    """The same fields of the same slot, and nothing of its neighbours."""
    expected, found = tiny.state(3), tiny.state(3)
    for state in (expected, found):
        for tensor in tensors_of(state):
            tensor.fill_(1)

    reset_slots(expected, torch.tensor([False, True, False]))
    reset_slot(found, 1)

    assert all(map(torch.equal, tensors_of(expected), tensors_of(found)))
    assert [1, 0, 1] == found.lengths.tolist()


def test_codes_are_read_back_by_slot_and_frame(tiny: Loaded):
    """The codec stage gathers frames from any position of several slots."""
    state = tiny.state(3)
    state.codes.copy_(torch.arange(state.codes.numel()).view_as(state.codes))

    found = gather_codes(state, slot_vector([2, 1]), torch.tensor([3, 0]), count=2)

    assert torch.equal(torch.stack((state.codes[2, 3:5], state.codes[1, :2])), found)


def test_prompts_of_different_length_are_prefilled_together(tiny: Loaded):
    """Right-padded rows and a padding request leave each with what it gets alone."""
    prompts = [tiny.prompt("hello the user", layout="whole"), tiny.prompt("a", layout="whole")]
    state = tiny.state(4)
    width = max(prompt.num_rows for prompt in prompts) + 3
    for slot, prompt in enumerate(prompts, start=1):
        admit(tiny, state, slot, replace(prompt, text_ids=(0,), codec_ids=(0,)), GREEDY)
    reset_slots(state, torch.tensor([True] * 4))

    def padded(ids: tuple[int, ...]) -> list[int]:
        return [*ids, *(0 for _ in range(width - len(ids)))]

    prefill_step(
        tiny.model,
        state,
        slot_vector([2, 0, 1]),
        text_ids=torch.tensor(
            [padded(prompts[1].text_ids), padded(()), padded(prompts[0].text_ids)]
        ),
        codec_ids=torch.tensor(
            [padded(prompts[1].codec_ids), padded(()), padded(prompts[0].codec_ids)]
        ),
        num_rows=torch.tensor([prompts[1].num_rows, 0, prompts[0].num_rows]),
    )
    for _ in range(5):
        frame_step(tiny.model, state, slot_vector([1, 2]), sampler=GREEDY_PLAN)

    assert [0, prompts[0].num_rows + 5, prompts[1].num_rows + 5, 0] == state.lengths.tolist()
    for slot, prompt in enumerate(prompts, start=1):
        assert torch.equal(speak(tiny, prompt, GREEDY, num_frames=5), codes_of(state, slot))


def test_a_full_slot_keeps_its_last_row_while_others_are_prefilled(tiny: Loaded):
    """Padding rows of a prefill land in the padding slot, never past the end of their own."""
    prompt = tiny.prompt("a", layout="whole")
    state = tiny.state(2, max_positions=prompt.num_rows)
    admit(tiny, state, 1, prompt, GREEDY)
    before = state.talker_k[:, 1].clone()

    prefill_step(
        tiny.model,
        state,
        slot_vector([1]),
        text_ids=torch.full((1, 4), 7),
        codec_ids=torch.full((1, 4), 7),
        num_rows=torch.tensor([0]),
    )

    assert torch.equal(before, state.talker_k[:, 1])
