"""How a stream is cut into calls, and who shares them, does not change its samples.

Tolerance: at another call width the convolutions sum in another order; random nets at a peak of
about 0.4 move by about 1e-6, and 5e-5 is the limit. At the same width the samples are bit-equal.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from reference_engine.codec.decoder import codec_step
from reference_engine.codec.state import reset_slot, reset_slots
from tests.builders.audit import tensors_of
from tests.builders.checkpoints import Loaded, decode, random_codes, slot_vector

SAMPLES_PER_FRAME = 1920
TOLERANCE = 5e-5


@pytest.mark.parametrize(
    "pieces",
    [[1] * 62, [1, 2, 4, 7, 13, 35], [12] * 5 + [2], [61, 1], [2, 4, 8, 12, 36]],
    ids=lambda pieces: "-".join(map(str, pieces[:6])),
)
def test_any_cutting_gives_the_samples_of_the_whole(tiny: Loaded, pieces: list[int]):
    """62 codec frames at once, or in pieces: the same wave."""
    codes = random_codes(62)[0]

    whole, cut = decode(tiny.codec, codes), decode(tiny.codec, codes, pieces=pieces)

    assert len(whole) == len(cut) == 62 * SAMPLES_PER_FRAME
    assert float((whole - cut).abs().max()) <= TOLERANCE
    assert 0.2 < float(whole.abs().max()) < 1.0


def test_a_codec_frame_changes_nothing_before_itself(tiny: Loaded):
    """No layer looks ahead: frame 30 first changes sample 30 * 1920."""
    codes = random_codes(40)[0]
    other = codes.clone()
    other[30] = (other[30] + 1) % 2048

    difference = (decode(tiny.codec, codes) - decode(tiny.codec, other)).abs()

    assert 30 * SAMPLES_PER_FRAME == int(difference.nonzero()[0])


def test_a_codec_frame_is_forgotten_after_the_stated_context(micro: Loaded):
    """12 frames of convolution and layers * (window - 1) of attention look back, no further."""
    config = micro.codec.config
    reach = 12 + config.stack.num_layers * (config.sliding_window - 1)
    codes = random_codes(30)[0]
    other = codes.clone()
    other[2] = (other[2] + 1) % 2048

    difference = (decode(micro.codec, codes) - decode(micro.codec, other)).abs()
    last_changed = int(difference.nonzero()[-1]) // SAMPLES_PER_FRAME

    assert 2 + reach - 1 <= last_changed <= 2 + reach


def test_codes_outside_a_codebook_are_clamped(tiny: Loaded):
    """A frame that holds end of speech decodes to something finite, as the official one does."""
    codes = random_codes(2)[0]
    codes[1, 0] = 2150
    clamped = codes.clone()
    clamped[1, 0] = 2047

    assert torch.equal(decode(tiny.codec, clamped), decode(tiny.codec, codes))


def test_rows_of_different_length_share_a_call(tiny: Loaded):
    """Each row gives its own samples and remembers its own columns, whatever the padding holds."""
    codes = random_codes(9, num_streams=2)
    state = tiny.codec_state(3)
    slots = slot_vector([1, 2])
    heard: list[list[Tensor]] = [[], []]
    for start, counts in ((0, (3, 1)), (3, (1, 4))):
        width = max(counts)
        at = (start, 0 if start == 0 else 1)
        batch = torch.stack([codes[row, at[row] : at[row] + width] for row in (0, 1)])
        samples = codec_step(tiny.codec, state, slots, codes=batch, num_frames=torch.tensor(counts))
        for row in (0, 1):
            heard[row].append(samples[row, : counts[row] * SAMPLES_PER_FRAME])

    for row, total in ((0, 4), (1, 5)):
        alone = decode(tiny.codec, codes[row, :total])
        assert float((alone - torch.cat(heard[row])).abs().max()) <= TOLERANCE


def test_at_the_same_width_company_changes_no_bit(tiny: Loaded):
    """Bucket of four rows and two frames: neighbours and padding leave a stream bit-equal."""
    codes = random_codes(6, num_streams=4)

    def run(batch: list[int], slot_of: dict[int, int]) -> Tensor:
        state = tiny.codec_state(6)
        heard = []
        for start in range(0, 6, 2):
            rows = torch.stack([codes[row, start : start + 2] for row in batch])
            samples = codec_step(
                tiny.codec,
                state,
                slot_vector(slot_of.get(row, 0) for row in batch),
                codes=rows,
                num_frames=torch.tensor([2 if row in slot_of else 0 for row in batch]),
            )
            heard.append(samples[batch.index(0)])
        return torch.cat(heard)

    alone = run([0, 1, 2, 3], {0: 1})
    together = run([0, 1, 2, 3], {0: 1, 1: 2, 2: 3, 3: 4})
    moved = run([3, 2, 1, 0], {0: 5, 1: 2, 2: 3, 3: 4})

    assert torch.equal(alone, together)
    assert torch.equal(alone, moved)


def test_padding_leaves_slot_zero_at_rest(micro: Loaded):
    """More padded calls than slots: its clock stays at 0."""
    state = micro.codec_state(3)
    for _ in range(8):
        codec_step(
            micro.codec,
            state,
            slot_vector([0, 0, 1]),
            codes=random_codes(2, num_streams=3),
            num_frames=torch.tensor([0, 0, 2]),
        )

    assert [0, 16, 0] == state.position.tolist()


def test_a_nan_left_behind_does_not_reach_the_next_stream(micro: Loaded):
    """Reset clears every column and the window."""
    codes = random_codes(3)[0]
    state = micro.codec_state(2)
    for columns in (*state.columns(), state.window_k, state.window_v):
        columns.fill_(float("nan"))

    reset_slots(state, torch.tensor([False, True]))
    samples = codec_step(
        micro.codec, state, slot_vector([1]), codes=codes[None], num_frames=torch.tensor([3])
    )

    assert torch.equal(decode(micro.codec, codes), samples[0])


def test_one_stream_is_reset_as_by_a_mask(micro: Loaded):
    """The same memory of the same stream, and nothing of its neighbours."""
    expected, found = micro.codec_state(3), micro.codec_state(3)
    for state in (expected, found):
        for tensor in tensors_of(state):
            tensor.fill_(1)

    reset_slots(expected, torch.tensor([False, True, False]))
    reset_slot(found, 1)

    assert all(map(torch.equal, tensors_of(expected), tensors_of(found)))
    assert [1, 0, 1] == found.position.tolist()


@st.composite
def schedules(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Calls, each of (stream, frames) pairs; a stream that comes back after its end is another.

    Streams 0..5 live in three slots: joined late, left early, interleaved, slots re-used.
    """
    calls = []
    for _ in range(draw(st.integers(2, 7))):
        streams = draw(
            st.lists(st.integers(0, 5), min_size=1, max_size=3, unique_by=lambda s: s % 3)
        )
        calls.append([(stream, draw(st.integers(1, 3))) for stream in streams])
    return calls


@pytest.fixture(scope="module")
def long_codes() -> Tensor:
    """Codes [6 streams, 24, 16]."""
    return random_codes(24, num_streams=6, seed=7)


@pytest.fixture(scope="module")
def solo(micro: Loaded, long_codes: Tensor) -> list[Tensor]:
    """Each stream decoded whole, by itself."""
    return [decode(micro.codec, codes) for codes in long_codes]


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls=schedules())
def test_random_schedules_equal_solo_runs(
    micro: Loaded, long_codes: Tensor, solo: list[Tensor], calls: list[list[tuple[int, int]]]
):
    """Interleaved, joined, cancelled, reset and re-used: every stream hears its solo wave."""
    state = micro.codec_state(4)
    owner: dict[int, int] = {}
    done = dict.fromkeys(range(6), 0)
    for call in calls:
        taken = torch.zeros(4, dtype=torch.bool)
        for stream, _ in call:
            slot = stream % 3 + 1
            if owner.get(slot) != stream:
                # The slot's stream was cancelled; a stream that returns starts anew.
                owner[slot], done[stream], taken[slot] = stream, 0, True
        reset_slots(state, taken)
        width = max(count for _, count in call)
        rows = [*call, (0, 0)]  # one padding row in every call
        codes = torch.zeros(len(rows), width, 16, dtype=torch.int64)
        for row, (stream, count) in enumerate(call):
            codes[row, :count] = long_codes[stream, done[stream] : done[stream] + count]
        samples = codec_step(
            micro.codec,
            state,
            slot_vector([*(stream % 3 + 1 for stream, _ in call), 0]),
            codes=codes,
            num_frames=torch.tensor([count for _, count in rows]),
        )
        for row, (stream, count) in enumerate(call):
            start = done[stream] * SAMPLES_PER_FRAME
            stop = start + count * SAMPLES_PER_FRAME
            heard = samples[row, : count * SAMPLES_PER_FRAME]
            assert float((solo[stream][start:stop] - heard).abs().max()) <= TOLERANCE
            done[stream] += count
