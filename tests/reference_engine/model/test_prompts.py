"""The rows of a prompt, in both layouts, for every kind of voice and language."""

from __future__ import annotations

import pytest

from reference_engine.errors import PromptError
from reference_engine.model.text.prompts import TextLayout
from tests.builders.checkpoints import Loaded

ROLE = (151644, 77091, 198)
PAD, BOS, EOS = 151671, 151672, 151673
NO_CODE = 3072
CODEC_PAD = 2148
RYAN, DYLAN = 3061, 2878
ENGLISH, CHINESE, BEIJING = 2050, 2055, 2074
THINK, NOTHINK, THINK_BOS, THINK_EOS = 2154, 2155, 2156, 2157


def test_the_streaming_layout_prefills_all_but_the_first_text_row(tiny: Loaded):
    """Role, tags, voice, then the text's own start; text rows go beside the codec frames."""
    prompt = tiny.prompt("a", language="english")

    assert (*ROLE, PAD, PAD, PAD, PAD, PAD, BOS) == prompt.text_ids
    assert (
        NO_CODE, NO_CODE, NO_CODE, THINK, THINK_BOS, ENGLISH, THINK_EOS, RYAN, CODEC_PAD,
    ) == prompt.codec_ids  # fmt: skip
    assert (*tiny.tokenizer.encode("a"), EOS) == prompt.text_rows


def test_the_whole_layout_prefills_the_text(tiny: Loaded):
    """The text and its end stand beside codec padding; nothing but padding follows."""
    prompt = tiny.prompt("a b", layout="whole")
    body = tiny.tokenizer.encode("a b")

    assert (*ROLE, PAD, PAD, PAD, PAD, BOS, *body, EOS) == prompt.text_ids
    assert (RYAN, CODEC_PAD, *(CODEC_PAD for _ in body), CODEC_PAD) == prompt.codec_ids[6:]
    assert () == prompt.text_rows


def test_no_language_has_three_tags(tiny: Loaded):
    """The model is told not to be told."""
    assert (NOTHINK, THINK_BOS, THINK_EOS, RYAN) == tiny.prompt(language="auto").codec_ids[3:7]


@pytest.mark.parametrize(
    ("speaker", "language", "tag"),
    [
        ("dylan", "auto", BEIJING),
        ("Dylan", "Chinese", BEIJING),
        ("dylan", "english", ENGLISH),
        ("ryan", "chinese", CHINESE),
        ("ryan", "AUTO", None),
    ],
)
def test_a_dialect_voice_speaks_its_dialect_in_chinese(
    tiny: Loaded, speaker: str, language: str, tag: int | None
):
    """And where no language is named; in any other language it speaks that."""
    assert tag == tiny.prompts.voice(speaker, language).language_id


def test_an_instruction_comes_first_and_adds_no_codec_side(tiny: Loaded):
    """All its tokens, its closing ones included."""
    prompt = tiny.prompt("a", instruct="be calm")
    expected = tiny.tokenizer.encode("<|im_start|>user\nbe calm<|im_end|>\n")

    assert expected + ROLE == prompt.text_ids[: len(expected) + 3]
    assert {NO_CODE} == set(prompt.codec_ids[: len(expected) + 3])
    assert not prompt.has_common_prefix


def test_prompts_of_one_voice_and_language_share_their_first_rows(tiny: Loaded):
    """Those rows can be computed once."""
    opening = tiny.prompts.open(tiny.prompts.voice("ryan", "english"))
    for layout in TextLayout:
        prompt = tiny.prompt("hello", language="english", layout=layout.value)
        assert prompt.has_common_prefix
        assert opening.text_ids == prompt.text_ids[: opening.num_rows]
        assert opening.codec_ids == prompt.codec_ids[: opening.num_rows]


def test_nine_voices_and_ten_languages_are_public(tiny: Loaded):
    """Dialects are reached by a voice, not by name."""
    config = tiny.model.config

    assert 9 == len(config.speakers)
    assert 11 == len(config.public_languages)
    assert "auto" == config.public_languages[0]
    assert not [name for name in config.public_languages if "dialect" in name]


@pytest.mark.parametrize(
    ("speaker", "language", "line"),
    [
        ("ryn", "auto", r"voice: 'ryn' is not one of aiden, .*did you mean 'ryan'"),
        ("ryan", "englsh", r"language: 'englsh' is not one of auto, .*did you mean 'english'"),
        ("ryan", "beijing_dialect", r"language: 'beijing_dialect' is not one of"),
    ],
)
def test_an_unknown_name_lists_what_there_is(tiny: Loaded, speaker: str, language: str, line: str):
    """With the nearest right word."""
    with pytest.raises(PromptError, match=line):
        tiny.prompts.voice(speaker, language)


def test_a_control_token_in_an_instruction_is_refused(tiny: Loaded):
    """It would end the instruction early."""
    with pytest.raises(PromptError, match=r"instruction: holds the control token '<\|im_end\|>'"):
        tiny.prompt("a", instruct="calm<|im_end|>")
