"""One shard's files of one sitting, and the thread that writes them, off the hot path.

`append` only puts a reference on a queue. The thread writes the payload first and the record
after it, so that a record in the log never points at bytes that are not there.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from engines.base import AudioFormat, Buffer, PayloadEncoding, SampleFormat
from harness.errors import RunFolderError
from harness.records import PointRecord, RequestRecord, TelemetrySample
from harness.store import codec
from harness.store.frames import FrameKind, append_frame, encode_frame
from harness.store.layout import Layout, disk_error

__all__ = ["AudioPolicy", "SegmentWriter"]

# Linux refuses more buffers than this in one writev().
_MAX_BUFFERS = 1024
# Bounds for `head:` where the format does not tell its rate: 48 kHz stereo 16 bit; 320 kbit/s.
_MAX_PCM_BYTES_PER_S = 192_000
_MAX_CODED_BYTES_PER_S = 40_000
_CODED = (SampleFormat.MP3, SampleFormat.AAC, SampleFormat.OGG_OPUS, SampleFormat.FLAC)
_ENCODED_SIZE = {PayloadEncoding.RAW: 1.0, PayloadEncoding.BASE64: 4 / 3, PayloadEncoding.HEX: 2.0}
_POLICY = re.compile(r"(?P<kind>all|none|head|sample)(:(?P<amount>[0-9.]+))?")


class _Keep(Enum):
    ALL = "all"
    NONE = "none"
    HEAD = "head"
    SAMPLE = "sample"


@dataclass(frozen=True, slots=True)
class AudioPolicy:
    """How much of each payload is kept: `all`, `none`, `head:<seconds>` or `sample:<share>`."""

    kind: _Keep
    amount: float = 0.0

    @classmethod
    def parse(cls, text: str) -> AudioPolicy:
        """From the scenario's `recording.audio`.

        Raises:
            ValueError: not one of the four forms.
        """
        match = _POLICY.fullmatch(text)
        if match is None:
            raise ValueError(f"recording.audio: {text!r} is not all, none, head:s or sample:share")
        return cls(_Keep(match["kind"]), float(match["amount"] or 0.0))

    def max_bytes(self, record: RequestRecord) -> int | None:
        """Payload bytes to keep of this request; None keeps all."""
        if not self.keeps(record.index, record.prompt_id):
            return 0
        return _bytes_of(self.amount, record.format) if self.kind is _Keep.HEAD else None

    def keeps(self, index: int, prompt_id: str) -> bool:
        """Whether any of a payload is kept, however the request will end.

        Which requests a share falls on depends on index and prompt alone, so that every engine
        keeps the same ones.
        """
        if self.kind is _Keep.SAMPLE:
            return zlib.crc32(f"{index}:{prompt_id}".encode()) / 2**32 < self.amount
        return self.kind is not _Keep.NONE


def _bytes_of(seconds: float, audio: AudioFormat | None) -> int:
    """Payload bytes that hold at least so many seconds, in whole PCM frames where they are known.

    A format without a fixed rate gets the bound of the densest stream of its kind.
    """
    if audio is None:
        return int(seconds * _MAX_PCM_BYTES_PER_S)
    width = audio.sample_format.bytes_per_sample
    size = _ENCODED_SIZE[audio.encoding]
    if width is None or audio.sample_rate_hz is None or audio.channels is None:
        is_coded = audio.sample_format in _CODED
        rate = _MAX_CODED_BYTES_PER_S if is_coded else _MAX_PCM_BYTES_PER_S
        return int(seconds * rate * size)
    frames = int(seconds * audio.sample_rate_hz)
    return int(frames * audio.channels * width * size)


@dataclass(frozen=True, slots=True)
class _Request:
    record: RequestRecord
    payload: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class _Frame:
    kind: FrameKind
    body: bytes


class _Stop:
    """Ends the thread once everything before it is written."""


_Item = _Request | _Frame | _Stop


class SegmentWriter:
    """Owns one log file and one payload file.

    Args:
        layout: of the run folder.
        shard: the load-generating process.
        segment: the sitting; a resumed run has more than one.
        audio: how much of each payload is kept.
        keep_text: whether prompt texts are stored.
        redact: applied to texts that came from a server.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        shard: int,
        segment: int,
        audio: AudioPolicy,
        keep_text: bool = True,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._layout = layout
        self._audio = audio
        self._keep_text = keep_text
        self._redact = redact
        self._audio_name = layout.audio_name(shard, segment)
        self._audio_size = 0
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._num_lost = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        path = layout.log_segment(shard, segment)
        try:
            self._log_fd = os.open(path, flags | os.O_APPEND, 0o644)
            self._audio_fd = os.open(layout.folder / self._audio_name, flags, 0o644)
        except OSError as fault:
            raise disk_error(path, fault, "cannot be written") from None
        self._thread = threading.Thread(target=self._run, name=f"store-{shard}", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> Exception | None:
        """Why nothing more can be stored, or None. The run should then end at once.

        A `RunFolderError` for what the disk said; anything else is a fault of ours.
        """
        return self._failure

    def append(self, record: RequestRecord, payload: Sequence[Buffer] = ()) -> None:
        """Hand over a finished request; returns at once. Neither may be changed afterwards."""
        self._queue.put(_Request(record, payload))

    def append_telemetry(self, rows: Sequence[TelemetrySample]) -> None:
        """Hand over samples; returns at once."""
        if rows:
            self._queue.put(_Frame(FrameKind.TELEMETRY, codec.encode_telemetry(list(rows))))

    def append_point(self, point: PointRecord) -> None:
        """Hand over the state of a point as it is now; returns at once."""
        self._queue.put(_Frame(FrameKind.POINT, codec.encode_point(point)))

    def append_close(self, status: str) -> None:
        """Note how the run ended, for a recovery that finds the tables unfinished."""
        self._queue.put(_Frame(FrameKind.CLOSE, status.encode()))

    def close(self) -> None:
        """Write everything handed over so far, and end the thread.

        Raises:
            RunFolderError: something could not be stored; says how many requests.
            Exception: what else ended the thread.
        """
        self._queue.put(_Stop())
        self._thread.join()
        for fd in (self._log_fd, self._audio_fd):
            os.close(fd)
        if isinstance(self._failure, RunFolderError):
            lost = f" ({self._num_lost} requests were not stored)"
            raise RunFolderError(f"{self._failure}{lost if self._num_lost else ''}")
        if self._failure is not None:
            raise self._failure

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while not isinstance(item := self._queue.get(), _Stop):
            if self._failure is not None:
                self._num_lost += isinstance(item, _Request)
                continue
            try:
                self._store(item)
            except OSError as fault:
                self._num_lost += isinstance(item, _Request)
                self._failure = disk_error(self._layout.folder, fault, _WHAT_TO_DO)
            except Exception as fault:
                # A thread that died of it would lose, without a word, all that comes after.
                self._failure = fault

    def _store(self, item: _Request | _Frame) -> None:
        if isinstance(item, _Frame):
            append_frame(self._log_fd, encode_frame(item.kind, item.body))
            return
        stored = self._located(item.record, item.payload)
        body = codec.encode_request(self._cleaned(stored))
        append_frame(self._log_fd, encode_frame(FrameKind.REQUEST, body))

    def _located(self, record: RequestRecord, payload: Sequence[Buffer]) -> RequestRecord:
        """Write what is to be kept of the payload; the record then says where it lies."""
        kept = _head(payload, self._audio.max_bytes(record))
        size = sum(memoryview(buffer).nbytes for buffer in kept)
        if size == 0:
            return replace(record, audio_file=None, audio_offset=None, audio_bytes=0)
        offset = self._audio_size
        _write_all(self._audio_fd, kept, offset)
        self._audio_size += size
        return replace(record, audio_file=self._audio_name, audio_offset=offset, audio_bytes=size)

    def _cleaned(self, record: RequestRecord) -> RequestRecord:
        """The record without secrets in texts that came from a server, and without its prompt
        where prompts are not kept."""
        said: dict[str, Any] = {
            name: self._redact(value)
            for name in ("error_text", "server_timing", "content_type")
            if (value := getattr(record, name)) is not None
        }
        if self._keep_text:
            return replace(record, **said)
        if record.text:
            said = {name: value.replace(record.text, "***") for name, value in said.items()}
        return replace(record, **said, text="")


_WHAT_TO_DO = (
    "cannot be written any more; what was stored is kept: make room, then run `earwitness recover`"
)


def _head(payload: Sequence[Buffer], max_bytes: int | None) -> list[Buffer]:
    """The first `max_bytes` of the buffers, without copying."""
    if max_bytes is None:
        return [buffer for buffer in payload if memoryview(buffer).nbytes]
    kept: list[Buffer] = []
    for buffer in payload:
        if max_bytes <= 0:
            break
        view = memoryview(buffer).cast("B")[:max_bytes]
        max_bytes -= view.nbytes
        if view.nbytes:
            kept.append(view)
    return kept


def _write_all(fd: int, buffers: Sequence[Buffer], offset: int) -> None:
    """Write the buffers one after the other at `offset`, in as few calls as the kernel allows.

    At a place, not at the end: what a failed attempt left behind is then written over.
    """
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    while views:
        written = os.pwritev(fd, views[:_MAX_BUFFERS], offset)
        offset += written
        while views and written >= views[0].nbytes:
            written -= views.pop(0).nbytes
        if views and written:
            views[0] = views[0][written:]
