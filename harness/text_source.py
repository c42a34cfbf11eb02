"""When each piece of a text that arrives little by little is due: pure, seeded, absolute.

A language model writes its answer while the voice already speaks. The pieces here joined are
exactly the text, and their times count from the dispatch of the request, fixed before it: a late
acknowledgement never moves a later piece.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["TextMode", "TextPacing", "TextPiece", "pace_text"]

NANOSECONDS = 1_000_000_000

# A word keeps the blanks behind it, as a writer sends them; leading blanks go with the first.
_WORD = re.compile(r"\s*\S+\s*|\s+")
# The mean token of common English vocabularies is close to four characters, with the blank in
# front (as in byte-pair encodings).
_TOKEN = re.compile(r"\s*[^\W_]{1,4}|\s*[\W_]|\s+", re.UNICODE)


class TextMode(StrEnum):
    """How a text is cut."""

    WHOLE = "whole"
    WORDS = "words"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class TextPacing:
    """Cutting and cadence.

    `interval_s` is the mean time between pieces, `first_delay_s` the time before the first.
    `jitter` 0 is an exact cadence, 1 draws every gap from an exponential distribution with the
    same mean; between, the two are mixed.
    """

    mode: TextMode = TextMode.WORDS
    interval_s: float = 0.010
    first_delay_s: float = 0.0
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class TextPiece:
    """One piece; `due_ns` counts from dispatch."""

    seq: int
    text: str
    due_ns: int
    is_last: bool


def pace_text(text: str, pacing: TextPacing, *, seed: int) -> tuple[TextPiece, ...]:
    """Cut a text and give every piece its due time.

    The same text, pacing and seed always give the same pieces. An empty text is one empty last
    piece.

    Raises:
        ValueError: a negative time, or a jitter outside 0..1.
    """
    if pacing.interval_s < 0 or pacing.first_delay_s < 0:
        raise ValueError("text pacing: interval_s and first_delay_s must not be negative")
    if not 0 <= pacing.jitter <= 1:
        raise ValueError(f"text pacing: jitter {pacing.jitter} is not within 0..1")
    parts = _cut(text, pacing.mode)
    draw = random.Random(seed)
    due_s = pacing.first_delay_s
    pieces = []
    for seq, part in enumerate(parts):
        pieces.append(TextPiece(seq, part, round(due_s * NANOSECONDS), seq == len(parts) - 1))
        gap = draw.expovariate(1.0)
        due_s += pacing.interval_s * (1 - pacing.jitter + pacing.jitter * gap)
    return tuple(pieces)


def _cut(text: str, mode: TextMode) -> list[str]:
    if mode is TextMode.WHOLE or not text:
        return [text]
    pattern = _WORD if mode is TextMode.WORDS else _TOKEN
    return pattern.findall(text)
