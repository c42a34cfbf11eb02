"""What of a recorded run can be served again, by text.

A reply is served as it was received: its payload in the same deliveries, each so long after the
request was sent. What never got a reply (no connection, not sent) or was ended by the client
(cancelled) says nothing about the server and is left out, with its number told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import pybase64

from engines.base import AudioFormat, PayloadEncoding, SampleFormat
from engines.outcomes import TransportOutcome
from harness.errors import RunFolderError
from harness.records import ChunkEvent, RequestRecord
from harness.store import StoredRun

__all__ = ["CONTENT_TYPES", "Ending", "RecordedReply", "ReplayBook", "TimedPiece", "load_book"]


class Ending(StrEnum):
    """How a replayed reply ends."""

    CLEAN = "clean"
    BROKEN = "broken"  # the connection is dropped in mid-reply
    NEVER = "never"  # it was still open when the client gave up


@dataclass(frozen=True, slots=True)
class TimedPiece:
    """Bytes and when they came, counted from the moment the request was sent."""

    after_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """One reply. `format` is None for a refusal, which has a `status` other than 200."""

    request_id: str
    status: int
    format: AudioFormat | None
    head_after_ns: int
    pieces: tuple[TimedPiece, ...]
    end_after_ns: int
    ending: Ending
    message: str = ""


@dataclass(frozen=True, slots=True)
class ReplayBook:
    """Replies by text, each list in the order in which the run asked.

    num_left_out: how many requests cannot be served again, by reason.
    """

    name: str
    replies: Mapping[str, Sequence[RecordedReply]]
    num_left_out: Mapping[str, int]

    @property
    def num_replies(self) -> int:
        """Of all texts."""
        return sum(len(found) for found in self.replies.values())


def load_book(run: StoredRun, *, point_id: str | None = None) -> ReplayBook:
    """Everything of one point of a run that can be served again.

    Args:
        run: opened.
        point_id: which; may be left out where the run has only one.

    Raises:
        RunFolderError: no such point, several to choose from, or nothing in it can be served.
    """
    chosen = _point_of(run, point_id)
    replies: dict[str, list[RecordedReply]] = {}
    left_out: Counter[str] = Counter()
    for record, payload in run.iter_records():
        if record.point_id != chosen:
            continue
        reason = _why_not(record, payload)
        if reason is not None:
            left_out[reason] += 1
            continue
        try:
            reply = _reply_of(record, payload or b"")
        except ValueError:  # of either text decoder: these bytes are not what they are called
            encoding = record.format.encoding if record.format else ""
            left_out[f"not {encoding} as their format says"] += 1
            continue
        replies.setdefault(record.text, []).append(reply)
    if not replies:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        raise RunFolderError(
            f"{run.folder}: point {chosen} holds no reply that can be served again"
            f" ({reasons or 'no requests'}); record with recording.audio: all and recording.text"
        )
    return ReplayBook(run.record.name, replies, MappingProxyType(dict(left_out)))


def _point_of(run: StoredRun, point_id: str | None) -> str:
    known = [point.point_id for point in run.record.points]
    if point_id is None and len(known) == 1:
        return known[0]
    if point_id in known:
        return point_id
    found = "several points" if point_id is None else f"no point {point_id!r}"
    raise RunFolderError(
        f"{run.folder}: {found}; a reply's timing depends on its load, so choose one by --point:"
        f" {', '.join(known) or 'the run has none'}"
    )


_ENDINGS = MappingProxyType(
    {
        TransportOutcome.OK: Ending.CLEAN,
        TransportOutcome.REFUSED: Ending.CLEAN,
        TransportOutcome.HTTP_ERROR: Ending.CLEAN,
        TransportOutcome.TRUNCATED: Ending.BROKEN,
        TransportOutcome.SERVER_ERROR: Ending.BROKEN,
        TransportOutcome.TIMEOUT: Ending.NEVER,
    }
)


def _why_not(record: RequestRecord, payload: bytes | None) -> str | None:
    """Why a request cannot be served again, or None."""
    if record.transport_outcome not in _ENDINGS:
        return f"ended as {record.transport_outcome}"
    if not record.text:
        return "without their text"
    if record.sent_ns is None or record.finished_ns is None:
        return "never sent"
    if len(payload or b"") < sum(chunk.num_bytes for chunk in record.chunks):
        return "without their whole audio"
    return None


def _reply_of(record: RequestRecord, payload: bytes) -> RecordedReply:
    sent_ns = record.sent_ns
    assert sent_ns is not None
    assert record.finished_ns is not None
    is_refusal = record.transport_outcome in (
        TransportOutcome.REFUSED,
        TransportOutcome.HTTP_ERROR,
    )
    end_ns = max(record.finished_ns - sent_ns, 0)
    head_ns = end_ns if record.headers_ns is None else max(record.headers_ns - sent_ns, 0)
    pieces = (
        () if record.format is None else _pieces(record.chunks, payload, record.format, sent_ns)
    )
    return RecordedReply(
        request_id=record.request_id,
        status=(record.http_status or 503) if is_refusal else 200,
        format=None if is_refusal else record.format,
        # A WebSocket session is accepted before the text is sent: the head then goes at once.
        head_after_ns=min(head_ns, pieces[0].after_ns) if pieces else head_ns,
        pieces=pieces,
        end_after_ns=end_ns,
        ending=_ENDINGS[record.transport_outcome],
        message=record.error_text or "",
    )


def _pieces(
    chunks: Sequence[ChunkEvent], payload: bytes, fmt: AudioFormat, sent_ns: int
) -> tuple[TimedPiece, ...]:
    made: list[TimedPiece] = []
    latest_ns = 0
    unwrap = _UNWRAP[fmt.encoding]
    for chunk in chunks:
        # Bytes come in order, so a stamp before its predecessor's can only be the stamp's fault.
        latest_ns = max(latest_ns, chunk.arrival_ns - sent_ns)
        data = unwrap(payload[chunk.offset : chunk.offset + chunk.num_bytes])
        made.append(TimedPiece(latest_ns, data))
    return tuple(made)


def _from_base64(text: bytes) -> bytes:
    # Padding and alphabet as they come: both variants are unambiguous.
    bare = text.translate(bytes.maketrans(b"-_", b"+/"), b" \r\n\t=")
    return bytes(pybase64.b64decode(bare + b"=" * (-len(bare) % 4)))


def _from_hex(text: bytes) -> bytes:
    return bytes.fromhex(text.decode("ascii"))


_UNWRAP: Mapping[PayloadEncoding, Callable[[bytes], bytes]] = MappingProxyType(
    {
        PayloadEncoding.RAW: bytes,
        PayloadEncoding.BASE64: _from_base64,
        PayloadEncoding.HEX: _from_hex,
    }
)

# What a format is called on the wire; `engines/contracts/replay.yaml` reads the same names.
CONTENT_TYPES: Mapping[SampleFormat, str] = MappingProxyType(
    {
        SampleFormat.S16LE: "audio/pcm",
        SampleFormat.S24LE: "audio/x-s24le",
        SampleFormat.F32LE: "audio/x-f32le",
        SampleFormat.MULAW: "audio/basic",
        SampleFormat.ALAW: "audio/x-alaw-basic",
        SampleFormat.WAV: "audio/wav",
        SampleFormat.MP3: "audio/mpeg",
        SampleFormat.AAC: "audio/aac",
        SampleFormat.OGG_OPUS: "audio/ogg",
        SampleFormat.FLAC: "audio/flac",
    }
)
