"""Nothing secret and nothing unprintable leaves in a text."""

from __future__ import annotations

import pytest

from engines.redact import (
    MAX_ERROR_CHARS,
    one_line,
    redact_headers,
    redact_url,
    short_fact,
    written,
)


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-abcdef0123456789",
        "Authorization: Bearer abcdef0123456789",
        '{"api_key": "abcdef0123456789"}',
        "xi-api-key=abcdef0123456789;",
        "password: abcdef0123456789",
        "Token abcdef0123456789",
        "x-api-key: 'abcdef0123456789'",
    ],
)
def test_what_looks_like_a_key_is_hidden(text: str):
    """Whatever way a server echoes a key, it is not stored."""
    assert "abcdef0123456789" not in one_line(text)
    assert "***" in one_line(text)


def test_a_known_secret_is_hidden_whatever_it_looks_like():
    """A key of four letters has no shape; it is known."""
    assert "the word *** was wrong" == one_line("the word swan was wrong", secrets=["swan", ""])


def test_ordinary_words_stay():
    """Numbers, paths and the word token by itself are not secrets."""
    text = "422: voice 'aiden' unknown, 3 tokens used, see /v1/audio/voices"

    assert text == one_line(text)


def test_control_characters_and_line_breaks_become_single_spaces():
    """A server cannot draw on the user's terminal."""
    assert "red alert [31m end" == one_line(b"red\n\talert \x1b[31m\x00 end\xe2\x80\xa8")


def test_a_text_is_cut_to_its_limit():
    """Five hundred characters, the last three dots."""
    assert MAX_ERROR_CHARS == len(one_line("word " * 1000))


def test_a_url_keeps_its_place_and_loses_its_secrets():
    """User, query values and fragment go."""
    assert "wss://host:81/tts?token=***&model=***" == redact_url(
        "wss://me:word@host:81/tts?token=abc&model=x#part"
    )


def test_headers_that_carry_keys_are_hidden():
    """The usual carriers, and those named by the caller, in any case."""
    headers = [("AUTHORIZATION", "Bearer x"), ("X-Mine", "y"), ("Accept", "audio/pcm")]

    assert (("AUTHORIZATION", "***"), ("X-Mine", "***"), ("Accept", "audio/pcm")) == (
        redact_headers(headers, secret=["x-mine"])
    )


def test_a_long_hostile_text_costs_little():
    """A megabyte without a blank does not make the search for keys quadratic."""
    assert MAX_ERROR_CHARS == len(one_line("x-" * 500_000))


@pytest.mark.parametrize("depth", [10, 300, 1000, 20_000])
def test_what_a_server_nests_is_written_or_named(depth: int):
    """However deep: no exception of ours may come of it."""
    value: object = "x"
    for _ in range(depth):
        value = [value]
    is_shown = depth < 200

    assert ("[" * depth + '"x"' + "]" * depth if is_shown else "nested too deeply to be shown") == (
        written(value)
    )
    assert is_shown is (short_fact(value) is value)


def test_a_long_fact_is_kept_as_a_line():
    """It lies in memory and on the disk once a request."""
    assert [1, None, {"a": 2}] == [short_fact(v) for v in (1, None, {"a": 2})]
    assert 500 == len(short_fact(["x" * 10_000]))
