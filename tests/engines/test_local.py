"""A command as an engine: text in, audio out, the exit status is the end."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from engines import registry
from engines.base import (
    CancelDue,
    Close,
    Closed,
    Done,
    Exchange,
    ProcessTarget,
    SampleFormat,
    SpeechRequest,
    StreamBytes,
    TextDue,
)
from engines.errors import ContractError
from engines.outcomes import TransportOutcome
from tests.builders.exchanges import byte_by_byte, drive, ramp


def _open(*, is_incremental: bool = False, **params: Any) -> Exchange:
    adapter = registry.create("local", params={"argv": ["say"], **params})
    return adapter.open(SpeechRequest("r", "Hello.", is_incremental=is_incremental))


@pytest.mark.parametrize("pieces", [[StreamBytes(ramp(0, 50))], byte_by_byte(ramp(0, 50))])
def test_output_is_audio_and_a_clean_exit_is_the_end(pieces: list[StreamBytes]):
    """Status 0: complete, with the shape that the scenario states."""
    played = drive(_open(sample_rate_hz=16_000), [*pieces, Closed(0)])

    assert ramp(0, 50) == played.audio
    assert isinstance(played.ending, Done)
    assert played.format is not None
    assert 16_000 == played.format.format.sample_rate_hz


@pytest.mark.parametrize(("status", "said"), [(3, "with status 3: no voice"), (None, "without")])
def test_any_other_exit_is_a_server_error_with_the_last_words(status: int | None, said: str):
    """What came is kept."""
    played = drive(_open(), [StreamBytes(b"\0\0"), Closed(status, "no voice")])

    assert TransportOutcome.SERVER_ERROR == played.failure.outcome
    assert said in played.failure.text
    assert b"\0\0" == played.audio


def test_a_container_speaks_for_itself():
    """The stated rate is for headerless audio alone."""
    played = drive(_open(sample_format="wav"), [StreamBytes(b"RIFF"), Closed(0)])

    assert played.format is not None
    assert SampleFormat.WAV is played.format.format.sample_format
    assert played.format.format.sample_rate_hz is None


def test_the_text_goes_to_the_input_or_into_the_command():
    """As a line, or in the place of `{text}`; never through a shell."""
    by_input, by_argument = _open(), _open(argv=["say", "-t={text}"], text_in="argument")

    assert b"Hello.\n" == by_input.start()[0].data  # type: ignore[union-attr]
    assert ProcessTarget(("say", "-t=Hello.")) == by_argument.target
    assert b"" == by_argument.start()[0].data  # type: ignore[union-attr]


def test_streamed_text_is_written_as_it_falls_due():
    """Each piece with its number; the last ends the input."""
    played = drive(_open(is_incremental=True), [TextDue(0, "Hel", False), TextDue(1, "lo.", True)])

    assert [(b"Hel", 0, False), (b"lo.", 1, True)] == [
        (send.data, send.text_seq, send.ends_text) for send in played.sends
    ]


def test_cancelling_ends_the_process():
    """By closing."""
    played = drive(_open(), [CancelDue()])

    assert Close() in played.actions
    assert TransportOutcome.CANCELLED == played.failure.outcome


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"argv": []}, "must be a command"),
        ({"argv": ["say", 3]}, "must be a command"),
        ({"argv": "say hello"}, "is not of type list"),
        ({"sample_format": "s16"}, r"did you mean 's16le'"),
        ({"rate": 16_000}, r"unknown parameter"),
    ],
)
def test_a_senseless_command_is_refused(params: dict[str, Any], line: str):
    """Before anything is run."""
    with pytest.raises(ContractError, match=line):
        _open(**params)


def test_a_command_is_required_only_when_it_is_run():
    """So that the list of engines can show what parameters there are."""
    adapter = registry.create("local")
    with pytest.raises(ContractError, match="needs either argv or callable"):
        adapter.open(SpeechRequest("r", "x"))


def test_an_argument_needs_its_place_and_cannot_come_in_pieces():
    """Two ways to ask for what cannot be."""
    with pytest.raises(ContractError, match=r"names no {text}"):
        _open(text_in="argument")
    with pytest.raises(ContractError, match="cannot come in pieces"):
        _open(argv=["say", "{text}"], text_in="argument", is_incremental=True)


def test_text_that_no_command_can_be_given_is_refused():
    """A zero byte ends an argument."""
    adapter = registry.create("local", params={"argv": ["say"]})
    with pytest.raises(ContractError, match="no command can be given"):
        adapter.open(SpeechRequest("r", "a\x00b"))


def test_a_function_is_a_command_of_this_interpreter():
    """It runs in a process of its own, never in the measuring one."""
    adapter = registry.create("local", params={"callable": "my_tts:speak"})
    target = adapter.open(SpeechRequest("r", "x")).target

    assert ProcessTarget((sys.executable, "-m", "engines.run_callable", "my_tts:speak")) == target
    with pytest.raises(ContractError, match="needs either argv or callable"):
        _open(callable="my_tts:speak")
