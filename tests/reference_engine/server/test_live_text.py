"""When speech begins while its text still arrives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_engine.clock import NS_PER_S
from reference_engine.errors import PromptError
from reference_engine.model.text.stream import body_ids
from reference_engine.server.live_text import LiveText
from reference_engine.server.settings import StartRule, StartSettings

CLOSING = 507


def live(micro, rule: str, *, max_tokens: int = 100, max_wait_s: float = 10.0) -> LiveText:
    start = StartSettings(StartRule(rule), max_tokens, max_wait_s)
    return LiveText(micro.tokenizer, start, closing=CLOSING)


@pytest.mark.parametrize(
    ("rule", "pieces", "starts_at"),
    [
        ("first-token", ["hel", "lo", " the", " user"], 2),
        ("clause", ["yes the user", " said no,", " one more", ", and"], 2),
        ("clause", ["one 3,", "141 more", " of; these"], 2),
        ("sentence", ["yes, the user said no", ". ", "More"], 1),
        ("sentence", ['he said "no.', '" ', "Then"], 1),
        ("sentence", ["version 1.", "5 of these", ". And"], 2),
        ("sentence", ["好的，没问题", "。再见"], 1),
        ("clause", ["好的", "，没问题"], 1),
    ],
)
def test_speech_begins_at_the_boundary_of_the_rule(micro, rule, pieces, starts_at):
    """A mark counts once what follows shows that it is one, or it is full width."""
    text = live(micro, rule)
    begun = []
    for piece in pieces:
        text.push(piece, now_ns=0)
        begun.append(text.may_start(0))

    assert starts_at == begun.index(True)


def test_enough_tokens_begin_speech_without_a_boundary(micro):
    """A text without marks is not held back for ever."""
    text = live(micro, "sentence", max_tokens=8)

    text.push("a b", now_ns=0)
    before = text.may_start(0)
    text.push(" three four five six", now_ns=0)

    assert not before
    assert text.may_start(0)


def test_the_longest_wait_counts_from_the_first_piece(micro):
    """Asked again at that moment, it begins with what it has."""
    text = live(micro, "sentence", max_wait_s=2.0)
    text.push("one two three", now_ns=5 * NS_PER_S)

    assert pytest.approx(1.5) == text.start_in_s(int(5.5 * NS_PER_S))
    assert not text.may_start(int(6.9 * NS_PER_S))
    assert text.may_start(7 * NS_PER_S)


def test_without_a_stable_token_nothing_begins(micro):
    """Not even after the longest wait: there is nothing that could be spoken."""
    text = live(micro, "first-token", max_wait_s=0.0)
    text.push("hel", now_ns=0)

    assert not text.may_start(NS_PER_S)
    assert text.start_in_s(NS_PER_S) is None


def test_the_end_begins_whatever_there_is(micro):
    """A short answer has no boundary inside."""
    text = live(micro, "sentence")
    text.push("no", now_ns=0)
    text.finish()

    assert text.may_start(0)


def test_a_text_of_nothing_cannot_end(micro):
    """White space is not speech."""
    text = live(micro, "clause")
    text.push(" \n", now_ns=0)

    with pytest.raises(PromptError, match="nothing to say"):
        text.finish()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_tokens_are_those_of_the_whole_text_however_they_are_taken(micro, data):
    """Cut anywhere, taken at any time: nothing is lost, doubled or changed."""
    whole = data.draw(st.text("ab ,.\n'3é。", min_size=1, max_size=30).filter(str.strip))
    text = live(micro, data.draw(st.sampled_from([*StartRule])).value)
    tokens: list[int] = []
    at = 0
    while at < len(whole):
        size = data.draw(st.integers(1, len(whole) - at))
        text.push(whole[at : at + size], now_ns=0)
        at += size
        if data.draw(st.booleans()):
            tokens += text.take()
    text.finish()
    tokens += text.take()

    assert [*body_ids(micro.tokenizer, whole), CLOSING] == tokens
    assert (len(tokens), len(whole)) == (text.num_tokens, text.num_characters)
