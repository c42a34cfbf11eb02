"""Word error rate: align one transcript, then add up many without losing a clip.

Corpus WER is total edits over total reference words of all scored clips; an empty transcript is
all deletions. A mean of clips stands beside it, never instead of it. WER above 1 is real (a
recogniser or a voice in a loop inserts words) and is printed as it is.

Source: analysis/METRICS.md, "Speech".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import jiwer
import numpy as np
from numpy.typing import NDArray

from analysis.stats.rates import exact_bounds

__all__ = [
    "BAD_CLIP_WER",
    "Alignment",
    "Edit",
    "EditKind",
    "Interval",
    "align",
    "longest_loop",
    "wer_interval",
]

BAD_CLIP_WER = 0.5
_LOOP_MIN_REPEATS = 4
_LOOP_MAX_WORDS = 6
_NUM_RESAMPLES = 2000
_MIN_PROMPTS_FOR_INTERVAL = 6


class EditKind(StrEnum):
    """What happened between reference and transcript over a stretch of words."""

    EQUAL = "equal"
    SUBSTITUTE = "substitute"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class Edit:
    """A stretch of words of one kind: what should have been said, what was heard."""

    kind: EditKind
    reference: tuple[str, ...]
    heard: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alignment:
    """One clip, aligned word by word."""

    num_words: int
    substitutions: int
    deletions: int
    insertions: int
    tail_deletions: int  # reference words missing at the very end: a cut-off ending
    edits: tuple[Edit, ...]

    @property
    def num_edits(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def wer(self) -> float:
        """Edits per reference word; `align` never makes one without reference words."""
        return self.num_edits / self.num_words


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval, or none with the reason."""

    lo: float | None
    hi: float | None
    status: str  # `ok` or `no_interval`


def align(reference: str, transcript: str) -> Alignment:
    """Align two normalised texts.

    Raises:
        ValueError: the reference has no words; such a text is not scored at all.
    """
    reference_words, heard_words = reference.split(), transcript.split()
    if not reference_words:
        raise ValueError("a reference without words cannot be scored")
    found = jiwer.process_words(" ".join(reference_words), " ".join(heard_words))
    edits = tuple(
        Edit(
            kind=EditKind(chunk.type),
            reference=tuple(reference_words[chunk.ref_start_idx : chunk.ref_end_idx]),
            heard=tuple(heard_words[chunk.hyp_start_idx : chunk.hyp_end_idx]),
        )
        for chunk in found.alignments[0]
    )
    last = edits[-1]
    return Alignment(
        num_words=len(reference_words),
        substitutions=found.substitutions,
        deletions=found.deletions,
        insertions=found.insertions,
        tail_deletions=len(last.reference) if last.kind is EditKind.DELETE else 0,
        edits=edits,
    )


def wer_interval(
    edits: NDArray[np.int64], words: NDArray[np.int64], *, prompts: Sequence[str], seed: int
) -> Interval:
    """95 % interval of corpus WER by resampling whole prompts.

    Clips of one prompt fail together, so it is prompts that are drawn, and below 6 of them there is
    no interval: resampling a handful says little but looks like much. Where every prompt was right,
    or every one as wrong as it is long, resampling knows nothing else; the bound is then the exact
    one for n of n prompts, with an unseen prompt wrong in every word (or in none).

    Args:
        edits, words: of each clip.
        prompts: of each clip the name of what was said.
        seed: of the resampling.
    """
    names, places = np.unique(np.asarray(prompts, dtype=str), return_inverse=True)
    if len(names) < _MIN_PROMPTS_FOR_INTERVAL:
        return Interval(None, None, "no_interval")
    of_edits = np.bincount(places, weights=edits)
    of_words = np.bincount(places, weights=words)
    if not of_edits.any():
        return Interval(0.0, exact_bounds(0, len(names)).hi, "ok")
    if np.array_equal(of_edits, of_words):
        return Interval(exact_bounds(len(names), len(names)).lo, 1.0, "ok")
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(names), size=(_NUM_RESAMPLES, len(names)))
    wers = of_edits[drawn].sum(axis=1) / of_words[drawn].sum(axis=1)
    lo, hi = np.quantile(wers, (0.025, 0.975))
    return Interval(float(lo), float(hi), "ok")


def longest_loop(words: Sequence[str]) -> int:
    """How often the worst phrase of up to 6 words repeats back to back; 0 below 4 times.

    A voice that says one thing 4 times in a row, where no text asks for it, is in a loop; so is
    a recogniser. Compare with the same figure of the reference before blaming either.
    """
    worst = max(
        (
            _run_from(words, start, size)
            for size in range(1, _LOOP_MAX_WORDS + 1)
            for start in range(len(words) - size + 1)
        ),
        default=0,
    )
    return worst if worst >= _LOOP_MIN_REPEATS else 0


def _run_from(words: Sequence[str], start: int, size: int) -> int:
    """How many times the phrase at `start` stands there back to back."""
    phrase = words[start : start + size]
    repeats = 1
    while words[start + repeats * size : start + (repeats + 1) * size] == phrase:
        repeats += 1
    return repeats
