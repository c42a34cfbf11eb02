"""Text that arrives piece by piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.text_source import TextMode, TextPacing, pace_text


@given(st.text(max_size=200), st.sampled_from(list(TextMode)), st.integers(0, 100))
def test_pieces_joined_are_the_text(text: str, mode: TextMode, seed: int):
    """Whatever the script, nothing is lost, added or reordered."""
    pieces = pace_text(text, TextPacing(mode), seed=seed)

    assert text == "".join(piece.text for piece in pieces)
    assert [False] * (len(pieces) - 1) + [True] == [piece.is_last for piece in pieces]
    assert list(range(len(pieces))) == [piece.seq for piece in pieces]


def test_words_keep_the_blank_behind_them():
    """As a writer sends them: the blank tells that the word is over."""
    pieces = pace_text("Hello, big world.", TextPacing(TextMode.WORDS), seed=1)

    assert ["Hello, ", "big ", "world."] == [piece.text for piece in pieces]


def test_tokens_are_short_and_carry_the_blank_in_front():
    """About four characters each, as in a language model's vocabulary."""
    pieces = pace_text("Hello wonderful world!", TextPacing(TextMode.TOKENS), seed=1)

    assert ["Hell", "o", " wond", "erfu", "l", " worl", "d", "!"] == [p.text for p in pieces]


def test_even_cadence_is_absolute():
    """Piece n is due at first delay + n intervals, without drift."""
    pacing = TextPacing(TextMode.WORDS, interval_s=0.010, first_delay_s=0.005)
    pieces = pace_text("a b c d", pacing, seed=1)

    assert [5_000_000, 15_000_000, 25_000_000, 35_000_000] == [p.due_ns for p in pieces]


def test_jitter_keeps_the_mean_and_never_goes_back():
    """Exponential gaps of the same mean: 2,000 words at 10 ms take about 20 s."""
    text = "a " * 2000
    pieces = pace_text(text, TextPacing(TextMode.WORDS, 0.010, jitter=1.0), seed=7)
    due = [piece.due_ns for piece in pieces]

    assert sorted(due) == due
    assert 18.5e9 < due[-1] < 21.5e9


def test_same_seed_gives_the_same_times():
    """And another seed others."""
    pacing = TextPacing(TextMode.WORDS, jitter=0.5)
    text = "one two three four"

    assert pace_text(text, pacing, seed=3) == pace_text(text, pacing, seed=3)
    assert pace_text(text, pacing, seed=3) != pace_text(text, pacing, seed=4)


def test_whole_text_is_one_last_piece():
    """Also an empty one."""
    assert [("Hi there", True)] == [
        (piece.text, piece.is_last)
        for piece in pace_text("Hi there", TextPacing(TextMode.WHOLE), seed=1)
    ]
    assert [("", True)] == [
        (piece.text, piece.is_last) for piece in pace_text("", TextPacing(), seed=1)
    ]


@pytest.mark.parametrize(
    "pacing",
    [TextPacing(interval_s=-1), TextPacing(first_delay_s=-1), TextPacing(jitter=1.5)],
)
def test_impossible_pacing_is_refused(pacing: TextPacing):
    """A time before the dispatch cannot be kept."""
    with pytest.raises(ValueError, match="text pacing"):
        pace_text("a b", pacing, seed=1)
