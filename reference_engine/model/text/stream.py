"""Text that arrives in pieces: hand out a token only once nothing can change it any more.

The same text must give the same ids however it is cut, because the talker has already spoken from
the ids handed out. Tokens never span two pieces of the pre-tokenizer, so what matters is when a
piece is final. That is when a later piece has begun, and three more things hold:

- white space at the end stays open as a whole: `"\\n", " "` becomes one piece when another line
  break follows;
- a combining mark at the end may still compose with, or be sorted before, what precedes it, so a
  later piece only counts from a character before which normalisation has a boundary;
- white space before the first word is dropped if it holds a line break, for that would merge with
  the line break of the role before it.
"""

from __future__ import annotations

import unicodedata

from reference_engine.errors import PromptError
from reference_engine.model.text.tokenizer import TextTokenizer

__all__ = ["TextStream", "body_ids", "strip_leading_break"]

# Hangul vowels and finals compose with the syllable before them, yet are letters.
_HANGUL_FOLLOWERS = ("\u1160", "\u11ff")


def strip_leading_break(text: str) -> str:
    """Drop leading white space if a line break is in it."""
    body = text.lstrip()
    lead = text[: len(text) - len(body)]
    return body if "\n" in lead or "\r" in lead else text


def body_ids(tokenizer: TextTokenizer, text: str) -> tuple[int, ...]:
    """Ids of a whole text, as a `TextStream` would hand them out.

    Raises:
        PromptError: nothing to say, or a control token inside.
    """
    stream = TextStream(tokenizer)
    return (*stream.push(text), *stream.finish())


class TextStream:
    """One request's text, from its first character to its end."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        # Normalised text whose tokens are still open; starts at a piece's start.
        self._open = ""
        # Raw text long enough that a reserved string cut over two pushes is still seen.
        self._tail = ""
        self._longest = max((len(name) for name in tokenizer.reserved), default=2)
        self._has_begun = False
        self._is_finished = False

    def push(self, text: str) -> tuple[int, ...]:
        """Take more text and return the ids that became final.

        Raises:
            PromptError: a control token inside, also one cut over several pushes.
        """
        assert not self._is_finished, "text after its end"
        self._tail += text
        self._tokenizer.check_speakable(self._tail, what="text")
        self._tail = self._tail[-(self._longest - 1) :]
        self._open += text
        if not self._has_begun:
            if not self._open.strip():
                return ()
            self._open = strip_leading_break(self._open)
            self._has_begun = True
        self._open = self._tokenizer.normalise(self._open)
        return self._take(final=False)

    def finish(self) -> tuple[int, ...]:
        """End the text and return the ids that were still open.

        Raises:
            PromptError: the whole text held nothing to say.
        """
        assert not self._is_finished, "text ended twice"
        if not self._has_begun:
            raise PromptError("text: empty or only white space; there is nothing to say")
        self._is_finished = True
        return self._take(final=True)

    def _take(self, *, final: bool) -> tuple[int, ...]:
        pieces = self._tokenizer.pieces(self._open)
        count = len(pieces) if final else _num_final(pieces)
        taken = pieces[:count]
        self._open = self._open[sum(len(piece) for piece in taken) :]
        return tuple(token for piece in taken for token in self._tokenizer.piece_ids(piece))


def _num_final(pieces: list[str]) -> int:
    """How many leading pieces no further text can change."""
    first_open = len(pieces) - 1
    while first_open > 0 and (
        (pieces[first_open].isspace() and pieces[first_open - 1].isspace())
        or not _is_boundary(pieces[first_open][0])
    ):
        first_open -= 1
    return max(first_open, 0)


def _is_boundary(character: str) -> bool:
    """Whether nothing from this character on can change what normalisation made before it."""
    if character.isascii():
        return True
    low, high = _HANGUL_FOLLOWERS
    category = unicodedata.category(character)
    return (
        category[0] != "M"  # marks compose backwards or are sorted among their neighbours
        and category != "Cn"  # unknown to this Python, so perhaps a mark
        and not unicodedata.combining(character)
        and not low <= character <= high
    )
