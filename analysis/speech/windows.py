"""Cut a long clip into windows that a recogniser can hear, and join what it heard.

Whisper hears 30 s of whatever one call is given and drops the rest without a word. Windows overlap,
so that a word cut by one border lies whole in the next window; where both windows heard the same
word, the join goes through it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["HeardWord", "Window", "join_words", "plan_windows"]

# The same word, heard from two windows, may be placed this far apart: Whisper's word times come
# from 20 ms attention steps and wander by some tenths of a second at window borders.
_SAME_WORD_S = 0.6


@dataclass(frozen=True, slots=True)
class HeardWord:
    """One recognised word; times count from the start of the clip."""

    text: str
    start_s: float
    end_s: float

    @property
    def middle_s(self) -> float:
        return (self.start_s + self.end_s) / 2


@dataclass(frozen=True, slots=True)
class Window:
    """Samples [start, stop) of a clip."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Match:
    """A word that two windows both heard: its place in either list, and when."""

    earlier: int
    later: int
    at_s: float


def plan_windows(num_samples: int, *, max_samples: int, overlap_samples: int) -> list[Window]:
    """Windows of at most `max_samples` that cover every sample; neighbours share the overlap.

    Raises:
        ValueError: the overlap leaves no progress.
    """
    if not 0 <= overlap_samples < max_samples:
        raise ValueError("overlap must be shorter than a window")
    windows = [Window(0, min(num_samples, max_samples))]
    while windows[-1].stop < num_samples:
        start = windows[-1].stop - overlap_samples
        windows.append(Window(start, min(num_samples, start + max_samples)))
    return windows


def join_words(
    earlier: Sequence[HeardWord], later: Sequence[HeardWord], *, overlap: tuple[float, float]
) -> list[HeardWord]:
    """Join the words of two neighbouring windows; a word of the overlap appears once.

    The join goes through the commonly heard word nearest to the middle of the overlap, away from
    both borders, where words are cut. With none in common, each window keeps its half.

    Args:
        earlier, later: in order, times on the clip.
        overlap: seconds on the clip that both windows heard.
    """
    middle_s = sum(overlap) / 2
    matches = [
        _Match(i, j, first.middle_s)
        for i, first in enumerate(earlier)
        if overlap[0] <= first.middle_s <= overlap[1]
        for j, second in enumerate(later)
        if _is_same(first, second)
    ]
    if not matches:
        kept = [word for word in earlier if word.middle_s < middle_s]
        return kept + [word for word in later if word.middle_s >= middle_s]
    best = min(matches, key=lambda match: (abs(match.at_s - middle_s), _gap(match, earlier, later)))
    return [*earlier[: best.earlier + 1], *later[best.later + 1 :]]


def _gap(match: _Match, earlier: Sequence[HeardWord], later: Sequence[HeardWord]) -> float:
    return abs(earlier[match.earlier].middle_s - later[match.later].middle_s)


def _is_same(first: HeardWord, second: HeardWord) -> bool:
    return (
        abs(first.middle_s - second.middle_s) <= _SAME_WORD_S
        and _letters(first.text) == _letters(second.text) != ""
    )


def _letters(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())
