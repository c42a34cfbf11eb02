"""A command on this machine as an engine: text on its standard input, audio on its standard output.

    engines:
      - contract: local
        params: {argv: [my-tts, --raw], sample_rate_hz: 22050}

A Python function is a command too: `callable: package.module:name` instead of `argv` runs it in a
process of its own (`engines.run_callable`).

The command comes from a scenario, so the driver runs it only with `--allow-commands`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from engines.adapter import CodedAdapter
from engines.base import (
    Action,
    Audio,
    AudioFormat,
    CancelDue,
    Capabilities,
    Close,
    Closed,
    Done,
    EndOfBody,
    EngineInfo,
    Event,
    Exchange,
    Fail,
    Format,
    Probe,
    ProcessTarget,
    RateSource,
    SampleFormat,
    Send,
    SpeechRequest,
    StreamBytes,
    TextDue,
)
from engines.card import EngineCard
from engines.ending import EndsOnce
from engines.errors import ContractError
from engines.http_body import for_container, protocol_error
from engines.http_contract import FieldSpec, ValueType
from engines.outcomes import TransportOutcome
from engines.redact import one_line
from engines.shape import MAX_CHANNELS, MAX_RATE_HZ, MIN_RATE_HZ

__all__ = ["LocalAdapter", "LocalExchange"]

_FIELDS = MappingProxyType(
    {
        "argv": FieldSpec(type=ValueType.LIST),
        "callable": FieldSpec(),
        "text_in": FieldSpec(default="stdin", one_of=("stdin", "argument")),
        "sample_format": FieldSpec(default="s16le", one_of=tuple(SampleFormat)),
        "sample_rate_hz": FieldSpec(
            type=ValueType.INTEGER, default=22_050, min=MIN_RATE_HZ, max=MAX_RATE_HZ
        ),
        "channels": FieldSpec(type=ValueType.INTEGER, default=1, min=1, max=MAX_CHANNELS),
    }
)
# Where `text_in: argument` puts the text in the command.
_TEXT_MARK = "{text}"


class LocalExchange(EndsOnce):
    """One process for one request; its exit status says whether the audio is complete."""

    __slots__ = ("_format", "_is_told", "_request", "_sends_text", "_target")

    def __init__(
        self, request: SpeechRequest, target: ProcessTarget, *, found: AudioFormat, sends_text: bool
    ) -> None:
        super().__init__()
        self._request = request
        self._target = target
        self._format = found
        self._sends_text = sends_text
        self._is_told = False

    @property
    def target(self) -> ProcessTarget:
        """What to run."""
        return self._target

    def start(self) -> list[Action]:
        """The text and the end of the input; incremental text follows as it falls due."""
        if self._request.is_incremental:
            return []
        text = f"{self._request.text}\n" if self._sends_text else ""
        return [Send(text.encode(), ends_text=True)]

    def _react(self, event: Event) -> list[Action]:
        match event:
            case StreamBytes(data=data):
                if not len(data):
                    return []
                told: list[Action] = [] if self._is_told else [Format(self._format, self._format)]
                self._is_told = True
                return [*told, Audio(data)]
            case TextDue(seq=seq, text=text, is_last=is_last) if self._request.is_incremental:
                return [Send(text.encode(), text_seq=seq, ends_text=is_last)]
            case CancelDue():
                ended = "cancelled by the scenario; the process is ended"
                return [Close(), Fail(TransportOutcome.CANCELLED, "process", ended)]
            case Closed(code=0):
                return [Done()]
            case Closed(code=code, reason=reason):
                status = "without a status" if code is None else f"with status {code}"
                text = one_line(f"the process ended {status}: {reason}".rstrip(": "))
                return [Fail(TransportOutcome.SERVER_ERROR, "process", text)]
            case EndOfBody():
                return [Done()]
            case _:
                return [protocol_error("order", f"{type(event).__name__} does not belong here")]


class LocalAdapter(CodedAdapter):
    """A command whose standard output is audio."""

    def __init__(self, *, params: Mapping[str, Any] = MappingProxyType({}), **given: Any) -> None:
        """Check also the command; see `engines.registry.create`.

        Raises:
            ContractError: one line.
        """
        super().__init__(params=params, **given)
        argv = params.get("argv")
        if argv is not None and (not argv or not all(isinstance(a, str) and a for a in argv)):
            raise ContractError(f"{self.name}: params.argv: must be a command and its arguments")

    @classmethod
    def describe(cls) -> EngineCard:
        """What is known of it without running anything."""
        return EngineCard(
            name="local",
            title="A command whose standard output is audio",
            source="engines/local.py",
            base_url=None,
            capabilities=Capabilities(
                transport="process",
                formats=tuple(str(name) for name in SampleFormat),
                has_incremental_text=True,
                can_cancel=True,
                note="runs only with --allow-commands; process start is part of every request",
            ),
            parameters=_FIELDS,
        )

    def open(self, request: SpeechRequest) -> Exchange:
        """Begin one request; see `engines.base.Adapter`."""
        values = self.values_of(request)
        if "\x00" in request.text:
            raise ContractError(f"{self.name}: the text holds a NUL, which no command can be given")
        as_argument = values["text_in"] == "argument"
        if as_argument and request.is_incremental:
            raise ContractError(f"{self.name}: text_in: an argument cannot come in pieces")
        argv = self._argv(values)
        if as_argument:
            if not any(_TEXT_MARK in word for word in argv):
                raise ContractError(f"{self.name}: params.argv: names no {_TEXT_MARK}")
            argv = tuple(word.replace(_TEXT_MARK, request.text) for word in argv)
        sample_format = SampleFormat(values["sample_format"])
        found = AudioFormat(
            sample_format, values["sample_rate_hz"], values["channels"], RateSource.CONTRACT
        )
        return LocalExchange(
            request,
            ProcessTarget(argv),
            found=for_container(found, sample_format),
            sends_text=not as_argument,
        )

    def check_address(self, address: str | None) -> str:
        """A command has none."""
        del address
        return "process:"

    def _argv(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        argv, place = values["argv"], values["callable"]
        if (argv is None) == (place is None):
            raise ContractError(f"{self.name}: params: needs either argv or callable")
        if place is not None:
            return (sys.executable, "-m", "engines.run_callable", place)
        return tuple(argv)

    def probe(self) -> Probe:
        """Nothing to ask: it is started for every request."""
        info = EngineInfo(self.name, is_ready=True, reason="a command is started anew each time")
        return Probe(calls=MappingProxyType({}), parse=lambda _replies: info)
