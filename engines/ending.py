"""The one rule every exchange keeps in the same way: after its ending it says nothing more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from engines.base import Action, Done, Event, Fail

__all__ = ["EndsOnce"]


class EndsOnce(ABC):
    """An exchange that is over with its first `Done` or `Fail`."""

    __slots__ = ("_is_over",)

    def __init__(self) -> None:
        self._is_over = False

    def feed(self, event: Event) -> list[Action]:
        """See `engines.base.Exchange`."""
        actions: list[Action] = []
        for action in () if self._is_over else self._react(event):
            actions.append(action)
            if isinstance(action, (Done, Fail)):
                self._is_over = True
                break
        return actions

    @abstractmethod
    def _react(self, event: Event) -> Iterable[Action]:
        """What to do after `event`, which comes before the ending; what follows one is dropped."""
