"""What every exchange keeps in the same way: one ending, and silence after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines.base import Action, Audio, Done, EndOfBody, Event, Fail, StreamBytes
from engines.ending import EndsOnce
from engines.outcomes import TransportOutcome

FAILED = Fail(TransportOutcome.SERVER_ERROR, "body", "it said so")


class Scripted(EndsOnce):
    """Answers every event with the same actions, and counts what was asked of it."""

    def __init__(self, *actions: Action) -> None:
        super().__init__()
        self.actions = actions
        self.num_made = 0

    def _react(self, event: Event) -> Iterator[Action]:
        for action in self.actions:
            self.num_made += 1
            yield action


@pytest.mark.parametrize("ending", [Done(), FAILED])
def test_what_follows_an_ending_is_dropped(ending: Action):
    """Within the same event too; nothing behind it is even made."""
    exchange = Scripted(Audio(b"a"), ending, Audio(b"b"))

    assert [Audio(b"a"), ending] == exchange.feed(StreamBytes(b"x"))
    assert 2 == exchange.num_made


def test_an_exchange_that_is_over_says_nothing_more():
    """Whatever still comes."""
    exchange = Scripted(Done())
    exchange.feed(EndOfBody())

    assert [] == exchange.feed(StreamBytes(b"late"))
    assert 1 == exchange.num_made


def test_without_an_ending_every_event_is_answered():
    """Nothing else ends an exchange."""
    exchange = Scripted(Audio(b"a"))

    assert [Audio(b"a")] * 3 == [exchange.feed(StreamBytes(b"x"))[0] for _ in range(3)]
