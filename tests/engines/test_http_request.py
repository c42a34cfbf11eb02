"""Parameters, addresses and keys on their way into a request."""

from __future__ import annotations

from typing import Any

import pytest

from engines import registry
from engines.base import HttpTarget, SpeechRequest
from engines.errors import ContractError
from engines.params import is_loopback

HELLO = SpeechRequest("r1", "Hello.")
KEY = {"OPENAI_API_KEY": "sk-test-0123456789abcdef"}


def _target(name: str, **options: Any) -> HttpTarget:
    target = registry.create(name, **options).open(HELLO).target
    assert isinstance(target, HttpTarget)
    return target


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"temprature": 1.0}, r"nari: params.temprature: unknown parameter \(did you mean 'temp"),
        ({"seed": True}, r"nari: params.seed: True is not of type integer"),
        ({"seed": -1}, r"nari: params.seed: -1 is below 0"),
        ({"top_p": 1.5}, r"nari: params.top_p: 1.5 is above 1"),
        ({"temperature": float("nan")}, r"nari: params.temperature: nan is not of type number"),
        ({"response_format": "mp3"}, r"'mp3' is not one of pcm, wav"),
        ({"stream": "yes"}, r"nari: params.stream: 'yes' is not of type boolean"),
        ({"stream_chunk_schedule": 4}, r"4 is not of type list"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_sent(params: dict[str, Any], line: str):
    """Unknown names, wrong types and values out of range, each with its name."""
    with pytest.raises(ContractError, match=line):
        registry.create("nari", params=params)


def test_parameters_of_one_request_are_checked_too():
    """They come from elsewhere than the engine's own and pass the same gate."""
    adapter = registry.create("nari")
    with pytest.raises(ContractError, match=r"params.sed: unknown parameter"):
        adapter.open(SpeechRequest("r", "Hi.", params={"sed": 1}))


def test_a_null_parameter_is_left_out_of_the_body():
    """Null means 'not given', so the server's own default holds."""
    (send,) = registry.create("nari", params={"seed": None}).open(HELLO).start()

    assert b"seed" not in send.data


def test_the_requests_voice_wins_over_the_parameter_and_that_over_the_default():
    """Three places may name a voice."""
    adapter = registry.create("openai", params={"voice": "coral"}, environ=KEY)

    assert b'"voice":"coral"' in adapter.open(HELLO).start()[0].data
    assert b'"voice":"sage"' in adapter.open(SpeechRequest("r", "x", voice="sage")).start()[0].data
    assert b'"voice":"alloy"' in registry.create("openai", environ=KEY).open(HELLO).start()[0].data


def test_a_language_for_an_engine_without_languages_is_an_error():
    """Dropping it silently would measure another thing than was asked."""
    with pytest.raises(ContractError, match="openai: this engine takes no language"):
        registry.create("openai", environ=KEY).open(SpeechRequest("r", "x", language="fr"))


def test_incremental_text_for_a_whole_text_engine_is_an_error():
    """The line says what to use instead."""
    with pytest.raises(ContractError, match="takes whole texts only"):
        registry.create("nari").open(SpeechRequest("r", "x", is_incremental=True))


def test_a_text_longer_than_the_engine_takes_is_an_error():
    """Better than a run of HTTP 400s."""
    with pytest.raises(ContractError, match="4097 characters is longer than the 4096"):
        registry.create("openai", environ=KEY).open(SpeechRequest("r", "x" * 4097))


def test_text_is_sent_as_utf_8_and_a_lone_surrogate_is_refused():
    """What cannot be written is named, not replaced."""
    adapter = registry.create("nari")

    assert "Grüße, 世界".encode() in adapter.open(SpeechRequest("r", "Grüße, 世界")).start()[0].data
    with pytest.raises(ContractError, match="lone surrogate"):
        adapter.open(SpeechRequest("r", "\ud800"))


@pytest.mark.parametrize(
    "url",
    [
        *("nari", "ftp://host", "http://", "http:///x", "http://h:99999", "http://[::1", "//host"),
        *("", "http://h:0", "http://a..b", "http://bücher..de", "http://a b", f"http://{'a' * 64}"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str):
    """The line shows what an address looks like."""
    with pytest.raises(ContractError, match="base_url"):
        registry.create("generic", base_url=url)


@pytest.mark.parametrize("url", ["http://me:pw@h", "http://h?key=1", "http://h#x"])
def test_an_address_with_secrets_or_extras_is_refused(url: str):
    """Keys in addresses end up in logs."""
    with pytest.raises(ContractError, match="must hold no user, query or fragment"):
        registry.create("nari", base_url=url)


def test_an_address_may_have_a_path_and_a_trailing_slash():
    """A server behind a prefix is reached below it."""
    target = _target("nari", base_url="http://127.0.0.1:8000/tts/")

    assert "http://127.0.0.1:8000/tts/v1/audio/speech" == target.url


def test_a_whole_path_setting_keeps_its_slashes_and_quotes_the_rest():
    """`generic` takes its path as a parameter."""
    target = _target("generic", base_url="http://h", params={"path": "/a b/c"})

    assert "http://h/a%20b/c" == target.url


def test_a_key_goes_to_its_own_host_as_a_secret_header():
    """The header is there and marked, so that it is never stored."""
    target = _target("openai", environ=KEY)

    assert ("Authorization", "Bearer sk-test-0123456789abcdef") in target.headers
    assert frozenset({"Authorization"}) == target.secret_headers


def test_a_key_does_not_go_to_another_host():
    """A local server of OpenAI's shape never sees the key, and needs none."""
    target = _target("openai", base_url="http://127.0.0.1:8000", environ=KEY)

    assert not any(name == "Authorization" for name, _ in target.headers)


def test_a_key_goes_elsewhere_only_when_that_host_is_named():
    """The caller's consent is for one host."""
    target = _target(
        "openai", base_url="https://proxy.example", environ=KEY, key_hosts=["proxy.example"]
    )

    assert any(name == "Authorization" for name, _ in target.headers)


def test_a_key_never_crosses_a_network_unencrypted():
    """http to its own host is refused; loopback is no network."""
    with pytest.raises(ContractError, match="unencrypted; use https"):
        registry.create("openai", base_url="http://api.openai.com", environ=KEY)

    local = _target("openai", base_url="http://127.0.0.1:1", environ=KEY, key_hosts=["127.0.0.1"])
    assert any(name == "Authorization" for name, _ in local.headers)


def test_a_missing_key_names_its_variable():
    """The one thing to do is in the line."""
    with pytest.raises(ContractError, match=r"api.openai.com needs a key: set OPENAI_API_KEY"):
        registry.create("openai", environ={})


def test_a_key_with_a_line_break_is_refused():
    """It would start a header of its own."""
    with pytest.raises(ContractError, match="holds characters no header may"):
        registry.create("openai", environ={"OPENAI_API_KEY": "abc\r\nX: y"})


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True),
     ("127.0.0.1.evil.example", False), ("10.0.0.1", False), ("localhost.example", False)],
)  # fmt: skip
def test_loopback_is_recognised_by_its_whole_name(host: str, is_local: bool):
    """A name that merely begins like loopback is not."""
    assert is_local is is_loopback(host)


def test_our_requests_ask_for_plain_bytes_and_leave_the_user_agent_to_the_driver():
    """No compression between the server's chunks and our stamps; who loads it is not the
    contract's to say."""
    headers = dict(_target("nari").headers)

    assert "identity" == headers["Accept-Encoding"]
    assert "User-Agent" not in headers
