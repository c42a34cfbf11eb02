"""Whatever bytes a server sends, in whatever order: no exception, no growth, one ending."""

from __future__ import annotations

import functools
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines import registry
from engines.base import (
    Adapter,
    CancelDue,
    Closed,
    EndOfBody,
    Event,
    Exchange,
    Headers,
    Message,
    SideReply,
    SpeechRequest,
    StreamBytes,
    TextDue,
)
from engines.event_stream import MAX_EVENT_BYTES
from engines.http_contract import builtin_contracts
from tests.builders.exchanges import drive

# One contract of every kind of reply, and every adapter in code.
_CONTRACTS = ("nari", "generic", "openai", "piper-http", "sglang-omni", "mstar-generate", "minimax")
_IN_CODE = tuple(sorted(set(registry.names()) - set(builtin_contracts())))
ENGINES = (*_CONTRACTS, *_IN_CODE)

_TYPES = st.sampled_from(
    ["audio/pcm", "audio/wav", "text/event-stream", "application/x-ndjson", "audio/mpeg",
     "text/html", "application/json", "application/octet-stream", "", "\x00/;;", "audio/*"]
)  # fmt: skip
_LINES = st.sampled_from(
    [b"data: ", b"data:", b"\n", b"\r", b"\r\n", b"\n\n", b": x", b"event: speech.audio.delta",
     b'{"type":"speech.audio.delta","audio":"AAAA"}', b'{"audio":', b"[DONE]", b"RIFF", b'"',
     b'{"type":"audio-chunk","payload_length":4}', b'{"data":"zz"}', b"\xff\xfe", b"\xe2\x80\xa8",
     b'{"type":"audio-start","data":{"rate":22050,"width":2,"channels":1}}\n', b"null", b"{}"]
)  # fmt: skip
_BYTES = st.one_of(st.binary(max_size=64), st.lists(_LINES, max_size=8).map(b"".join))
_TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ['{"type":"error"}', '{"type":"session.created"}', '{"type":"audio.start"}', "[1]", "{",
         '{"type":"response.done","audio_chunks":"x"}', '{"type":"input_text.ack","sequence":{}}',
         '{"audio":"AA=="}', '{"type":"request.configured"}', '{"type":["a"]}', "null", "[" * 5000]
    ),
)  # fmt: skip
_EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        lambda status, kind, extra: Headers(status, (("content-type", kind), *extra)),
        st.sampled_from([101, 200, 201, 204, 299, 404, 429, 500]),
        _TYPES,
        st.lists(st.tuples(st.just("x-sample-rate"), st.text(max_size=6)), max_size=2),
    ),
    st.builds(StreamBytes, _BYTES),
    st.builds(Message, st.one_of(_TEXTS, _BYTES)),
    st.builds(TextDue, st.integers(0, 5), st.text(max_size=5), st.booleans()),
    st.builds(CancelDue),
    st.builds(SideReply, st.text(max_size=8), st.sampled_from([0, 200, 404]), _BYTES),
    st.builds(EndOfBody),
    st.builds(Closed, st.sampled_from([None, 1000, 1006, 1011])),
)


# Parameters without which some engines cannot be opened.
_NEEDED = {"voice": "v", "argv": ["say"]}


@functools.cache
def _adapter(name: str) -> tuple[Adapter, bool]:
    card = registry.card(name)
    adapter = registry.create(
        name,
        base_url="http://127.0.0.1:9",
        params={key: value for key, value in _NEEDED.items() if key in card.parameters},
        environ={},
    )
    return adapter, card.capabilities.has_incremental_text


def _open(name: str) -> Exchange:
    adapter, is_incremental = _adapter(name)
    return adapter.open(SpeechRequest("r", "Hello there.", is_incremental=is_incremental))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """One engine by name."""
    return str(request.param)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(events=st.lists(_EVENTS, max_size=14))
def test_any_order_of_any_events_is_survived(engine: str, events: list[Event]):
    """Never an exception, never an action after the end, never audio before its format."""
    drive(_open(engine), events)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(kind=_TYPES, pieces=st.lists(_BYTES, max_size=20))
def test_any_body_of_any_type_is_survived(engine: str, kind: str, pieces: list[bytes]):
    """After a good head, whatever follows ends in exactly one way."""
    events: list[Event] = [Headers(200, (("content-type", kind),))]
    events += [StreamBytes(piece) for piece in pieces]
    played = drive(_open(engine), [*events, EndOfBody(), Closed()])

    assert played.ending is not None


def _endless(engine: str, kind: str, block: bytes) -> tuple[Event, Event]:
    """How a session with this engine begins, and the noise that then never stops."""
    if engine.endswith("-ws"):
        return Headers(101), Message(block)
    if engine in ("wyoming", "local"):
        return StreamBytes(b""), StreamBytes(block)
    return Headers(200, (("content-type", kind),)), StreamBytes(block)


_KINDS = ("audio/pcm", "text/event-stream", "application/x-ndjson", "x/y")
_BODIES = [
    *((engine, kind) for engine in _CONTRACTS for kind in _KINDS),
    *((engine, "audio/wav") for engine in _IN_CODE),
]


@pytest.mark.parametrize(("name", "kind"), _BODIES)
@pytest.mark.parametrize(
    "filler", [b"x", b"data: " + b"x" * 500 + b"\n", b":" + b" " * 999 + b"\n", b"data:\n"]
)
def test_an_endless_body_is_not_hoarded(name: str, kind: str, filler: bytes):
    """14 MB of noise leave no more behind than one event may hold, and a quarter."""
    exchange = _open(name)
    exchange.start()
    begin, block = _endless(name, kind, filler * (65_536 // len(filler)))
    exchange.feed(begin)
    tracemalloc.start()
    try:
        for _ in range(224):
            exchange.feed(block)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert 1.25 * MAX_EVENT_BYTES > held
