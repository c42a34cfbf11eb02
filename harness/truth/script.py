"""What a truth server does with one request: a clip, and when which bytes of it are written.

A script is a list of steps on an absolute time line that begins when the request was received.
A step first puts items (head, chunks, end) behind what is already waiting to be written, then
writes all of it, or only so many bytes, in one send. That is enough to say everything a real
server does to a client: several chunks in one send, one chunk in many, headers long before or
together with the audio, an end that comes late, never, or too early.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from harness.scenario_sections import NotNegative, Section
from harness.truth.sound import Sound

__all__ = [
    "Container",
    "Ending",
    "Item",
    "ItemKind",
    "Script",
    "Step",
    "back_to_back",
    "cut_off",
    "delayed_end",
    "hold_up",
    "late",
    "merged",
    "paced",
    "refusal",
    "split",
    "trickled",
]


class ItemKind(StrEnum):
    """One logical part of a reply."""

    HEAD = "head"
    CONTAINER = "container"  # the 44 bytes of a WAV header
    AUDIO = "audio"  # one chunk
    END = "end"


class Ending(StrEnum):
    """What happens to the connection after a step."""

    CLOSE = "close"  # in order (FIN)
    RESET = "reset"  # broken (RST)


class Container(StrEnum):
    """What is around the samples."""

    RAW = "raw"
    WAV = "wav"


class Item(Section):
    """A part of the reply; `samples` is the length of a chunk."""

    kind: ItemKind
    samples: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _chunks_have_samples(self) -> Item:
        if (self.kind is ItemKind.AUDIO) != (self.samples > 0):
            raise ValueError("samples: an audio item has at least one, any other none")
        return self


class Step(Section):
    """At `at_ms` after the request: put, write (`flush_bytes` of it, or all), perhaps end."""

    at_ms: NotNegative
    put: tuple[Item, ...] = ()
    flush_bytes: Annotated[int, Field(gt=0)] | None = None
    ending: Ending | None = None


class Script(Section):
    """One reply. `status` other than 200 is a refusal: a head with a small error body."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$")]
    sound: Sound
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    container: Container = Container.RAW
    status: Annotated[int, Field(ge=200, le=599)] = 200

    @model_validator(mode="after")
    def _can_be_played(self) -> Script:
        times = [step.at_ms for step in self.steps]
        if times != sorted(times):
            raise ValueError("steps go backwards in time")
        wanted = sum(item.samples for item in self.items)
        has = self.sound.num_samples(self.sound.duration_ms)
        if wanted > has:
            raise ValueError(f"the chunks take {wanted} samples of a sound of {has}")
        if self.items and self.items[0].kind is not ItemKind.HEAD:
            raise ValueError("the first item of a reply is its head")
        return self

    @property
    def items(self) -> tuple[Item, ...]:
        """All of them in order."""
        return tuple(item for step in self.steps for item in step.put)

    @property
    def is_whole(self) -> bool:
        """Whether the reply comes to its proper end."""
        return any(item.kind is ItemKind.END for item in self.items)


_HEAD = Item(kind=ItemKind.HEAD)
_CONTAINER = Item(kind=ItemKind.CONTAINER)
_END = Item(kind=ItemKind.END)


def paced(
    name: str,
    sound: Sound,
    *,
    chunk_ms: float = 80.0,
    first_ms: float = 20.0,
    gap_ms: float | None = None,
    head_ms: float | None = 0.0,
    container: Container = Container.RAW,
) -> Script:
    """The sound in chunks, the first at `first_ms`, then one every `gap_ms` (default: real time).

    The head goes at `head_ms`, or together with the first chunk (None). The end goes with the
    last chunk, in the same send. A WAV header goes with the head.
    """
    size, left = sound.num_samples(chunk_ms), sound.num_samples(sound.duration_ms)
    gap = chunk_ms if gap_ms is None else gap_ms
    top = (_HEAD, _CONTAINER) if container is Container.WAV else (_HEAD,)
    steps = [] if head_ms is None else [Step(at_ms=head_ms, put=top)]
    index = 0
    while left > 0:
        put: tuple[Item, ...] = (Item(kind=ItemKind.AUDIO, samples=min(size, left)),)
        left -= size
        if index == 0 and head_ms is None:
            put = (*top, *put)
        if left <= 0:
            put = (*put, _END)
        steps.append(Step(at_ms=first_ms + index * gap, put=put))
        index += 1
    return Script(name=name, sound=sound, steps=tuple(steps), container=container)


def refusal(name: str, sound: Sound, *, status: int = 503, at_ms: float = 0.0) -> Script:
    """No audio: an error status after `at_ms`."""
    return Script(name=name, sound=sound, status=status, steps=(Step(at_ms=at_ms, put=(_HEAD,)),))


# -- changes to a paced reply ----------------------------------------------------------------------


def late(script: Script, name: str, *, chunk: int, by_ms: float) -> Script:
    """Chunk `chunk` comes `by_ms` late; those behind it only as far as they must."""
    at = _step_of(script, chunk)
    late_ms = script.steps[at].at_ms + by_ms
    moved = [
        step.model_copy(update={"at_ms": max(step.at_ms, late_ms)}) if index >= at else step
        for index, step in enumerate(script.steps)
    ]
    return _changed(script, name, moved)


def hold_up(script: Script, name: str, *, chunk: int, by_ms: float) -> Script:
    """Everything from chunk `chunk` on comes `by_ms` later."""
    at = _step_of(script, chunk)
    moved = [
        step.model_copy(update={"at_ms": step.at_ms + by_ms}) if index >= at else step
        for index, step in enumerate(script.steps)
    ]
    return _changed(script, name, moved)


def back_to_back(script: Script, name: str, *, chunk: int, count: int) -> Script:
    """`count` chunks from `chunk` on leave one right after the other, when the last was due."""
    at = _step_of(script, chunk)
    last_ms = script.steps[at + count - 1].at_ms
    moved = [
        step.model_copy(update={"at_ms": last_ms}) if at <= index < at + count else step
        for index, step in enumerate(script.steps)
    ]
    return _changed(script, name, moved)


def merged(script: Script, name: str, *, chunk: int, count: int) -> Script:
    """`count` chunks from `chunk` on go in one send, when the last of them was due."""
    at = _step_of(script, chunk)
    group = script.steps[at : at + count]
    put = tuple(item for step in group for item in step.put)
    one = Step(at_ms=group[-1].at_ms, put=put)
    return _changed(script, name, [*script.steps[:at], one, *script.steps[at + count :]])


def split(script: Script, name: str, *, chunk: int, first_bytes: int, gap_ms: float) -> Script:
    """Chunk `chunk` goes in two sends, the first of `first_bytes`, the rest `gap_ms` later."""
    return trickled(script, name, chunk=chunk, piece_bytes=first_bytes, gap_ms=gap_ms, pieces=1)


def trickled(
    script: Script, name: str, *, chunk: int, piece_bytes: int, gap_ms: float, pieces: int
) -> Script:
    """Chunk `chunk` begins with `pieces` small sends, `gap_ms` apart; then comes the rest."""
    at = _step_of(script, chunk)
    step = script.steps[at]
    first = step.model_copy(update={"flush_bytes": piece_bytes})
    more = [
        Step(at_ms=step.at_ms + gap_ms * index, flush_bytes=piece_bytes)
        for index in range(1, pieces)
    ]
    rest = Step(at_ms=step.at_ms + gap_ms * pieces)
    steps = [*script.steps[:at], first, *more, rest, *script.steps[at + 1 :]]
    return _changed(script, name, sorted(steps, key=lambda each: each.at_ms))


def delayed_end(script: Script, name: str, *, by_ms: float) -> Script:
    """The end comes by itself, `by_ms` after the last chunk."""
    *before, last = script.steps
    put = tuple(item for item in last.put if item.kind is not ItemKind.END)
    return _changed(
        script,
        name,
        [
            *before,
            last.model_copy(update={"put": put}),
            Step(at_ms=last.at_ms + by_ms, put=(_END,)),
        ],
    )


def cut_off(script: Script, name: str, *, chunk: int, ending: Ending) -> Script:
    """The connection ends with chunk `chunk`, before the reply does."""
    at = _step_of(script, chunk)
    last = script.steps[at].model_copy(update={"ending": ending})
    return _changed(script, name, [*script.steps[:at], last])


def _changed(script: Script, name: str, steps: list[Step]) -> Script:
    # Through the constructor, so that the result is checked like any other.
    return Script(
        name=name,
        sound=script.sound,
        steps=tuple(steps),
        container=script.container,
        status=script.status,
    )


def _step_of(script: Script, chunk: int) -> int:
    """Index of the step that puts chunk number `chunk` (from 0)."""
    seen = -1
    for index, step in enumerate(script.steps):
        seen += sum(item.kind is ItemKind.AUDIO for item in step.put)
        if seen >= chunk:
            return index
    raise IndexError(f"{script.name}: has no chunk {chunk}")
