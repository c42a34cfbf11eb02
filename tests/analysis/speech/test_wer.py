"""Alignment of one clip, loops, and the interval over clips."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.speech.wer import (
    Edit,
    EditKind,
    Interval,
    align,
    bootstrap_interval,
    longest_loop,
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


def test_interval_of_equal_clips_has_no_width():
    """Nothing varies, so resampling changes nothing."""
    edits, words = np.full(10, 1), np.full(10, 10)

    assert Interval(0.1, 0.1, "ok") == bootstrap_interval(edits, words, seed=1)


def test_interval_contains_the_value_and_follows_the_seed():
    """The same seed gives the same interval."""
    edits, words = np.arange(20) % 3, np.full(20, 10)
    first, again = (bootstrap_interval(edits, words, seed=5) for _ in range(2))

    assert first == again
    assert first.lo < edits.sum() / words.sum() < first.hi


def test_five_clips_have_no_interval():
    """Too few to resample: the value stands alone and says so."""
    assert Interval(None, None, "no_interval") == bootstrap_interval(
        np.ones(5, int), np.full(5, 9), seed=0
    )
