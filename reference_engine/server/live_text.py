"""When speech begins while its text still arrives, and the tokens that are ready for it.

Tokens come out of `TextStream` as soon as nothing can change them. Until speech has begun they are
held back by the start rule: a longer beginning costs time to first sound and gives the voice more
to go by, and a talker that has begun may have to wait for text in the middle of a clause.
"""

from __future__ import annotations

import re

from reference_engine.clock import NS_PER_S
from reference_engine.model.text.stream import TextStream
from reference_engine.model.text.tokenizer import TextTokenizer
from reference_engine.server.settings import StartRule, StartSettings

__all__ = ["LiveText"]

# A mark counts once white space shows that it is no part of a number or a name; the full-width
# marks of Chinese and Japanese stand alone.
_BOUNDARIES = {
    StartRule.CLAUSE: re.compile(r"[,;:.!?…\u2013\u2014][\"')\]]*\s|[，。！？；：、]"),
    StartRule.SENTENCE: re.compile(r"[.!?…][\"')\]]*\s|[。！？]"),
}


class LiveText:
    """The text of one request, from its first character to its end.

    Args:
        tokenizer: of the checkpoint.
        start: the rule and its limits.
        closing: the token that ends every text.
    """

    def __init__(self, tokenizer: TextTokenizer, start: StartSettings, *, closing: int) -> None:
        self._stream = TextStream(tokenizer)
        self._start, self._closing = start, closing
        self._held: list[int] = []
        self._said = ""
        self._begun_ns: int | None = None
        self._has_boundary = start.rule is StartRule.FIRST_TOKEN
        self.num_tokens = 0
        self.num_characters = 0
        self.is_complete = False

    def push(self, text: str, *, now_ns: int) -> None:
        """Take more text.

        Raises:
            PromptError: a control token inside, also one cut over several pieces.
        """
        if self._begun_ns is None:
            self._begun_ns = now_ns
        self.num_characters += len(text)
        self._hold(self._stream.push(text))
        if not self._has_boundary:
            self._said += text
            self._has_boundary = _BOUNDARIES[self._start.rule].search(self._said) is not None
            # No boundary is longer than its mark, closing quotes and the space.
            self._said = self._said[-16:]

    def finish(self) -> None:
        """The text is whole.

        Raises:
            PromptError: it held nothing to say.
        """
        self._hold(self._stream.finish())
        self._hold((self._closing,))
        self.is_complete = True

    def _hold(self, tokens: tuple[int, ...]) -> None:
        self._held += tokens
        self.num_tokens += len(tokens)

    def may_start(self, now_ns: int) -> bool:
        """Whether speech may begin: by the rule, by its limits, or because the text is whole."""
        if self.is_complete:
            return True
        if not self._held:
            return False
        return (
            self._has_boundary
            or len(self._held) >= self._start.max_tokens
            or now_ns >= self._latest_ns()
        )

    def start_in_s(self, now_ns: int) -> float | None:
        """When to ask again although nothing came; None where only more text can help."""
        if self._begun_ns is None or not self._held:
            return None
        return max(0.0, (self._latest_ns() - now_ns) / NS_PER_S)

    def take(self) -> tuple[int, ...]:
        """The tokens that were not taken before."""
        taken, self._held = tuple(self._held), []
        return taken

    def _latest_ns(self) -> int:
        assert self._begun_ns is not None
        return self._begun_ns + int(self._start.max_wait_s * NS_PER_S)
