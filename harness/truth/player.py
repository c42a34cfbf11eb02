"""Plays one script on one connection: which bytes at which step, marked and logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.truth.connection import Connection
from harness.truth.framing import Framed, Framing, ReplyHead, wav_header
from harness.truth.log import LoggedItem, TruthLog
from harness.truth.marks import Mark, clear, stamp
from harness.truth.script import Container, Ending, Item, ItemKind, Script
from harness.truth.sound import Clip, render

__all__ = ["Player", "PreparedScript", "prepare"]

_NS_PER_MS = 1_000_000
_BYTES_PER_SAMPLE = 2


@dataclass(frozen=True, slots=True)
class PreparedScript:
    """A script with its sound rendered and cut; `chunks` are ready to be marked."""

    script: Script
    clip: Clip
    chunks: tuple[bytes, ...]
    due_ns: tuple[int, ...]


def prepare(scripts: Mapping[str, Script]) -> dict[str, PreparedScript]:
    """Render every clip before the first request, so that replies cost nothing but sends.

    Raises:
        ScenarioError: a recording cannot be read.
    """
    clips: dict[str, Clip] = {}
    prepared = {}
    for name, script in scripts.items():
        key = script.sound.model_dump_json()
        if key not in clips:
            clips[key] = render(script.sound)
        prepared[name] = PreparedScript(
            script,
            clips[key],
            _cut(script, clips[key]),
            tuple(round(step.at_ms * _NS_PER_MS) for step in script.steps),
        )
    return prepared


def _cut(script: Script, clip: Clip) -> tuple[bytes, ...]:
    payload, at, chunks = clip.samples.tobytes(), 0, []
    for item in script.items:
        if item.kind is ItemKind.AUDIO:
            size = item.samples * _BYTES_PER_SAMPLE
            chunks.append(clear(payload[at : at + size]))
            at += size
    return tuple(chunks)


class Player:
    """One reply in progress. Call `step` at `next_due_ns` until it is None."""

    def __init__(
        self,
        prepared: PreparedScript,
        connection: Connection,
        *,
        framing: Framing,
        number: int,
        received_ns: int,
        log: TruthLog,
    ) -> None:
        self._prepared = prepared
        self._connection = connection
        self._framing = framing
        self._number = number
        self._received_ns = received_ns
        self._log = log
        self._next = 0
        self._chunk = 0
        self._payload_offset = 0
        self._waiting = bytearray()

    @property
    def next_due_ns(self) -> int | None:
        """When the next step is due; None after the last one, or once the client is gone."""
        due = self._prepared.due_ns
        if self._next >= len(due) or self._connection.is_closed:
            return None
        return self._received_ns + due[self._next]

    def step(self) -> None:
        """Carry out the step that is due."""
        step = self._prepared.script.steps[self._next]
        self._next += 1
        for item in step.put:
            self._put(item)
        size = len(self._waiting) if step.flush_bytes is None else step.flush_bytes
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._connection.write(data)
        if step.ending is not None:
            self._connection.close(is_broken=step.ending is Ending.RESET)

    def _put(self, item: Item) -> None:
        framed, num_payload = self._frame(item)
        start = self._connection.plain_end + len(self._waiting)
        self._log.items.append(
            LoggedItem(
                request=self._number,
                kind=item.kind.value,
                plain_start=start,
                plain_end=start + len(framed.data),
                body_at=start + framed.first,
                ready_at=None if framed.ready is None else start + framed.ready,
                payload_offset=self._payload_offset,
                num_payload=num_payload,
            )
        )
        self._payload_offset += num_payload
        self._waiting += framed.data

    def _frame(self, item: Item) -> tuple[Framed, int]:
        """The item as written, and how many payload bytes are in it."""
        clip, script = self._prepared.clip, self._prepared.script
        if item.kind is ItemKind.HEAD:
            kind = "audio/wav" if script.container is Container.WAV else "audio/pcm"
            head = ReplyHead(self._number, script.status, kind, clip.sample_rate_hz)
            return Framed(self._framing.head(head)), 0
        if item.kind is ItemKind.END:
            return Framed(self._framing.end()), 0
        if item.kind is ItemKind.CONTAINER:
            header = wav_header(clip.sample_rate_hz)
            return self._framing.payload(header), len(header)
        data = stamp(self._prepared.chunks[self._chunk], Mark(self._number, self._chunk))
        self._chunk += 1
        return self._framing.payload(data), len(data)
