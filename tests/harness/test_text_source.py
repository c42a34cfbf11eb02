"""Text that arrives piece by piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.point_settings import point_settings
from harness.scenario import load_scenario
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


def test_published_cadence_is_a_word_every_10_ms_with_its_blank():
    """The bundled scenario: slots of exactly 10 ms that begin with the first word."""
    settings = point_settings(
        load_scenario("nari-compat-words"), rate_rps=1.0, seed=1, user_agent="me/1"
    )
    assert settings.text_pacing is not None
    pieces = pace_text("One two  three.", settings.text_pacing, seed=1)

    assert [("One ", 0), ("two  ", 10), ("three.", 20)] == [
        (piece.text, (piece.due_ns - pieces[0].due_ns) / 1e6) for piece in pieces
    ]


def test_published_load_is_the_same_for_whole_and_streamed_text():
    """Same arrivals and prompts, so that the two runs can be compared request by request."""
    whole, words = (load_scenario(name) for name in ("nari-compat", "nari-compat-words"))

    assert whole.arrivals == words.arrivals
    assert (whole.phases, whole.prompts, whole.timeouts) == (
        words.phases,
        words.prompts,
        words.timeouts,
    )
    assert (30, 300, (1, 2, 4, 6, 8, 10, 12, 16, 20)) == (
        whole.phases.warmup_s,
        whole.phases.measure_s,
        tuple(whole.arrivals.rates_rps),
    )
