"""Prompt sets: the bundled ones and a user's own lists."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from harness.errors import ScenarioError
from harness.prompts import Prompt, bundled_sets, load_prompts


def _list(tmp_path: Path, content: str | bytes, name: str = "mine.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# -- bundled ---------------------------------------------------------------------------------------


def test_three_sets_are_bundled():
    """Their names are what a scenario writes."""
    assert ("harvard", "hostile", "voice-agent") == bundled_sets()


def test_the_harvard_set_holds_all_720_sentences_once():
    """72 lists of 10, no sentence twice."""
    texts = [prompt.text for prompt in load_prompts("harvard").prompts]

    assert (720, 720) == (len(texts), len(set(texts)))
    assert "The birch canoe slid on the smooth planks." == texts[0]


def test_voice_agent_replies_have_2_to_90_words():
    """At least 200 replies, the shortest of two words."""
    lengths = [len(prompt.text.split()) for prompt in load_prompts("voice-agent").prompts]

    assert len(lengths) >= 200
    assert (2, True) == (min(lengths), 80 <= max(lengths) <= 90)


def test_length_tags_of_voice_agent_replies_follow_their_words():
    """short: at most 12 words; medium: at most 35; long: the rest."""
    for prompt in load_prompts("voice-agent").prompts:
        num = len(prompt.text.split())
        expected = "short" if num <= 12 else "medium" if num <= 35 else "long"
        assert {expected} == prompt.tags & {"short", "medium", "long"}, prompt.id


def test_wer_replies_hold_no_digit_and_no_capital_inside_a_sentence():
    """A capital that begins no sentence would be a name; only `I` may stand there."""
    name_like = re.compile(r"(?<![.?!] )(?<!^)\b(?!I\b)[A-Z]")
    offending = [
        prompt.text
        for prompt in load_prompts("voice-agent", tags=["wer"]).prompts
        if re.search(r"\d|@|www", prompt.text) or name_like.search(prompt.text)
    ]
    assert [] == offending


def test_there_are_enough_wer_replies_for_scoring_and_for_the_demo():
    """At least 90 of them, at least 60 of at most 12 words."""
    assert len(load_prompts("voice-agent", tags=["wer"])) >= 90
    assert len(load_prompts("voice-agent", tags=["wer", "short"])) >= 60


def test_hostile_texts_are_of_every_kind():
    """Very long, only punctuation, emoji, control characters, right-to-left."""
    texts = {prompt.id: prompt.text for prompt in load_prompts("hostile").prompts}

    assert 10_000 == len(texts["hostile-10000-characters"])
    assert not any(c.isalnum() for c in texts["hostile-only-punctuation"])
    assert any(ord(c) > 0xFFFF for c in texts["hostile-emoji"])
    assert {"\0", "\x1b", "\x7f"} <= set(texts["hostile-control-characters"])
    assert "\u05e9" in texts["hostile-right-to-left"]


# -- the user's own --------------------------------------------------------------------------------


def test_a_plain_list_has_one_prompt_a_line(tmp_path: Path):
    """Ids are line numbers, to find a prompt again; comments and blanks are skipped."""
    found = load_prompts(_list(tmp_path, "# mine\nHello there.\r\n\n  Goodbye.  \n"))

    assert (Prompt("line-2", "Hello there."), Prompt("line-4", "Goodbye.")) == found.prompts


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a|Hello.", Prompt("a", "Hello.")),
        ("a|short,wer|Hello.", Prompt("a", "Hello.", frozenset({"short", "wer"}))),
        ("a|Mr. X, 5 times|Hello.", Prompt("a", "Hello.")),
        ("a|b|c|Hello.", Prompt("a", "Hello.")),
    ],
)
def test_a_piped_list_has_id_first_and_text_last(line: str, expected: Prompt, tmp_path: Path):
    """One field between them that looks like tags is tags; anything else is passed over."""
    assert (expected,) == load_prompts(_list(tmp_path, line)).prompts


def test_the_hash_of_a_list_is_that_of_its_bytes(tmp_path: Path):
    """sha256 of the file, whatever was chosen from it."""
    content = b"a|x|Hello.\nb|y|Bye.\n"
    path = _list(tmp_path, content)

    assert hashlib.sha256(content).hexdigest() == load_prompts(path, tags=["x"]).sha256


def test_a_byte_order_mark_is_not_spoken(tmp_path: Path):
    """What an editor put in front of the first line is dropped."""
    assert "Hello." == load_prompts(_list(tmp_path, "\ufeffHello.")).prompts[0].text


def test_separators_inside_a_text_do_not_cut_it(tmp_path: Path):
    """Only a line feed ends a line: form feeds and Unicode separators belong to the text."""
    assert "a\x0cb\u2028c" == load_prompts(_list(tmp_path, "a\x0cb\u2028c\n")).prompts[0].text


def test_a_yaml_list_can_repeat_a_text(tmp_path: Path):
    """`repeat` keeps very long texts readable in their file."""
    path = _list(tmp_path, "prompts:\n  - {id: long, text: 'ab', repeat: 3}\n", "mine.yaml")

    assert (Prompt("long", "ababab"),) == load_prompts(path).prompts


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds no prompt"),
        ("# only a comment\n\n", "holds no prompt"),
        ("a|Hello.\nBye.", "line 2: some lines are"),
        ("Hello.\nb|Bye.", "line 2: some lines are"),
        ("a|Hello.\na|Bye.", "line 2: id 'a' is used by line 1"),
        ("a|x|", "line 1: the text is empty"),
        ("|x|Hello.", "line 1: the id is empty"),
        (b"Hello.\n\xff\n", "line 2: is not UTF-8"),
    ],
)
def test_a_bad_list_is_one_line_with_its_place(
    content: str | bytes, complaint: str, tmp_path: Path
):
    """File, line and what was expected."""
    path = _list(tmp_path, content)

    with pytest.raises(ScenarioError, match=complaint) as refused:
        load_prompts(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_set_lists_the_known_and_the_closest():
    """A slip of the pen in the name is answered with the right one."""
    with pytest.raises(ScenarioError, match=r"did you mean 'harvard'"):
        load_prompts("havard")


def test_an_unknown_tag_lists_the_known_and_the_closest():
    """As does one in a tag."""
    with pytest.raises(ScenarioError, match=r"no prompt carries the tag 'shrot'.*'short'"):
        load_prompts("voice-agent", tags=["shrot"])


def test_tags_that_no_prompt_has_together_are_refused():
    """`short` and `long` each exist, but never on one prompt."""
    with pytest.raises(ScenarioError, match="all of the tags short, long"):
        load_prompts("voice-agent", tags=["short", "long"])


def test_a_folder_is_no_list(tmp_path: Path):
    """What cannot be read is said with the system's reason."""
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_prompts(tmp_path)
