"""One written form for both sides, and never a third, wrong text."""

from __future__ import annotations

import pytest

from analysis.speech.normalise import basic, english, normaliser_for, raw
from analysis.speech.wer import align

pytest.importorskip("whisper", reason="the `whisper` extra is not installed")

# spoken form, written form, what both become
SAME_READING = [
    ("she bought fifty red apples", "she bought 50 red apples", "she bought 50 red apples"),
    ("on the twenty first of May", "on the 21st of May", "on the 21st of may"),
    ("twenty-first", "21st", "21st"),
    ("at ten a.m.", "at 10:00 AM", "at 10 am"),
    ("at ten o'clock a.m. sharp", "at 10:00 a.m. sharp", "at 10 am sharp"),
    ("at ten o'clock", "at 10:00", "at 10 oclock"),
    ("at ten thirty", "at 10:30", "at 1030"),
    ("at nine oh five p.m.", "at 9:05pm", "at 905 pm"),
    ("three dollars and fifty cents", "$3.50", "$3.50"),
    ("three dollars fifty", "$3.50", "$3.50"),
    ("one dollar and five cents", "$1.05", "$1.05"),
    ("twelve dollars", "$12.00", "$12"),
    ("fifty cents", "$0.50", "¢50"),
    ("nineteen ninety four", "1994", "1994"),
    ("twenty oh five", "2005", "2005"),
    ("five five five, one two three, four five six seven", "(555) 123-4567", "5551234567"),
    ("call five five five one two three four", "call 555-1234", "call 5551234"),
    ("plus one five five five one two three four five six seven", "+1 555 123 4567", "15551234567"),
    ("eight hundred five five five one two one two", "800-555-1212", "8005551212"),
    ("zero two zero seven nine four six zero", "020 7946 0", "02079460"),
    ("it's late", "it is late", "it is late"),
    ("it’s late", "it is late", "it is late"),
    ("I cannot", "I can't", "i can not"),
    ("the colour", "the color", "the color"),
    ("a hundred people", "100 people", "100 people"),
    ("okay", "OK", "okay"),
    ("research & development", "research and development", "research and development"),
    ("fifty percent", "50%", "50%"),
    ("well wait", "Well... wait...", "well wait"),
]

DIFFERENT_READING = [
    ("I have one", "I have one dollar"),
    ("it costs $1.05", "it costs one point zero five"),
    ("call (555) 123-4567", "call 123-4567"),
    ("meet at ten", "meet at ten o'clock"),
    ("please (do) wait", "please wait"),
    ("the number is 0123", "the number is 123"),
    ("it is", "it was"),
]


@pytest.mark.parametrize(("spoken", "written", "expected"), SAME_READING)
def test_two_spellings_of_one_reading_become_the_same_text(spoken, written, expected):
    """Both sides meet at the expected text, not at some third one."""
    normalise = english()

    assert [expected, expected] == [normalise(spoken), normalise(written)]


@pytest.mark.parametrize(("first", "second"), DIFFERENT_READING)
def test_two_readings_stay_two_texts(first, second):
    """A rule that merged them would hide a speech error."""
    normalise = english()

    assert normalise(first) != normalise(second)


@pytest.mark.parametrize("text", [expected for _, _, expected in SAME_READING])
def test_normal_form_is_a_fixed_point(text):
    """Normalising twice changes nothing more."""
    normalise = english()

    assert text == normalise(text)


def test_digits_for_words_cost_one_fifth_raw_and_nothing_normalised():
    """Raw WER is 0.2 where normalised WER is 0; both are wanted."""
    reference, heard = "she bought fifty red apples", "she bought 50 red apples"
    normalise, written = english(), raw("en")

    assert (0.2, 0.0) == (
        align(written(reference), written(heard)).wer,
        align(normalise(reference), normalise(heard)).wer,
    )


def test_label_names_the_normaliser_and_its_version():
    """Figures under other rules are not comparable, so the rules are printed."""
    label = english().label

    assert all(part in label for part in ("whisper-english", "openai-whisper", "rules"))


def test_german_does_not_get_english_rules():
    """`won't`-like and number-like words of another language stay as they are."""
    normalise = normaliser_for("de")

    assert "er hat acht äpfel für 3 50 mr st" == normalise("Er hat acht Äpfel für 3,50 (Mr. St.)!")


def test_only_english_gets_english_rules():
    """The chosen normaliser follows the language code."""
    names = [normaliser_for(code).name for code in ("en", "de", "zh")]

    assert ["whisper-english+mends", "basic", "basic-characters"] == names


@pytest.mark.parametrize("language", ["en", "zh"])
def test_raw_figure_counts_in_the_same_unit(language):
    """Characters against words would compare nothing."""
    assert normaliser_for(language).unit == raw(language).unit


def test_vowel_signs_stay_on_their_letters():
    """Combining marks are letters' parts in Indic scripts, not punctuation."""
    assert "नमस्ते दुनिया" == basic("hi")("नमस्ते, दुनिया!")


def test_languages_without_spaces_are_split_by_character():
    """Chinese is scored by character, and the unit says so."""
    normalise = basic("zh")

    assert ("character", "你 好 吗") == (normalise.unit, normalise("你好，吗？"))


@pytest.mark.parametrize("text", ["", "...", "?!", "[laughs]", "<break/>"])
def test_a_text_with_nothing_to_say_has_no_words(text):
    """Punctuation and tags alone leave nothing to score."""
    assert "" == english()(text)
