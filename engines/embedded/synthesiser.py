# SPDX-License-Identifier: GPL-3.0-or-later
"""What the server asks of a voice; the real one is in `voice.py`, tests bring their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Step", "Synthesiser", "Utterance"]


@dataclass(frozen=True, slots=True)
class Step:
    """What one step gave: whole s16le mono samples, none where the step made no sound yet."""

    pcm: bytes
    is_last: bool


class Utterance(Protocol):
    """One text on its way to sound; not thread-safe, but any thread may run its next step."""

    def step(self) -> Step:
        """Do the next piece of work; blocks for its inference.

        Never called again after a step with `is_last`.

        Raises:
            NothingToSayError: the text holds nothing that can be spoken (first step only).
        """
        ...


class Synthesiser(Protocol):
    """A loaded voice. Steps of different utterances may run on several threads at once."""

    @property
    def sample_rate_hz(self) -> int:
        """Of every utterance."""
        ...

    def open(self, text: str, *, speed: float) -> Utterance:
        """Begin an utterance; cheap, all work is in its steps."""
        ...
