"""Bring two texts to one written form, so that spelling is not scored as speech.

Reference and transcript go through the same function, always. English builds on the normaliser
that comes with OpenAI's Whisper, which published figures use, and mends what it gets wrong or
leaves unequal (each rule below says what). Other languages use a plain normaliser of our own: the
English rules would rewrite words that only look English.

A rule may merge two spellings of one reading ("10:00 AM", "ten a.m."), never two readings.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from analysis.errors import MissingExtraError
from analysis.speech.weights import INSTALL_HINT

__all__ = ["Normaliser", "basic", "english", "normaliser_for", "raw"]

# Raise when a rule changes: figures under different rules are not comparable.
_ENGLISH_RULES = 1
_BASIC_RULES = 1

# Written without spaces between words: scored by character, which the name then says.
_BY_CHARACTER = frozenset({"ja", "lo", "my", "th", "yue", "zh"})

Rule = tuple[re.Pattern[str], str]


@dataclass(frozen=True, slots=True)
class Normaliser:
    """A named text function. `unit` is what its tokens are: `word` or `character`."""

    name: str
    version: str
    unit: str
    apply: Callable[[str], str]

    def __call__(self, text: str) -> str:
        return self.apply(text)

    @property
    def label(self) -> str:
        """What is printed beside every figure that used it."""
        return f"{self.name} ({self.version})"


def _rules(*pairs: tuple[str, str]) -> tuple[Rule, ...]:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in pairs)


_DIGIT_WORD = r"(?:zero|oh|one|two|three|four|five|six|seven|eight|nine)"

# Before Whisper's rules, on lower-case text.
_BEFORE = _rules(
    # Whisper's contractions know the straight apostrophe alone.
    (r"[‘’ʼ`]", "'"),
    # Words in brackets: whole tags go (Whisper does it, too), but round ones are spoken text,
    # and Whisper would drop "(555)" out of a phone number.
    (r"[()]", " "),
    (r"\s*&\s*", " and "),
    (r"\bcannot\b", "can not"),
    (r"\bo\.?k\b\.?", "okay"),
    (r"\be-mail", "email"),
    (r"\bwi-fi\b", "wifi"),
    (r"\ba (?=(?:hundred|thousand|million|billion)\b)", "one "),
    # Time of day. "10:00" is "ten o'clock" or, before a.m. and p.m., plain "ten".
    (r"\bo'\s?clock\b", "oclock"),
    (r"\b([ap])\.\s?m\b\.?", r"\1m"),
    (r"\b(\d{1,2}):00\b", r"\1 oclock"),
    (r"\b(\d{1,2}):(\d{2})\b", r"\1\2"),
    (r"(\d)([ap]m)\b", r"\1 \2"),
    (r"\boclock(?= [ap] ?m\b)", ""),
    # Phone numbers: one token, as Whisper makes of digits spoken one by one.
    (r"\+?\b(?:(1)[-. ])?(\d{3})[-. )]+(\d{3})[-. ]+(\d{4})\b", r" \1\2\3\4 "),
    (r"\b(\d{3})-(\d{4})\b", r"\1\2"),
    # "eight hundred five five five": the toll-free reading, digit by digit.
    (
        rf"\b({_DIGIT_WORD}) hundred(?=(?:[ ,-]+{_DIGIT_WORD}){{3}}\b)",
        r"\1 zero zero",
    ),
)

_LEADING_ZERO = re.compile(r"(?<![\d.,])0\d+\b")
_DIGIT_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# After Whisper's rules.
_AFTER = _rules(
    # Whisper leaves dots of an ellipsis behind as a word of its own.
    (r"\.(?!\d)", " "),
    (r"\+(?=\d)", ""),
    # "three dollars fifty"; Whisper merges cents only where the word is said.
    (r"([$€£]\d+) (\d{2})(?![\d.])", r"\1.\2"),
    (r"\b([ap]) m\b", r"\1m"),
    # Digits spoken one by one come out as one token; written groups must, too.
    (r"(?<![\d.$€£¢])(\d+) (?=\d+(?![\d.]*[%\d.]))", r"\1"),
    (r"\s+", " "),
)


def _apply(rules: tuple[Rule, ...], text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def english() -> Normaliser:
    """Whisper's English normaliser with the mends listed in this module.

    Raises:
        MissingExtraError: openai-whisper is not installed.
    """
    try:
        from whisper.normalizers import EnglishTextNormalizer
    except ModuleNotFoundError as missing:
        raise MissingExtraError(f"the English normaliser needs Whisper: {INSTALL_HINT}") from (
            missing
        )
    with warnings.catch_warnings():
        # Whisper leaves its spelling list open for the garbage collector to close.
        warnings.simplefilter("ignore", ResourceWarning)
        whisper_rules = EnglishTextNormalizer()
    whisper_rules.standardize_numbers.postprocess = _money_and_ones
    return Normaliser(
        name="whisper-english+mends",
        version=f"openai-whisper {metadata.version('openai-whisper')}, rules {_ENGLISH_RULES}",
        unit="word",
        apply=lambda text: _english(text, whisper_rules),
    )


def _english(text: str, whisper_rules: Any) -> str:
    prepared = _LEADING_ZERO.sub(_spell_digits, _apply(_BEFORE, text.lower()))
    return _apply(_AFTER, str(whisper_rules(prepared))).strip()


def _spell_digits(match: re.Match[str]) -> str:
    """Whisper reads written digits as a number and would lose leading zeros."""
    return " ".join(_DIGIT_NAMES[int(digit)] for digit in match.group())


def _money_and_ones(text: str) -> str:
    """Whisper's last step on numbers, without its faults: it turned "$1.05" into "one.05" and
    "one dollar" into "one", which made different sentences equal.
    """
    text = re.sub(
        r"([€£$]\d+) (?:and )?¢(\d{1,2})\b",
        lambda match: f"{match.group(1)}.{int(match.group(2)):02d}",
        text,
    )
    text = re.sub(
        r"[€£$]0\.(\d{1,2})\b", lambda match: f"¢{int(match.group(1).ljust(2, '0'))}", text
    )
    return re.sub(r"(?<!\S)1(s?)(?!\S)", r"one\1", text)


def basic(language: str) -> Normaliser:
    """Case, brackets, punctuation and spacing only; marks and diacritics stay."""
    by_character = language in _BY_CHARACTER
    return Normaliser(
        name="basic-characters" if by_character else "basic",
        version=f"rules {_BASIC_RULES}",
        unit="character" if by_character else "word",
        apply=lambda text: _basic(text, by_character),
    )


def _basic(text: str, by_character: bool) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    text = re.sub(r"[<\[][^>\]]*[>\]]", " ", text)
    # Marks (category M) stay: vowel signs of Indic scripts are among them.
    text = "".join(" " if unicodedata.category(char)[0] in "PS" else char for char in text)
    if by_character:
        text = " ".join(_clusters(text))
    return " ".join(text.split())


def _clusters(text: str) -> list[str]:
    """Characters with the marks that belong to them."""
    clusters: list[str] = []
    for char in text:
        if clusters and unicodedata.category(char).startswith("M"):
            clusters[-1] += char
        elif not char.isspace():
            clusters.append(char)
    return clusters


def raw(language: str) -> Normaliser:
    """As written, for the figure before normalisation: case and punctuation alone are dropped."""
    by_character = language in _BY_CHARACTER
    return Normaliser(
        name="raw",
        version="as written, lower case, punctuation dropped",
        unit="character" if by_character else "word",
        apply=lambda text: _basic(text, by_character),
    )


def normaliser_for(language: str) -> Normaliser:
    """The one for a language code: English rules for `en` alone.

    Raises:
        MissingExtraError: English was asked for and openai-whisper is not installed.
    """
    return english() if language == "en" else basic(language)
