"""Alignment of one clip, loops, and the interval over clips."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.speech.wer import (
    Edit,
    EditKind,
    Interval,
    align,
    longest_loop,
    wer_interval,
)


def test_empty_transcript_is_all_deletions():
    """Silence is not a skipped clip: every word of the text is missing."""
    found = align("call me back", "")

    assert (1.0, 3, 3) == (found.wer, found.deletions, found.tail_deletions)


def test_each_kind_of_edit_is_counted_apart():
    """One word replaced, one lost, one too many."""
    found = align("one two three four five six seven", "one too three five six seven eight")

    assert (1, 1, 1) == (found.substitutions, found.deletions, found.insertions)


def test_wer_above_one_is_not_capped():
    """A recogniser in a loop adds words; hiding that would hide the fault."""
    assert 3.0 == align("yes", "yes yes yes yes").wer


def test_lost_ending_is_seen_as_tail_deletions():
    """A cut-off reply lost its last words."""
    assert 2 == align("see you later today", "see you").tail_deletions


def test_loss_in_the_middle_is_no_tail_deletion():
    """The ending was heard."""
    assert 0 == align("see you later today", "see today").tail_deletions


def test_edits_keep_the_words_of_both_sides():
    """What a reader needs to see the difference."""
    assert (
        Edit(EditKind.EQUAL, ("see",), ("see",)),
        Edit(EditKind.SUBSTITUTE, ("you",), ("ewe",)),
    ) == align("see you", "see ewe").edits


def test_reference_without_words_is_refused():
    """A rate per zero words is no number."""
    with pytest.raises(ValueError, match="without words"):
        align("  ", "anything")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("you you you you", 4),
        ("thank you thank you thank you thank you thank you", 5),
        ("no no no", 0),
        ("so it goes and so it goes on", 0),
        ("well a b c a b c a b c a b c done", 4),
        ("", 0),
    ],
)
def test_phrase_said_four_times_in_a_row_is_a_loop(text, expected):
    """Back-to-back repeats of one to six words count, scattered ones do not."""
    assert expected == longest_loop(text.split())


def interval_of(edits, words, *, prompts=None, seed=1):
    names = prompts or [f"p{i}" for i in range(len(edits))]
    return wer_interval(np.asarray(edits), np.asarray(words), prompts=names, seed=seed)


def test_interval_of_equal_clips_has_no_width():
    """Nothing varies, so resampling changes nothing."""
    assert Interval(0.1, 0.1, "ok") == interval_of([1] * 10, [10] * 10)


def test_interval_contains_the_value_and_follows_the_seed():
    """The same seed gives the same interval."""
    edits, words = np.arange(20) % 3, np.full(20, 10)
    first, again = (interval_of(edits, words, seed=5) for _ in range(2))

    assert first == again
    assert first.lo < edits.sum() / words.sum() < first.hi


def test_five_prompts_have_no_interval():
    """Too few to resample, however many clips there are of them: the value stands alone."""
    none = Interval(None, None, "no_interval")

    assert none == interval_of([1] * 5, [9] * 5)
    assert none == interval_of([1] * 50, [9] * 50, prompts=list("abcde") * 10)


@pytest.mark.parametrize(("num", "hi"), [(6, 0.459), (40, 0.088)])
def test_no_error_in_n_prompts_is_not_known_to_be_none(num, hi):
    """The exact bound for 0 of n: 1 - 0.025^(1/n)."""
    found = interval_of([0] * num, [9] * num)

    assert (0.0, "ok") == (found.lo, found.status)
    assert hi == pytest.approx(found.hi, abs=5e-4)


def test_nothing_understood_is_bounded_from_below():
    """The same from the other side."""
    found = interval_of([9] * 6, [9] * 6)

    assert (0.541, 1.0) == pytest.approx((found.lo, found.hi), abs=5e-4)


def test_clips_of_one_prompt_count_once():
    """The same clips, as 8 texts said five times each or as 40 texts."""
    edits, words = [3, 0, 0, 1, 0, 0, 0, 0] * 5, [10] * 40
    apart = interval_of(edits, words)
    together = interval_of(edits, words, prompts=list("abcdefgh") * 5)

    assert together.hi - together.lo > 1.5 * (apart.hi - apart.lo)
