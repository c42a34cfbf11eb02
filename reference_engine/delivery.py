"""Takes decoded chunks to their listeners: trims silence, bounds slow readers, ends streams.

`Router` is the work itself, one chunk after another. `InlineDelivery` does it on the spot (virtual
time, tests); `ThreadDelivery` does it in a thread that waits for the copy of the samples, so the
engine loop never does.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from reference_engine.clock import NS_PER_S, Clock
from reference_engine.config import LeadingSilence, Profile
from reference_engine.errors import StepError
from reference_engine.messages import (
    SAMPLE_RATE_HZ,
    SAMPLES_PER_CODEC_FRAME,
    Audio,
    Chunk,
    End,
    EndReason,
)
from reference_engine.runner import PcmHandle
from reference_engine.scheduler.scheduler import DecodedRow
from reference_engine.sequence import Sequence
from reference_engine.trim import Cut, FixedTrim, ListeningTrim, trailing_silence

__all__ = ["Delivery", "Ending", "InlineDelivery", "Report", "Router", "ThreadDelivery"]

_BYTES_PER_SAMPLE = 2


@dataclass(frozen=True, slots=True)
class Report:
    """What the engine must know of a delivered chunk.

    num_samples: routed to the listener. `reason` is set where the stream must stop.
    """

    slot: int
    epoch: int
    num_samples: int
    routed_ns: int
    reason: EndReason | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """End a stream after what was submitted for it before."""

    sequence: Sequence
    reason: EndReason
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Chunks:
    handle: PcmHandle | None
    rows: list[DecodedRow]


@dataclass(slots=True)
class _Stream:
    """The delivery's own state of one request."""

    trim: FixedTrim | ListeningTrim
    routed_samples: int = 0
    silent_samples: int = 0  # at the end of what was routed


class Router:
    """Routes chunks and endings in the order given; reports what the engine must know.

    It counts chunks, the narrowest slack of any, and underruns: chunks routed after their listener
    ran dry, as far as a server can see.
    """

    def __init__(self, profile: Profile, clock: Clock, report: Callable[[Report], None]) -> None:
        self._profile, self._clock, self._report = profile, clock, report
        self._streams: dict[int, _Stream] = {}
        self.num_chunks = 0
        self.num_underruns = 0
        self.min_slack_ns: int | None = None

    @property
    def num_streams(self) -> int:
        """Requests it holds state for."""
        return len(self._streams)

    def chunks(self, handle: PcmHandle | None, rows: list[DecodedRow]) -> None:
        """Deliver the rows of one codec step."""
        if handle is not None:
            handle.wait()
        for row in rows:
            if row.sequence.stats.ended_ns is None:
                self._row(handle, row)

    def end(self, ending: Ending) -> None:
        """Send the last event of a request, once."""
        sequence = ending.sequence
        self._streams.pop(sequence.epoch, None)
        stats = sequence.stats
        if stats.ended_ns is not None:
            return
        stats.ended_ns = self._clock.now_ns()
        sequence.sink.send(End(ending.reason, ending.text, stats))

    def lost(self, sequences: list[Sequence], text: str) -> None:
        """End requests of which a chunk never came."""
        for sequence in sequences:
            self._stop(sequence, EndReason.FAILED, text)

    def _row(self, handle: PcmHandle | None, row: DecodedRow) -> None:
        sequence = row.sequence
        try:
            if sequence.sink.unread_bytes() > self._profile.max_unread_bytes:
                self._stop(sequence, EndReason.SLOW_READER, self._slow_text())
                return
            self._route(handle, row)
            if row.is_last:
                self._finish(row)
        except StepError as fault:
            self._stop(sequence, EndReason.FAILED, str(fault))
        except Exception as fault:  # a sink's own: it must cost this request alone
            self._stop(sequence, EndReason.FAILED, f"delivery: {type(fault).__name__}: {fault}")

    def _route(self, handle: PcmHandle | None, row: DecodedRow) -> None:
        sequence = row.sequence
        stream = self._streams.get(sequence.epoch)
        if stream is None:
            stream = self._streams[sequence.epoch] = _Stream(self._new_trim(sequence))
        num_samples = row.num_codec_frames * SAMPLES_PER_CODEC_FRAME
        cut = Cut(0, None)
        if row.row is not None and handle is not None:
            cut = stream.trim.push(num_samples, handle.samples(row.row, num_samples))
        was_silent = not stream.routed_samples
        # Before the first sound leaves: whoever gets it states what was trimmed.
        sequence.stats.trimmed_samples = stream.trim.trimmed_samples
        self._send(stream, row, cut)
        if row.is_last and not stream.routed_samples:
            self._send(stream, row, stream.trim.flush())
        if not (row.is_last or sequence.job.ignore_eos) and self._has_lost_its_text(stream, cut):
            text = f"silent for more than {self._profile.guards.max_silence_s:g} s"
            self._stop(sequence, EndReason.LENGTH, text)
            return
        if was_silent and not row.is_last:
            now_ns = self._clock.now_ns()
            self._report(Report(sequence.slot, sequence.epoch, cut.num_samples, now_ns))

    def _has_lost_its_text(self, stream: _Stream, cut: Cut) -> bool:
        """Whether the stream has been silent for longer than any pause of a speaker."""
        if cut.samples is None or not cut.num_samples:
            return False
        silent = trailing_silence(cut.samples)
        stream.silent_samples = (
            stream.silent_samples + silent if silent == cut.num_samples else silent
        )
        return stream.silent_samples > self._profile.guards.max_silence_s * SAMPLE_RATE_HZ

    def _send(self, stream: _Stream, row: DecodedRow, cut: Cut) -> None:
        if not cut.num_samples:
            return
        stats, now_ns = row.sequence.stats, self._clock.now_ns()
        slack_ns = None
        if stats.first_routed_ns is None:
            stats.first_routed_ns = now_ns
        else:
            media_ns = stream.routed_samples * NS_PER_S // SAMPLE_RATE_HZ
            slack_ns = stats.first_routed_ns + media_ns - now_ns
            self.num_underruns += slack_ns < 0
            least_ns = self.min_slack_ns
            self.min_slack_ns = slack_ns if least_ns is None else min(least_ns, slack_ns)
        self.num_chunks += 1
        stream.routed_samples += cut.num_samples
        stats.chunks.append(Chunk(now_ns, row.num_codec_frames, cut.num_samples, slack_ns))
        pcm = None if cut.samples is None else cut.samples.astype("<i2", copy=False).tobytes()
        row.sequence.sink.send(Audio(pcm, cut.num_samples, now_ns))

    def _finish(self, row: DecodedRow) -> None:
        reason = EndReason.COMPLETE if row.is_complete else EndReason.LENGTH
        text = "" if row.is_complete else "stopped at its limit of codec frames"
        self.end(Ending(row.sequence, reason, text))

    def _stop(self, sequence: Sequence, reason: EndReason, text: str) -> None:
        self._report(
            Report(sequence.slot, sequence.epoch, 0, self._clock.now_ns(), reason=reason, text=text)
        )
        try:
            self.end(Ending(sequence, reason, text))
        except Exception:  # the sink is what failed; there is nobody left to tell
            self._streams.pop(sequence.epoch, None)

    def _slow_text(self) -> str:
        return f"more than {self._profile.max_unread_bytes} bytes were left unread"

    def _new_trim(self, sequence: Sequence) -> FixedTrim | ListeningTrim:
        profile = self._profile
        if profile.leading_silence is LeadingSilence.KEEP or sequence.job.keeps_silence:
            return FixedTrim(0)
        if profile.assume_silent_frames:
            return FixedTrim(profile.assume_silent_frames * SAMPLES_PER_CODEC_FRAME)
        return ListeningTrim(int(profile.max_trim_ms * SAMPLE_RATE_HZ / 1000))


class Delivery(Protocol):
    """What the engine loop hands chunks and endings to. Never blocks it."""

    def submit(self, handle: PcmHandle | None, rows: list[DecodedRow]) -> None:
        """Deliver the rows of a codec step, in order."""
        ...

    def end(self, ending: Ending) -> None:
        """End a stream after everything submitted for it."""
        ...

    def recover(self) -> list[Sequence] | None:
        """None while it is alive; else it works again, and these requests lost something."""
        ...

    def close(self) -> None:
        """Deliver what is left, then stop."""
        ...


class InlineDelivery:
    """Delivers at once, in the caller's thread."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def submit(self, handle: PcmHandle | None, rows: list[DecodedRow]) -> None:
        """Deliver now."""
        self._router.chunks(handle, rows)

    def end(self, ending: Ending) -> None:
        """End now; a sink that fails here has lost its request already."""
        try:
            self._router.end(ending)
        except Exception:  # there is nobody left to tell
            return

    def recover(self) -> list[Sequence] | None:
        """It lives as long as its caller."""
        return None

    def close(self) -> None:
        """Nothing is left behind."""


class ThreadDelivery:
    """Delivers in its own thread, in the order of submission."""

    def __init__(self, router: Router, *, name: str = "delivery") -> None:
        self._router, self._name = router, name
        self._queue: queue.SimpleQueue[_Chunks | Ending | None] = queue.SimpleQueue()
        self._current: _Chunks | Ending | None = None
        self._thread = self._start()

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            # Still set if the thread dies here: what the engine then knows to be lost.
            self._current = item
            self._deliver(item)
            self._current = None

    def _deliver(self, item: _Chunks | Ending) -> None:
        try:
            if isinstance(item, _Chunks):
                self._router.chunks(item.handle, item.rows)
            else:
                self._router.end(item)
        except Exception as fault:  # e.g. the copy itself failed
            if isinstance(item, _Chunks):
                self._router.lost([row.sequence for row in item.rows], f"delivery: {fault}")

    def submit(self, handle: PcmHandle | None, rows: list[DecodedRow]) -> None:
        """Queue them."""
        self._queue.put(_Chunks(handle, rows))

    def end(self, ending: Ending) -> None:
        """Queue it."""
        self._queue.put(ending)

    def recover(self) -> list[Sequence] | None:
        """Start a new thread where the old one died; what it held in hand is lost."""
        if self._thread.is_alive():
            return None
        lost, self._current = self._current, None
        self._thread = self._start()
        if isinstance(lost, _Chunks):
            return [row.sequence for row in lost.rows]
        return [] if lost is None else [lost.sequence]

    def close(self) -> None:
        """Deliver what is queued, then end the thread."""
        self._queue.put(None)
        self._thread.join()
