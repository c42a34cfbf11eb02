"""What a speech request may say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.embedded.errors import BadRequestError
from engines.embedded.speech_body import ResponseFormat, SpeechOrder, parse_speech_body


def parse(body: bytes | dict) -> SpeechOrder:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_speech_body(data, max_characters=100)


def test_text_alone_asks_for_streamed_pcm():
    """Only `input` is required."""
    assert SpeechOrder("Hello.", ResponseFormat.PCM, True, 1.0) == parse({"input": "Hello."})


def test_every_field_is_read():
    """The OpenAI fields that this voice can honour."""
    body = {
        "model": "piper-joe",
        "voice": "joe",
        "input": "Hello.",
        "response_format": "wav",
        "stream": False,
        "stream_format": "audio",
        "speed": 2,
    }

    assert SpeechOrder("Hello.", ResponseFormat.WAV, False, 2.0) == parse(body)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "body: not JSON at line 1 column 1"),
        (b"{", 400, "body: not JSON"),
        (b"\xff\xfe", 400, "body: byte 0 is not UTF-8"),
        (b"[" * 30_000, 400, "body: "),
        (b"9" * 5000, 400, "body: a number is too long"),
        (b'{"input": NaN}', 400, "body: NaN is not JSON"),
        (b'{"input": "a", "input": "b"}', 400, "body: 'input' occurs twice"),
        (b"[]", 400, "body: found an array; expected an object"),
        (b"null", 400, "body: found null"),
        (b"{}", 400, "input: found nothing; expected the text to speak"),
        (b'{"input": null}', 400, "input: found null"),
        (b'{"input": ["a"]}', 400, "input: found an array"),
        (b'{"input": ""}', 400, "input: there is no text"),
        (b'{"input": " \\n "}', 400, "input: there is no text"),
        (b'{"input": "a\\u0000b"}', 400, "input: character 1 is U+0000"),
        (b'{"input": "\\ud800"}', 400, "input: character 0 is U+D800"),
        (json.dumps({"input": "a" * 101}).encode(), 400, "input: 101 characters; at most 100"),
        (b'{"input": "a", "model": "tts-1"}', 404, "model: 'tts-1' is not one of piper-joe"),
        (b'{"input": "a", "voice": "amy"}', 400, "voice: 'amy' is not one of joe"),
        (b'{"input": "a", "voice": 3}', 400, "voice: found a number"),
        (b'{"input": "a", "response_format": "mp3"}', 400, "response_format: 'mp3'"),
        (b'{"input": "a", "stream_format": "sse"}', 400, "stream_format: 'sse'"),
        (b'{"input": "a", "stream": 1}', 400, "stream: found a number; expected true or false"),
        (b'{"input": "a", "speed": 5}', 400, "speed: 5 is out of range"),
        (b'{"input": "a", "speed": true}', 400, "speed: found a boolean"),
        (b'{"input": "a", "speed": 1e999}', 400, "speed: inf is out of range"),
        (b'{"inptu": "a"}', 400, "'inptu': unknown field; did you mean 'input'?"),
        (b'{"input": "a", "a\\nb": 1}', 400, r"'a\nb': unknown field; known: input, model"),
    ],
)
def test_a_bad_body_is_refused_in_one_line(body, status, message):
    """The line says where, what was found and what was expected."""
    with pytest.raises(BadRequestError) as caught:
        parse(body)

    assert (status, True, 1) == (
        caught.value.status,
        str(caught.value).startswith(message),
        len(str(caught.value).splitlines()),
    )


@settings(max_examples=50)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_whatever_raise_anything_else(body):
    """A stranger's bytes are an order or a refusal, never a crash."""
    try:
        said = parse(body).text
    except BadRequestError as refusal:
        said = str(refusal)

    assert said
