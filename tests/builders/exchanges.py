"""Drive an exchange by hand: feed events, collect what it does, check the rules all obey."""

from __future__ import annotations

import array
import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engines.base import (
    Action,
    Audio,
    Done,
    Event,
    Exchange,
    Fail,
    Format,
    Send,
    SideRequest,
    StreamBytes,
    TextAccepted,
)

__all__ = [
    "Played",
    "byte_by_byte",
    "drive",
    "pieces_of",
    "play",
    "ramp",
    "random_pieces",
    "wav",
]


@dataclass(slots=True)
class Played:
    """Everything an exchange did over one life."""

    actions: list[Action] = field(default_factory=list)
    format: Format | None = None
    ending: Done | Fail | None = None

    @property
    def audio(self) -> bytes:
        """All payload, in order."""
        return b"".join(bytes(action.data) for action in self.actions if isinstance(action, Audio))

    @property
    def chunks(self) -> list[bytes]:
        """The payload, one item a chunk."""
        return [bytes(action.data) for action in self.actions if isinstance(action, Audio)]

    @property
    def sends(self) -> list[Send]:
        """What was to be written."""
        return [action for action in self.actions if isinstance(action, Send)]

    @property
    def side_requests(self) -> list[SideRequest]:
        """Calls to be made beside the main one."""
        return [action for action in self.actions if isinstance(action, SideRequest)]

    @property
    def accepted(self) -> list[int]:
        """Text pieces that the server acknowledged."""
        return [action.seq for action in self.actions if isinstance(action, TextAccepted)]

    @property
    def failure(self) -> Fail:
        """The failure, where one is expected."""
        assert isinstance(self.ending, Fail), self.ending
        return self.ending

    def add(self, actions: Iterable[Action]) -> None:
        """Append, checking the rules of every exchange."""
        for action in actions:
            assert self.ending is None, f"{action} after {self.ending}"
            if isinstance(action, Format):
                assert self.format is None, "a second Format"
                self.format = action
            if isinstance(action, (Done, Fail)):
                self.ending = action
            if isinstance(action, Audio):
                assert self.format is not None, "Audio before Format"
                assert len(action.data) > 0, "an empty chunk"
            self.actions.append(action)


def drive(exchange: Exchange, events: Iterable[Event]) -> Played:
    """Start an exchange and feed it every event, also after its end."""
    played = Played()
    played.add(exchange.start())
    return play(exchange, events, played)


def play(exchange: Exchange, events: Iterable[Event], played: Played) -> Played:
    """Feed further events to an exchange that was started."""
    for event in events:
        played.add(exchange.feed(event))
    return played


def pieces_of(body: bytes, sizes: Sequence[int]) -> list[StreamBytes]:
    """`body` cut into pieces of these sizes, repeating."""
    pieces, start, index = [], 0, 0
    while start < len(body):
        end = start + max(1, sizes[index % len(sizes)])
        pieces.append(StreamBytes(body[start:end]))
        start, index = end, index + 1
    return pieces


def byte_by_byte(body: bytes) -> list[StreamBytes]:
    """One event a byte."""
    return pieces_of(body, [1])


def random_pieces(body: bytes, *, seed: int) -> list[StreamBytes]:
    """Cut at seeded random places."""
    dice = random.Random(seed)
    return pieces_of(body, [dice.choice((1, 2, 3, 7, 44, 480, 4093)) for _ in range(16)])


def ramp(start: int, end: int) -> bytes:
    """Samples start..end-1 as s16le, so that every sample says its own place."""
    return array.array("h", (value % 32_768 for value in range(start, end))).tobytes()


def wav(pcm: bytes, *, data_size: int | None = None, sample_rate_hz: int = 24_000) -> bytes:
    """`pcm` behind a 44-byte header; `data_size` may lie (0, 0xFFFFFFFF, too much)."""
    size = len(pcm) if data_size is None else data_size
    riff = min(36 + size, 0xFFFFFFFF)
    return (
        struct.pack("<4sI4s", b"RIFF", riff, b"WAVE")
        + struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, sample_rate_hz, sample_rate_hz * 2, 2, 16)
        + struct.pack("<4sI", b"data", size)
        + pcm
    )
