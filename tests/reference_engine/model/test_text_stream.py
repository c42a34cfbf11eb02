"""Text that arrives in pieces gives the ids of the text known whole, each as soon as it is sure."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference_engine.errors import PromptError
from reference_engine.model.text.stream import TextStream, body_ids
from tests.builders.checkpoints import Loaded

# What makes pieces grow backwards: line breaks in white space, contractions, marks that compose or
# sort, syllables built of parts, digits, signs, several bytes a character, and learnt words.
_ALPHABET = [
    *"abIsthe'.!-<|>3 \t\n\r", "\n\n", "  ", " the", "ing", "'s", "'ll", "user", "assistant",
    "\u0301", "\u0323", "\u0308", "e\u0301", "\u1100", "\u1161", "\u11a8", "\u09c7", "\u09be",
    "\u3099", "か", "你", "好", "，", "é", "ñ", "😀", "\u200d", "👩", "\u00a0", "\u2028", "\u0085",
    "\u212b", "\u037e", "\u0b47", "\u0b3e", "=", "\u0338",
]  # fmt: skip
_texts = st.lists(st.sampled_from(_ALPHABET), min_size=1, max_size=14).map("".join)


def _official_ids(loaded: Loaded, text: str) -> tuple[int, ...]:
    """The slice that the official package takes out of its one string."""
    framed = f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return loaded.tokenizer.encode(framed)[3:-5]


def _streamed(loaded: Loaded, pieces: list[str]) -> tuple[int, ...]:
    stream = TextStream(loaded.tokenizer)
    ids = [token for piece in pieces for token in stream.push(piece)]
    return (*ids, *stream.finish())


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=_texts, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_any_cutting_gives_the_ids_of_the_whole(tiny: Loaded, text: str, cuts: list[int]):
    """Also character by character; and the whole is what the official slice holds."""
    if not text.strip():
        return
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    whole = body_ids(tiny.tokenizer, text)

    assert whole == _streamed(tiny, pieces)
    assert whole == _streamed(tiny, list(text))
    lead = text[: len(text) - len(text.lstrip())]
    if "\n" not in lead and "\r" not in lead:
        assert _official_ids(tiny, text) == whole


def test_a_word_is_given_out_when_the_next_piece_begins(tiny: Loaded):
    """Not before (it may go on), and not later."""
    stream = TextStream(tiny.tokenizer)

    assert () == stream.push("hel")
    assert () == stream.push("lo")
    assert tiny.tokenizer.encode("hello") == stream.push(" ")
    assert () == stream.push("wor")
    assert tiny.tokenizer.encode(" wor") == stream.finish()


def test_white_space_stays_open_until_a_word_begins(tiny: Loaded):
    """A line break, a space and another line break are one piece."""
    stream = TextStream(tiny.tokenizer)

    assert tiny.tokenizer.encode("a") == stream.push("a\n")
    assert () == stream.push(" ")
    assert () == stream.push("\n")
    assert tiny.tokenizer.encode("\n \n") == stream.push("b")


def test_a_late_accent_still_composes(tiny: Loaded):
    """Two marks in reverse order are sorted and composed before anything is given out."""
    stream = TextStream(tiny.tokenizer)

    assert () == stream.push("a\u0301")
    assert () == stream.push("\u0323")
    assert tiny.tokenizer.encode("\u1ea1\u0301") == stream.finish()


def test_a_leading_line_break_is_dropped(tiny: Loaded):
    """It would merge with the line break of the role."""
    assert body_ids(tiny.tokenizer, "hello") == body_ids(tiny.tokenizer, " \n\t hello")


def test_a_leading_space_is_kept(tiny: Loaded):
    """It makes another first token, as in the official string."""
    assert tiny.tokenizer.encode(" the") == body_ids(tiny.tokenizer, " the")


@pytest.mark.parametrize("text", ["", " ", "\n \t\r\n"])
def test_nothing_to_say_is_refused(tiny: Loaded, text: str):
    """Empty text would otherwise be spoken from the token that ends it."""
    with pytest.raises(PromptError, match="nothing to say"):
        body_ids(tiny.tokenizer, text)


@pytest.mark.parametrize(
    "pieces",
    [["say <|im_end|> now"], ["say <|im", "_end", "|>"], [*"<tts_pad>"], ["<|", "endoftext|>x"]],
    ids=["whole", "in three", "letter by letter", "in two"],
)
def test_a_control_token_is_refused_however_it_is_cut(tiny: Loaded, pieces: list[str]):
    """The reserved string is seen across pushes."""
    with pytest.raises(PromptError, match="control token"):
        _streamed(tiny, pieces)


def test_half_a_surrogate_pair_is_refused(tiny: Loaded):
    """It is not text and has no bytes."""
    with pytest.raises(PromptError, match="surrogate"):
        body_ids(tiny.tokenizer, "a\ud83d")
