"""Cover every sample, and join what neighbours heard."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.speech.windows import HeardWord, Window, join_words, plan_windows


def words(text, *, every_s=0.5, start_s=0.0):
    """Words one after the other, each 0.4 s long."""
    return [
        HeardWord(word, start_s + i * every_s, start_s + i * every_s + 0.4)
        for i, word in enumerate(text.split())
    ]


@given(
    st.integers(1, 5_000), st.integers(2, 400), st.floats(0, 0.9, exclude_max=True, allow_nan=False)
)
def test_windows_cover_every_sample_and_none_is_too_long(num_samples, max_samples, share):
    """Neighbours share exactly the overlap."""
    overlap = min(int(max_samples * share), max_samples - 1)
    windows = plan_windows(num_samples, max_samples=max_samples, overlap_samples=overlap)

    assert (0, num_samples) == (windows[0].start, windows[-1].stop)
    assert all(window.stop - window.start <= max_samples for window in windows)
    pairs = pairwise(windows)
    assert all(first.stop - second.start == overlap for first, second in pairs)


def test_clip_that_fits_is_one_window():
    """Nothing to join."""
    assert [Window(0, 100)] == plan_windows(100, max_samples=100, overlap_samples=10)


def test_overlap_as_long_as_the_window_is_refused():
    """It would never end."""
    with pytest.raises(ValueError, match="shorter"):
        plan_windows(100, max_samples=10, overlap_samples=10)


def test_join_goes_through_the_common_word():
    """Words of the overlap, heard twice, are kept once."""
    earlier = words("a b c d e")
    later = words("c d e f", start_s=1.1)

    assert "a b c d e f" == " ".join(w.text for w in join_words(earlier, later, overlap=(1.0, 2.5)))


def test_word_misheard_at_a_border_is_replaced_by_its_whole_form():
    """The cut word "tom-" of one window is "tomorrow" in the other."""
    earlier = words("see you then tom")
    later = words("you then tomorrow at ten", start_s=0.5)

    joined = join_words(earlier, later, overlap=(0.5, 2.0))
    assert "see you then tomorrow at ten" == " ".join(w.text for w in joined)


def test_repeated_word_is_matched_by_time_not_by_spelling():
    """ "no no no" over the seam stays three."""
    earlier = words("no no no yes")
    later = words("no no yes", start_s=0.5)

    joined = join_words(earlier, later, overlap=(0.5, 2.0))
    assert "no no no yes" == " ".join(w.text for w in joined)


def test_without_a_common_word_each_window_keeps_its_half():
    """Nothing agrees: the middle of the overlap decides."""
    earlier = words("a b c d")
    later = words("w x y z", start_s=0.5)

    joined = join_words(earlier, later, overlap=(0.5, 2.0))
    assert "a b c y z" == " ".join(w.text for w in joined)
