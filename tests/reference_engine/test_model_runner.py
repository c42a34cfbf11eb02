"""A real checkpoint through the whole engine: codes and samples are those of a request alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from reference_engine.errors import UnsayableError
from reference_engine.messages import AppendText, EndReason
from reference_engine.model.sampling import SamplingSettings
from reference_engine.model.text.prompts import Prompt
from tests.builders.checkpoints import Loaded, speak
from tests.builders.model_engine import (
    GREEDY,
    NUM_FRAMES,
    assert_same_sound,
    desk,
    heard,
    pcm,
    requests,
)


@pytest.fixture(scope="module")
def solos(micro: Loaded) -> dict[tuple[Prompt, SamplingSettings], Tensor]:
    """The codes of each of 32 requests alone, made when first asked for."""

    class Solos(dict[tuple[Prompt, SamplingSettings], Tensor]):
        def __missing__(self, key: tuple[Prompt, SamplingSettings]) -> Tensor:
            self[key] = speak(micro, *key, num_frames=NUM_FRAMES)
            return self[key]

    return Solos()


@pytest.mark.parametrize(
    ("count", "stages"), [(1, "fused"), (2, "split"), (7, "fused"), (7, "split"), (32, "fused")]
)
def test_company_changes_neither_codes_nor_sound(micro, solos, count, stages):
    """At any concurrency, each request's codes are its solo codes and its sound their decode."""
    said = requests(micro, count)
    table = desk(micro, slots=32, stages=stages)
    listeners = [table.say(prompt, sampling) for prompt, sampling in said]

    table.finish()

    for (prompt, sampling), listener in zip(said, listeners, strict=True):
        solo = solos[prompt, sampling]
        assert listener.end is not None
        num_frames = listener.end.stats.num_codec_frames
        assert torch.equal(solo[:num_frames], table.codes(prompt, sampling)[:num_frames])
        assert num_frames == len(solo)
        assert_same_sound(pcm(micro, solo), heard(listener))


def test_a_stored_prefix_is_as_good_as_a_computed_one(micro):
    """The constant rows of a voice are copied at admission: same codes, no prefill step."""
    prompt = micro.prompt("the user")
    computed, copied = desk(micro), desk(micro)
    copied.runner.store_prefixes([micro.prompts.open(micro.prompts.voice("ryan", "auto"))])
    for table in (computed, copied):
        table.say(prompt)
        table.finish()

    assert torch.equal(computed.codes(prompt, GREEDY), copied.codes(prompt, GREEDY))
    assert [1, 0] == [table.engine.meters.stages[0].num_steps for table in (computed, copied)]


def test_whole_text_prompts_go_through_the_real_prefill(micro):
    """The text stands before the speech: codes are those of the model alone."""
    prompt = micro.prompt("the user said", layout="whole", instruct="be kind")
    table = desk(micro)
    table.say(prompt)

    table.finish()

    solo = speak(micro, prompt, GREEDY, num_frames=NUM_FRAMES)
    assert torch.equal(solo, table.codes(prompt, GREEDY)[: len(solo)])


def test_text_that_arrives_in_pieces_gives_the_codes_of_the_whole_text(micro):
    """The request waits for each token, and ends up where it would have been."""
    whole = micro.prompt("the user said no to the assistant")
    opening = micro.prompts.open(micro.prompts.voice("ryan", "auto"))
    sampling = replace(GREEDY, ignore_eos=True)
    table = desk(micro)
    listener = table.say(opening, sampling, is_text_complete=False)
    for at, token in enumerate(whole.text_rows):
        for _ in range(3):
            table.engine.turn()
        is_end = at + 1 == len(whole.text_rows)
        table.engine.append_text(AppendText("0", (token,), 1, 4, is_end))

    table.finish()

    solo = speak(micro, whole, sampling, num_frames=NUM_FRAMES)
    assert torch.equal(solo, table.codes(opening, sampling)[:NUM_FRAMES])
    assert_same_sound(pcm(micro, solo), heard(listener))


def test_a_codec_that_remembers_nothing_sounds_the_same(micro):
    """Decoding the whole history for every chunk gives the same samples, only later."""
    said = requests(micro, 3)
    table = desk(micro, codec="redecode", chunks={"mode": "fixed", "ramp": [1, 3]})
    listeners = [table.say(prompt, sampling) for prompt, sampling in said]

    table.finish()

    for (prompt, sampling), listener in zip(said, listeners, strict=True):
        solo = speak(micro, prompt, sampling, num_frames=NUM_FRAMES)
        assert_same_sound(pcm(micro, solo), heard(listener))


def test_the_trimmed_stream_lacks_exactly_the_stated_prefix(micro):
    """Random weights make noise from the first sample, so two codec frames are cut unheard."""
    prompt = micro.prompt("hello")
    kept, cut = desk(micro), desk(micro, leading_silence="trim", assume_silent_frames=2)
    whole, trimmed = kept.say(prompt), cut.say(prompt)
    kept.finish()
    cut.finish()

    assert trimmed.end is not None
    num_trimmed = trimmed.end.stats.trimmed_samples
    assert 2 * 1920 == num_trimmed
    assert_same_sound(heard(whole)[num_trimmed:], heard(trimmed))


@pytest.mark.parametrize("ignore_eos", [False, True], ids=["flags read", "no flag read"])
def test_a_slot_whose_numbers_went_wrong_fails_alone_and_is_clean_again(micro, ignore_eos):
    """NaN in a slot's cache ends that request; neighbour and next owner are whole. Also where no
    row flag tells of it, but only the samples."""
    said = [
        (prompt, replace(sampling, ignore_eos=ignore_eos))
        for prompt, sampling in requests(micro, 3)
    ]
    table = desk(micro, slots=2)
    sick, sound = (table.say(*request, max_new_tokens=15) for request in said[:2])
    for _ in range(6):
        table.engine.turn()
    slot = next(
        s for s, row in enumerate(table.runner._rows) if row and row.prompt.prompt is said[0][0]
    )
    table.runner.state.talker_k[:, slot, :4] = float("nan")
    later = table.say(*said[2])

    table.finish()

    assert sick.end is not None
    assert (EndReason.FAILED, "its numbers were not finite") == (sick.end.reason, sick.end.text)
    for (prompt, sampling), listener, frames in (
        (said[1], sound, 14),
        (said[2], later, NUM_FRAMES),
    ):
        solo = speak(micro, prompt, sampling, num_frames=frames)
        assert_same_sound(pcm(micro, solo), heard(listener))


def test_codec_numbers_that_went_wrong_are_never_sent(micro):
    """A NaN in the codec's state is caught before its samples reach anybody."""
    table = desk(micro)
    listener = table.say(micro.prompt("hello"))
    for _ in range(5):
        table.engine.turn()
    before = len(listener.audio)
    table.runner.codec_state.pre_conv[1] = float("nan")

    table.finish()

    assert listener.end is not None
    assert (EndReason.FAILED, before) == (listener.end.reason, len(listener.audio))


def test_settings_that_the_captured_sampler_cannot_serve_are_refused(micro):
    """Found out at admission, not in the middle of a step."""
    table = desk(micro)
    drawn = SamplingSettings.from_defaults(micro.model.config.generation)

    with pytest.raises(UnsayableError, match="sampler 'any'"):
        table.say(micro.prompt("hello"), replace(drawn, top_k=0))


def test_slots_are_left_as_they_were_found(micro):
    """After a request is over its slot's lengths, counters and codec clock are back at zero."""
    table = desk(micro, slots=2)
    table.say(micro.prompt("hello"))
    table.finish()

    state = table.runner.state
    assert int(state.lengths.sum()) == int(state.num_frames.sum()) == 0
    assert int(table.runner.codec_state.position.sum()) == 0
    assert not bool(state.status.any())
