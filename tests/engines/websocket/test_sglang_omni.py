"""SGLang-Omni closes over more than 16 waiting messages: the machine never lets that happen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engines import registry
from engines.base import Action, Exchange, Headers, Message, Send, SpeechRequest, TextDue


def _say(**message: Any) -> Message:
    return Message(json.dumps(message))


def _opened(**params: Any) -> Exchange:
    adapter = registry.create("sglang-omni-ws", params=params)
    exchange = adapter.open(SpeechRequest("r", "irrelevant", is_incremental=True))
    exchange.start()
    exchange.feed(Headers(101))
    exchange.feed(_say(type="session.configured", session_id="s"))
    return exchange


def _texts(actions: list[Action]) -> list[str]:
    messages = [json.loads(action.data) for action in actions if isinstance(action, Send)]
    return [message.get("text", message["type"]) for message in messages]


def _finish_sentence(exchange: Exchange, index: int) -> list[Action]:
    start = exchange.feed(_say(type="audio.start", sentence_index=index, format="pcm"))
    exchange.feed(Message(b"\0\0"))
    done = _say(type="audio.done", sentence_index=index, total_bytes=2, error=False)
    return [*start, *exchange.feed(done)]


def test_words_leave_with_the_mark_that_completes_their_sentence():
    """Sooner would change nothing: the server makes nothing before a mark."""
    exchange = _opened()
    words = ["Hello ", "there. ", "How ", "are ", "you?"]
    sent = [_texts(exchange.feed(TextDue(seq, word, seq == 4))) for seq, word in enumerate(words)]

    assert [[], ["Hello there. "], [], [], ["How are you?", "input.done"]] == sent


def test_the_message_carries_the_number_of_its_last_word():
    """So that its write can be stamped."""
    exchange = _opened()
    exchange.feed(TextDue(0, "Hello ", False))
    (send,) = exchange.feed(TextDue(1, "there.", False))

    assert isinstance(send, Send)
    assert 1 == send.text_seq


def test_clauses_are_cut_where_the_server_cuts_them():
    """With `split_granularity: clause` a comma is a mark."""
    exchange = _opened(split_granularity="clause")

    assert ["Well, "] == _texts(exchange.feed(TextDue(0, "Well, ", False)))


@pytest.mark.parametrize("num_sentences", [20, 60])
def test_no_more_than_sixteen_messages_ever_wait(num_sentences: int):
    """Sentences that fall due all at once are let go as earlier ones are spoken."""
    exchange = _opened()
    num_sent = num_done = 0
    texts: list[str] = []
    for seq in range(num_sentences):
        is_last = seq == num_sentences - 1
        texts += _texts(exchange.feed(TextDue(seq, f"Sentence {seq}. ", is_last)))
    while "input.done" not in texts:
        num_sent = len(texts)
        assert 16 > num_sent - num_done
        texts += _texts(_finish_sentence(exchange, num_done))
        num_done += 1

    assert num_sentences + 1 == len(texts)


def test_a_server_that_counts_fewer_sentences_is_not_waited_for_for_ever():
    """Marks in a row are one sentence end, as they are to the server."""
    exchange = _opened()
    texts: list[str] = []
    for seq in range(14):
        texts += _texts(exchange.feed(TextDue(seq, f"Wait {seq}... ", seq == 13)))
    held = len(texts)
    texts += _texts(_finish_sentence(exchange, 0))
    texts += _texts(_finish_sentence(exchange, 1))

    assert 12 == held
    assert "input.done" == texts[-1]


def test_a_sentence_shorter_than_the_server_says_is_truncated():
    """`total_bytes` is checked for every sentence."""
    exchange = _opened()
    exchange.feed(TextDue(0, "Hello.", True))
    exchange.feed(_say(type="audio.start", sentence_index=0, format="pcm"))
    exchange.feed(Message(b"\0\0"))
    done = _say(type="audio.done", sentence_index=0, total_bytes=4, error=False)
    (failure,) = exchange.feed(done)

    assert "sent 4 bytes in sentence 0, 2 came" in failure.text  # type: ignore[union-attr]


def test_audio_outside_a_sentence_is_a_protocol_error():
    """It could not be told which sentence it belongs to."""
    exchange = _opened()
    (failure,) = exchange.feed(Message(b"\0\0"))

    assert "audio outside" in failure.text  # type: ignore[union-attr]
