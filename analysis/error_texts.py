"""Why requests failed, in the server's or the analysis's own words, and how often."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pandas as pd

from analysis.outcomes import failures

__all__ = ["ErrorText", "error_texts"]

_MAX_TEXTS = 5
_MAX_LETTERS = 160
# Request ids and durations differ from one failure to the next; the failure does not.
_VARYING = re.compile(r"\b[0-9a-f]{8,}\b|\d+")


@dataclass(frozen=True, slots=True)
class ErrorText:
    """One kind of failure: its outcome, the words of the first one, and how many there were.

    `text`: on one line and cut; secrets were taken out when it was recorded. Empty where nothing
    was said.
    """

    outcome: str
    text: str
    count: int


def error_texts(cohort: pd.DataFrame) -> tuple[ErrorText, ...]:
    """The most frequent kinds of failure, the most common first; at most five.

    Args:
        cohort: one row an arrival, with `outcome`, and `error_text` and `outcome_reason` where
            anything was said.
    """
    failed = failures(cohort)
    rows = cohort.loc[failed.index[failed]].to_dict("records")
    said = [_said(row.get("error_text"), row.get("outcome_reason")) for row in rows]
    kinds = [
        (row["outcome"], str(row.get("http_status")), _VARYING.sub("#", text))
        for row, text in zip(rows, said, strict=True)
    ]
    first = dict(reversed(list(zip(kinds, said, strict=True))))
    return tuple(
        ErrorText(outcome=str(kind[0]), text=first[kind], count=count)
        for kind, count in Counter(kinds).most_common(_MAX_TEXTS)
    )


def _said(*texts: object) -> str:
    words = ": ".join(text for text in texts if isinstance(text, str) and text)
    words = " ".join(words.split())
    return words if len(words) <= _MAX_LETTERS else f"{words[: _MAX_LETTERS - 1]}…"
