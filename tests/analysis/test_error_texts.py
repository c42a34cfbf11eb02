"""Why requests failed: the words that were said, counted."""

from __future__ import annotations

import pandas as pd

from analysis.error_texts import ErrorText, error_texts


def cohort(*rows):
    """Arrivals as (outcome, status, error text, reason)."""
    columns = ("outcome", "http_status", "error_text", "outcome_reason")
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(error_kind=None)


def test_failures_are_counted_by_what_was_said():
    """Two bad keys and one silent reply; the good one and the cancelled one said nothing bad."""
    found = error_texts(
        cohort(
            ("http_error", 401, "HTTP 401: bad key", None),
            ("ok", 200, None, None),
            ("http_error", 401, "HTTP 401: bad key", None),
            ("cancelled", 200, "cancelled by the scenario", None),
            ("silent", 200, None, "no onset"),
        )
    )

    assert (
        ErrorText("http_error", "HTTP 401: bad key", 2),
        ErrorText("silent", "no onset", 1),
    ) == found


def test_texts_that_differ_in_an_id_alone_are_one_kind():
    """The first one's words stand for all; another status is another kind."""
    found = error_texts(
        cohort(
            ("http_error", 500, "request 17 lost", None),
            ("http_error", 500, "request 4711 lost", None),
            ("http_error", 502, "request 18 lost", None),
        )
    )

    assert [("request 17 lost", 2), ("request 18 lost", 1)] == [(e.text, e.count) for e in found]


def test_what_a_server_says_is_bounded():
    """Five kinds, each on one line of 160 letters at most."""
    words = [chr(ord("a") + i) + "\n" + "x" * 400 for i in range(9)]
    found = error_texts(cohort(*(("server_error", None, text, None) for text in words)))

    assert (5, 160) == (len(found), len(found[0].text))
    assert "\n" not in found[0].text
